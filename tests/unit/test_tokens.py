"""Token analysis: the same terms on every machine, in linear time."""

import time
from datetime import datetime

import pytest

from memorist.text import tokens


def test_words_keep_stop_words_and_numbers_in_lower_case() -> None:
    assert tokens.words("The GPA is 5.6, isn’t it?") == ["the", "gpa", "is", "5.6", "isn't", "it"]


def test_terms_are_stems_without_stop_words() -> None:
    assert tokens.analyze("She was hiking with her dogs") == tokens.analyze("hike dog")


def test_a_possessive_is_the_same_term_as_the_name() -> None:
    assert tokens.analyze("Caroline's") == tokens.analyze("Caroline")


def test_accents_and_composition_do_not_matter() -> None:
    assert tokens.analyze("cafe\u0301") == tokens.analyze("café") == tokens.analyze("CAFE")


def test_thousands_may_be_grouped() -> None:
    assert tokens.analyze("2,000") == tokens.analyze("2000")


def test_underscores_separate_words() -> None:
    assert tokens.words("snake_case") == ["snake", "case"]


@pytest.mark.parametrize(
    ("text", "other"),
    [("собаки", "собака"), ("कुत्ते", "कुत्ता"), ("γάτες", "γάτα"), ("gatos", "gato")],
    ids=["russian", "hindi", "greek", "spanish"],
)
def test_each_script_has_its_stemmer(text: str, other: str) -> None:
    assert tokens.analyze(text, "spanish") == tokens.analyze(other, "spanish")


def test_han_is_cut_in_pairs_and_a_single_character_stands_alone() -> None:
    assert tokens.words("我喜欢茶") == ["我喜", "喜欢", "欢茶"]
    assert tokens.words("茶 tea") == ["茶", "tea"]


def test_thai_is_cut_between_letters_and_not_between_a_letter_and_its_marks() -> None:
    assert tokens.words("สวัสดี") == ["สวั", "วัส", "สดี"]


def test_hindi_words_stay_whole() -> None:
    assert tokens.words("नमस्ते दुनिया") == ["नमस्ते", "दुनिया"]


def test_stop_words_are_those_of_the_language() -> None:
    assert tokens.analyze("die Katze", "german") == ["katz"]
    assert tokens.analyze("the die is cast") == ["die", "cast"]


@pytest.mark.parametrize(
    ("told", "asked", "shared"),
    [
        ("Meine Schwestern wohnen in Köln.", "Wo wohnt meine Schwester?", ["schwest"]),
        ("Mes voisins ont adopté l'oiseau.", "Où est mon oiseau ?", ["oiseau"]),
        ("Ho comprato dell'olio a Lucca.", "Dove compro l'olio?", ["compr", "oli"]),
        ("Nunca bebo leche por la noche.", "¿Qué bebí anoche?", ["beb"]),
        ("Мои собаки любят снег.", "Какая у меня собака?", ["собак"]),
        (
            "Mijn buurman heeft twee katten.",
            "Hoe heet de kat van mijn buurman?",
            ["kat", "buurman"],
        ),
    ],
    ids=["german", "french", "italian", "spanish", "russian", "dutch"],
)
def test_a_text_and_a_question_are_reduced_by_their_own_language(
    told: str, asked: str, shared: list[str]
) -> None:
    known = tokens.analyze_spoken(told)
    assert [term for term in tokens.analyze_spoken(asked) if term in known] == shared


def test_term_ids_never_change() -> None:
    assert [tokens.term_id(term) for term in ("tea", "茶", "собак")] == [
        2391201714,
        3984890356,
        574570339,
    ]


def test_what_is_indexed_names_the_day_and_the_speaker() -> None:
    terms = tokens.analyze(tokens.sparse_text("I ran.", "Mel", datetime(2023, 5, 8)))
    assert terms == ["8", "may", "2023", "mel", "ran"]


def test_a_role_is_not_indexed() -> None:
    assert tokens.sparse_text("I ran.", "assistant") == "I ran."


def test_token_counts_are_at_least_one_and_grow_with_the_script() -> None:
    assert tokens.count_tokens("a") == 1
    assert tokens.count_tokens("word" * 10) == 11
    assert tokens.count_tokens("茶" * 10) == 11
    assert tokens.count_tokens("чай" * 10) == 17


@pytest.mark.parametrize(
    "hostile",
    [
        "\u0301\u0316" * 500_000,
        "a" * 1_000_000,
        "a'" * 500_000,
        "1." * 500_000 + "a",
        "é\u0301\u0316" * 300_000,
    ],
    ids=["marks", "one word", "apostrophes", "number", "marked letters"],
)
def test_hostile_text_takes_linear_time(hostile: str) -> None:
    start = time.thread_time()
    tokens.analyze(hostile)
    assert time.thread_time() - start < 5
