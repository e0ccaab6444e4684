"""Cues: the language of a text, how much of it asks, and what a question asks for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memorist.retrieve.question import kinds_asked
from memorist.text import cues
from memorist.types import Memory, Scope

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def flags(text: str) -> int:
    """The flags of a memory with this text."""
    memory = Memory(
        id="m", scope=Scope(user="ana"), text=text, kind="episodic", created_at=NOW, updated_at=NOW
    )
    return cues.flags_of(memory)


@pytest.mark.parametrize(
    "text",
    [
        "Rubber duck",
        "OK",
        "42",
        "",
        "I flew to Los Angeles with Van der Berg.",
        "Is the meeting in Rio de Janeiro?",
        "My hat is the red one.",
        "What does 'der' mean in German?",
        "Naïve café talk is all we had.",
    ],
)
def test_english_is_recognized(text: str) -> None:
    assert cues.is_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "Welche Farbe hat der Wasserkocher?",
        "Wo wohnt Anna?",
        "Wie alt bin ich?",
        "Der Schlüssel liegt unter der Matte.",
        "Wir waren am Montag im Kino.",
        "Où habite mon frère ?",
        "Comment s'appelle ma sœur ?",
        "¿Cómo se llama mi perro?",
        "A Juan le gusta el café.",
        "Onde mora meu irmão?",
        "Dove vive mio fratello?",
        "Hoe heet mijn hond?",
        "Gdzie mieszka mój brat?",
        "Köpeğimin adı ne?",
        "Min bror bor i Malmö.",
        "Где живёт мой брат?",
        "我哥哥住在哪里?",
        "弟はどこに住んでいますか?",
        "내 동생은 어디에 살아요?",
        "أين يعيش أخي؟",
    ],
)
def test_other_languages_are_recognized_in_one_short_sentence(text: str) -> None:
    assert not cues.is_english(text)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("", 0.0),
        ("I moved to Rome.", 0.0),
        ("Where did I park?", 1.0),
        ("where did i park", 1.0),
        ("Wo habe ich geparkt?", 1.0),
        ("Great! Where did you park?", 1.0),
        ("I moved to Rome last year. And you?", 0.25),
        ("can u help me move", 1.0),
        ("So what time is it", 1.0),
        ("Any ideas for dinner", 1.0),
        ("Write me a poem about spring.", 1.0),
    ],
)
def test_the_share_that_asks(text: str, share: float) -> None:
    assert cues.asking_share(text) == share


@pytest.mark.parametrize(
    "text",
    [
        "Better. And when you show code, use Kotlin, we have no Java left here.",
        "When I was a child, I lived in Rome.",
        "What I like most is tea.",
        "Is allergic to peanuts",
        "Was born in 1990 and has two cats",
        "Will plays the violin.",
        "Any milk makes me sick.",
        "Do not call me before nine.",
        "Make it short.",
        "Correct, I live in Rome.",
    ],
)
def test_a_statement_that_begins_like_a_question_asks_nothing(text: str) -> None:
    assert cues.asking_share(text) == 0.0


@pytest.mark.parametrize(
    ("question", "kinds"),
    [
        ("How old is my dog?", cues.HAS_NUMBER),
        ("When did Ana leave?", cues.HAS_TIME),
        ("Why did I quit?", cues.HAS_REASON | cues.HAS_DECISION),
        ("Which name did we pick?", cues.HAS_DECISION),
        ("Write a note to the landlord", cues.HAS_RULE),
        ("Can I have the cheese plate?", cues.HAS_RULE),
        ("Where does Ana live?", cues.HAS_PLACE),
        ("Who is Ana?", 0),
    ],
)
def test_what_a_question_asks_for(question: str, kinds: int) -> None:
    assert kinds_asked(question) == kinds


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("The show is on oct 9 now", cues.HAS_TIME),
        ("Choir is Mondays and Thursdays", cues.HAS_TIME),
        ("Back on the nineteenth of June", cues.HAS_TIME),
        ("The shop opens at 9:30", cues.HAS_TIME),
        ("Always answer in three lines", cues.HAS_RULE),
        ("From now on the tests run at night", cues.HAS_RULE),
        ("We went with the green tiles", cues.HAS_DECISION),
        ("Change of plan, the boat is sold", cues.HAS_DECISION),
    ],
)
def test_what_a_text_tells(text: str, kind: int) -> None:
    assert flags(text) & kind
    assert not flags("The kettle in the kitchen is blue") & kind


def test_a_few_words_are_brief() -> None:
    assert flags("ha, good one!") & cues.IS_BRIEF
    assert flags("好的，谢谢！") & cues.IS_BRIEF
    assert not flags("The kettle in the kitchen is blue") & cues.IS_BRIEF
    assert not flags("我从小就对花生过敏，连味道都不能闻") & cues.IS_BRIEF
