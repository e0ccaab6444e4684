"""Facts from turns in German, French, Spanish, Portuguese and Italian, on turns written for it."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from memorist.extraction import languages, rules

DATA = Path(__file__).parents[1] / "data" / "extraction_languages.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
AT = datetime(2026, 5, 8)  # a Friday
LANGUAGES = ("de", "fr", "es", "pt", "it")


def find(text: str, who: str | None = None) -> list[str]:
    name = rules.name_speaker(who)
    return [fact.text for fact in languages.find_facts(text, who=name, at=AT)]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_most_statements_are_found_and_hardly_any_fact_is_wrong(lang: str) -> None:
    found = right = expected = 0
    for row in ROWS:
        if row["lang"] == lang:
            facts = find(row["text"], row["speaker"])
            found += len(facts)
            expected += len(row["facts"])
            right += len(set(facts) & set(row["facts"]))
    assert right / found >= 0.95
    assert right / expected >= 0.7


@pytest.mark.parametrize("lang", LANGUAGES)
def test_small_talk_questions_and_guesses_give_no_fact(lang: str) -> None:
    silent = [row for row in ROWS if row["lang"] == lang and not row["facts"]]
    assert {row["text"]: find(row["text"], row["speaker"]) for row in silent} == {
        row["text"]: [] for row in silent
    }


def test_an_abbreviation_does_not_end_a_sentence() -> None:
    assert find("Ich wohne in St. Gallen.", "Ana") == ["Ana wohnt in St. Gallen."]


def test_the_evidence_is_what_was_said() -> None:
    for row in ROWS:
        for fact in languages.find_facts(row["text"], who="Ana", at=AT):
            assert fact.evidence in row["text"]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("Ich rauche nicht mehr.", "Ana raucht nicht mehr."),
        ("Je n'aime pas le poisson.", "Ana n'aime pas le poisson."),
        ("No me gusta el pescado.", "A Ana no le gusta el pescado."),
        ("Não gosto de peixe.", "Ana não gosta de peixe."),
        ("Non mi piace il pesce.", "A Ana non piace il pesce."),
    ],
)
def test_a_negation_is_kept(text: str, fact: str) -> None:
    assert find(text, "Ana") == [fact]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("Wir haben gerade eine Tochter bekommen.", "Ana hat gerade eine Tochter bekommen."),
        ("Je suis née à Caen.", "Ana est née à Caen."),
        ("Je suis de Rennes.", "Ana est de Rennes."),
        ("On vient d'emménager à Brest.", "Ana vient d'emménager à Brest."),
        ("Nous venons de nous installer à Metz.", "Ana vient de s'installer à Metz."),
        ("Je viens d'avoir une fille.", "Ana vient d'avoir une fille."),
        ("Ma sœur vient de déménager à Lille.", "La sœur d'Ana vient de déménager à Lille."),
        ("Me acabo de mudar a Sevilla.", "Ana se acaba de mudar a Sevilla."),
        ("Acabo de mudarme a Bilbao.", "Ana acaba de mudarse a Bilbao."),
        ("Acabo de empezar a trabajar en Seat.", "Ana acaba de empezar a trabajar en Seat."),
        ("Acabo de tener una hija.", "Ana acaba de tener una hija."),
        ("Llevo tres años viviendo en Cádiz.", "Ana lleva tres años viviendo en Cádiz."),
        ("Mi hermana acaba de mudarse a Lima.", "La hermana de Ana acaba de mudarse a Lima."),
        ("Acabei de me mudar para Braga.", "Ana acabou de se mudar para Braga."),
        ("Acabei de trocar de emprego.", "Ana acabou de trocar de emprego."),
        ("Acabei de adotar um gato.", "Ana acabou de adotar um gato."),
        ("Minha irmã acabou de se casar.", "A irmã de Ana acabou de se casar."),
        ("Mi sono appena trasferita a Torino.", "Ana si è appena trasferita a Torino."),
        ("Abito a Bologna da tre anni.", "Ana abita a Bologna da tre anni."),
        ("Da poco abito a Trento.", "Da poco Ana abita a Trento."),
    ],
)
def test_what_has_just_changed_and_since_when_something_holds(text: str, fact: str) -> None:
    assert find(text, "Ana") == [fact]


@pytest.mark.parametrize(
    "text",
    [
        "Acabo de comer.",
        "Acabo de tener una idea.",
        "Acabo de comprar un café.",
        "Acabo de cambiar de opinión.",
        "Acabo de separar la basura.",
        "Llevo dos horas trabajando.",
        "Quizás me acabo de mudar.",
        "¿Te acabas de mudar a Sevilla?",
        "Acabei de chegar em casa.",
        "Acabei de mudar de ideia.",
        "Acabei de trocar de roupa.",
        "Mi sono appena svegliata.",
        "Je viens d'avoir une idée.",
        "Ma sœur vient de manger.",
    ],
)
def test_what_has_just_happened_and_does_not_last_is_no_fact(text: str) -> None:
    assert find(text, "Ana") == []


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("Ich bin gestern nach Mainz gezogen.", "Ana ist am 2026-05-07 nach Mainz gezogen."),
        ("Je pars à Rome lundi.", "Ana part à Rome le 2026-05-11."),
        ("Me mudé a Lima el mes pasado.", "Ana se mudó a Lima en abril de 2026."),
        ("Casei em Recife no ano passado.", "Ana casou em Recife em 2025."),
        (
            "La settimana prossima parto per Oslo.",
            "Nella settimana del 2026-05-11 Ana parte per Oslo.",
        ),
    ],
)
def test_a_relative_time_becomes_a_date(text: str, fact: str) -> None:
    assert find(text, "Ana") == [fact]


@pytest.mark.parametrize(
    "text",
    [
        "Übermorgen fliege ich nach Rom.",
        "Je pars à Rome après-demain.",
        "Viajo a Roma pasado mañana.",
        "Viajo para Roma depois de amanhã.",
        "Dopodomani parto per Roma.",
    ],
)
def test_a_time_that_only_the_conversation_knows_gives_no_fact(text: str) -> None:
    assert find(text, "Ana") == []


@pytest.mark.parametrize(
    "text",
    [
        "Mieszkam w Krakowie i mam dwa koty.",
        "Ik woon in Utrecht en ik heb twee katten.",
        "İzmir'de yaşıyorum ve öğretmenim.",
        "我住在上海，我不吃肉。",
        "私は大阪に住んでいて、猫が二匹います。",
        "Я живу в Казани, у меня две кошки.",
        "أنا أعيش في القاهرة وأعمل ممرضة.",
        "Jag bor i Malmö och har två katter.",
        "Asun Turussa ja minulla on kaksi kissaa.",
        "Bydlím v Brně a mám dva psy.",
        "Locuiesc la Cluj și am două pisici.",
        "मैं पुणे में रहता हूँ।",
    ],
)
def test_other_languages_give_no_fact(text: str) -> None:
    assert find(text, "Ana") == []


def test_english_is_read_by_its_own_rules() -> None:
    assert find("I live in Lisbon and I don't eat meat.", "Ana") == [
        "Ana lives in Lisbon.",
        "Ana does not eat meat.",
    ]


def test_a_turn_takes_less_than_a_millisecond() -> None:
    for row in ROWS:
        find(row["text"])  # the first one of each language compiles its patterns
    start = time.thread_time()
    for row in ROWS:
        find(row["text"])
    assert (time.thread_time() - start) / len(ROWS) < 0.001


@pytest.mark.parametrize(
    "unit",
    [
        "ich bin ",
        "ich mag a, ",
        "je ne ",
        "j'ai ",
        "no me ",
        "me gusta ",
        "eu não ",
        "non mi ",
        "mi ",
    ],
)
def test_hostile_text_is_read_in_linear_time(unit: str) -> None:
    hostile = unit * (1_000_000 // len(unit))
    start = time.thread_time()
    find(f"ich mag {hostile}", "Ana")
    find(hostile.replace(unit * 9, unit * 9 + ". "), "Ana")
    assert time.thread_time() - start < 2


@pytest.mark.parametrize(("text", "fact"), [
    ("Ich habe am Donnerstag, dem 14. Mai einen Zahnarzttermin",
     "Ana hat am Donnerstag, dem 14. Mai 2026 einen Zahnarzttermin."),
    ("J'ai un entretien chez Renault jeudi 14 mai", "Ana a un entretien chez Renault jeudi 14 mai 2026."),
    ("Tengo una entrevista en Correos el jueves 14 de mayo",
     "Ana tiene una entrevista en Correos el jueves 14 de mayo de 2026."),
    ("Tenho uma entrevista nos Correios na quinta-feira, 14 de maio",
     "Ana tem uma entrevista nos Correios na quinta-feira, 14 de maio de 2026."),
    ("Ho un colloquio alle Poste giovedì 14 maggio", "Ana ha un colloquio alle Poste giovedì 14 maggio 2026."),
    ("Ho un colloquio alle Poste giovedì 14 maggio 2026", "Ana ha un colloquio alle Poste giovedì 14 maggio 2026."),
    ("Ho un esame ogni settimana martedì", "Ana ha un esame ogni settimana martedì."),
    ("Ich habe am Montag ein Vorstellungsgespräch", "Ana hat am 2026-05-11 ein Vorstellungsgespräch."),
])  # fmt: skip
def test_habits_and_given_dates_stay_as_they_are(text: str, fact: str) -> None:
    assert find(text, "Ana") == [fact]


@pytest.mark.parametrize("text", [
    "Ich wohne seit 2019 neben dem Kino Gestern", "J'habite rue Hier à Lyon", "Je travaille chez Demain Conseil",
    "Vivo en la calle Ayer", "Trabajo en el Diario Hoy", "Trabalho na Livraria Amanhã", "Lavoro per la rivista Oggi",
])  # fmt: skip
def test_a_name_is_no_date(text: str) -> None:
    assert not any("2026" in fact for fact in find(text, "Ana"))
