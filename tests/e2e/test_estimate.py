"""The estimate: whether a memory has what is asked for, told from vectors, in any language."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memorist import aio
from memorist.scoped import ScopedClient

STATEMENTS = {
    "de": [
        "Ich wohne in Freiburg und arbeite als Krankenpflegerin.",
        "Mein Mann heißt Tobias, er ist Schreiner.",
        "Meine Tochter Lena ist sechs und geht in die erste Klasse.",
        "Ich bin allergisch gegen Haselnüsse.",
        "Unser Hund heißt Balu, ein Labrador.",
        "Im August fahren wir nach Dänemark.",
        "Dienstags gehe ich zum Chor.",
        "Am 12. Mai habe ich Geburtstag.",
        "Ich fahre mit dem Fahrrad zur Arbeit.",
        "Ich mag keinen Koriander.",
    ],
    "es": [
        "Vivo en Sevilla y trabajo como enfermera.",
        "Mi marido se llama Tobías, es carpintero.",
        "Mi hija Lena tiene seis años y va a primero.",
        "Soy alérgica a las avellanas.",
        "Nuestro perro se llama Balú, un labrador.",
        "En agosto vamos a Dinamarca.",
        "Los martes voy al coro.",
        "Mi cumpleaños es el 12 de mayo.",
        "Voy al trabajo en bicicleta.",
        "No me gusta el cilantro.",
    ],
}


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[dict[str, ScopedClient]]:
    async with aio.open(tmp_path / "memory.db") as memory:
        scopes = {language: memory.scope(language, session="chat") for language in STATEMENTS}
        for language, scope in scopes.items():
            await scope.remember(
                [{"role": "user", "content": text} for text in STATEMENTS[language]]
            )
        yield scopes


@pytest.mark.parametrize(
    ("language", "question", "number"),
    [
        ("de", "Wie heißt mein Hund?", 4),
        ("de", "Wogegen bin ich allergisch?", 3),
        ("de", "Wann habe ich Geburtstag?", 7),
        ("es", "¿Dónde vivo?", 0),
        ("es", "¿Cuándo es mi cumpleaños?", 7),
        ("es", "¿Cómo se llama mi perro?", 4),
    ],
)
async def test_in_another_language_the_answer_comes_first_and_little_else_with_it(
    people: dict[str, ScopedClient], language: str, question: str, number: int
) -> None:
    found = await people[language].recall(question)
    assert found.hits[0].memory.text == STATEMENTS[language][number]
    assert len(found.hits) <= 4


@pytest.mark.parametrize(
    ("language", "question"),
    [("de", "Wie viel verdiene ich?"), ("es", "¿Cuánto costó mi coche?")],
)
async def test_in_another_language_what_was_never_mentioned_has_no_answer(
    people: dict[str, ScopedClient], language: str, question: str
) -> None:
    found = await people[language].recall(question)
    assert found.hits == ()
    assert found.confidence is not None
    assert found.confidence < 0.27


async def test_the_estimate_is_a_part_of_the_score(people: dict[str, ScopedClient]) -> None:
    found = await people["de"].recall("Wogegen bin ich allergisch?", min_confidence=0)
    estimates = {hit.memory.text: hit.parts.get("estimate", 0.0) for hit in found.hits}
    assert all(0 <= estimate <= 0.5 for estimate in estimates.values())
    assert estimates[STATEMENTS["de"][3]] == max(estimates.values()) > 0.2
    for hit in found.hits:
        assert sum(hit.parts.values()) == pytest.approx(hit.score)
    assert "estimate" in found.explain()


async def test_a_pasted_text_has_no_estimate(people: dict[str, ScopedClient]) -> None:
    pasted = "Hier ist ein Text über Hunde und wie sie heißen, den ich gelesen habe. " * 3
    found = await people["de"].recall(pasted, min_confidence=0)
    assert found.hits
    assert not any("estimate" in hit.parts for hit in found.hits)


async def test_a_long_text_about_something_else_has_no_answer(
    people: dict[str, ScopedClient],
) -> None:
    lecture = (
        "Quantenfeldtheorie beschreibt Teilchen als Anregungen von Feldern, und heute ging es um"
        " Renormierung, Feynman-Diagramme und die Frage, warum unendliche Summen endlich sind."
    )
    assert len(lecture) > 160
    assert (await people["de"].recall(lecture)).hits == ()


async def test_a_single_memory_answers_what_it_says_and_nothing_else(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "one.db") as memory:
        scope = memory.scope("fr", session="chat")
        await scope.remember("Ma fille Léa a six ans.")
        assert len((await scope.recall("Quel âge a ma fille ?")).hits) == 1
        assert (await scope.recall("Combien a coûté ma voiture ?")).hits == ()
