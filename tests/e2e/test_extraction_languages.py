"""A chat in German, French, Spanish, Portuguese or Italian leaves facts in its own language."""

from __future__ import annotations

from pathlib import Path

import pytest

import memorist

EXTRACTED = memorist.Filter(tags=("extracted",))
CHATS = {
    "german": (
        [
            "Moin! Ich wohne in Kiel und bin Lehrerin.",
            "Ich esse kein Fleisch mehr.",
            "Was kochst du?",
        ],
        [
            "Die Nutzerin ist Lehrerin.",
            "Der Nutzer isst kein Fleisch mehr.",
            "Der Nutzer wohnt in Kiel.",
        ],
    ),
    "french": (
        ["J'habite à Brest avec ma sœur.", "Mon chien s'appelle Pacha.", "Tu aimes les chiens ?"],
        [
            "L'utilisateur habite à Brest avec sa sœur.",
            "Le chien de l'utilisateur s'appelle Pacha.",
        ],
    ),
    "spanish": (
        ["Me encanta el té verde.", "Mi hermana Eva vive en Quito.", "jaja qué bueno"],
        ["Al usuario le encanta el té verde.", "Eva, la hermana del usuario, vive en Quito."],
    ),
    "portuguese": (
        ["Sou alérgico a camarão.", "Larguei meu emprego no banco.", "Talvez eu mude de cidade."],
        ["O usuário largou seu emprego no banco.", "O usuário é alérgico a camarão."],
    ),
    "italian": (
        ["Il 3 settembre parto per Lisbona.", "Abbiamo deciso di vendere la casa.", "Ti va?"],
        [
            "Il 3 settembre l'utente parte per Lisbona.",
            "Il gruppo dell'utente ha deciso di vendere la casa.",
        ],
    ),
}


def extract(place: Path, told: list[str]) -> list[memorist.Memory]:
    with memorist.open(place, embedder="hashing", extract="rules") as memory:
        ana = memory.scope(user="ana", session="monday")
        ana.remember([{"role": "user", "content": text, "at": "2026-05-08"} for text in told])
        memory.run_jobs(only=["extract"])
        return sorted(ana.list(EXTRACTED), key=lambda fact: fact.text)


MOVED = {
    "german": ("Ich bin gerade nach Jena gezogen!", "Der Nutzer ist gerade nach Jena gezogen."),
    "french": ("Je viens d'emménager à Dijon !", "L'utilisateur vient d'emménager à Dijon."),
    "spanish": ("¡Me acabo de mudar a Gijón!", "El usuario se acaba de mudar a Gijón."),
    "portuguese": ("Acabei de me mudar para Évora!", "O usuário acabou de se mudar para Évora."),
    "italian": ("Mi sono appena trasferito a Pisa!", "L'utente si è appena trasferito a Pisa."),
}


@pytest.mark.parametrize("language", MOVED)
def test_a_recent_move_is_a_fact_in_each_language(tmp_path: Path, language: str) -> None:
    told, expected = MOVED[language]
    assert [fact.text for fact in extract(tmp_path / "m.db", [told])] == [expected]


@pytest.mark.parametrize("language", CHATS)
def test_a_chat_leaves_facts_in_its_own_language(tmp_path: Path, language: str) -> None:
    told, expected = CHATS[language]
    facts = extract(tmp_path / "m.db", told)
    assert sorted(fact.text for fact in facts) == sorted(expected)
    assert all(fact.evidence_text in " ".join(told) for fact in facts)
    assert all(len(fact.evidence_ids) == 1 for fact in facts)


def test_a_chat_in_another_language_leaves_none(tmp_path: Path) -> None:
    told = [
        "Mieszkam w Krakowie.",
        "Ik ben verpleegkundige in Gent.",
        "我对花生过敏。",
        "Kedim var.",
    ]
    assert extract(tmp_path / "m.db", told) == []
