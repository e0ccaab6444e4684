"""The language of a text, by its script, function words and letters."""

import time

import pytest

from memorist.text import tokens
from memorist.text.tokens import detect_language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("I will also die in an old war, man", "english"),
        ("Take care, bye!", "english"),
        ("im so tired, u know", "english"),
        ("No me gusta la leche.", "spanish"),
        ("Come si chiama il mio gatto?", "italian"),
        ("Was heißt das auf Englisch?", "german"),
        ("Waar ligt de sleutel van het hok?", "dutch"),
        ("Gdzie jest mój klucz?", "polish"),
        ("Onde está a chave do meu carro?", "portuguese"),
        ("C'est quand la fête de mon frère ?", "french"),
        ("Hvor er nøglen til min cykel?", "danish"),
        ("Anahtarım nerede ve bu kimin?", "turkish"),
        ("Где мой ключ?", "russian"),
        ("我的钥匙在哪里？", "cjk"),
        ("鍵はどこですか", "cjk"),
        ("أين مفتاحي؟", "arabic"),
        ("Chìa khóa của tôi ở đâu?", "other"),
    ],
)
def test_a_language_is_told_by_its_function_words_letters_or_script(
    text: str, language: str
) -> None:
    assert detect_language(tokens.words(text)) == language


def test_without_a_sign_the_default_is_taken() -> None:
    assert detect_language(["rubber", "duck"], "german") == "german"
    assert detect_language([], "german") == "german"
    assert detect_language(tokens.words("The duck is yours"), "german") == "english"


def test_telling_reads_the_beginning_of_a_long_text() -> None:
    text = "Die Ente gehört mir. " + "the " * 300_000
    words = tokens.words(text)
    start = time.perf_counter()
    detect_language(words)
    assert time.perf_counter() - start < 0.5
