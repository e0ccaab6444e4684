"""Cues: the language of a text, how much of it asks, and what a question asks for."""

from __future__ import annotations

import pytest

from memorist.text import cues


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
        ("When did we meet?", cues.HAS_TIME),
        ("Why did I quit?", cues.HAS_REASON),
        ("Where does Ana live?", cues.HAS_PLACE),
        ("Who is Ana?", 0),
    ],
)
def test_what_a_question_asks_for(question: str, kinds: int) -> None:
    assert cues.kinds_asked(question) == kinds
