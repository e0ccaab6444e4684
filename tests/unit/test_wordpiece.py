"""The ids are the reference's: the `tokenizers` library with the published tokenizer, cut at 256 pieces."""

import random
import sys
import time
from typing import Any

import pytest

from memorist.embedders.local import MINILM
from memorist.providers.onnx import WordPiece, spans, windows_of, words

# fmt: off
GOLDEN = [  # ids between [CLS] 101 and [SEP] 102; 100 is [UNK]
    ("", ""),
    ("Hello, world!", "7592 1010 2088 999"),
    ("I've been to the café in Zürich.", "1045 1005 2310 2042 2000 1996 7668 1999 10204 1012"),
    ("The unaffable antidisestablishmentarianism", "1996 14477 20961 3468 3424 10521 4355 7875 13602 3672 12199 2964"),
    ("Привет, как дела?", "1194 16856 10325 25529 15290 22919 1010 1189 10260 23925 1184 15290 29436 10260 1029"),
    ("Γειά σου, ΣΊΣΥΦΟΣ", "1157 29723 27432 1173 26789 1010 1173 18199 29733 29735 29736 29730 29733"),
    ("東京に住んでいます。", "1879 1755 1668 100 1691 30191 30173 30203 30184 1636"),
    ("我喜欢喝茶", "1855 100 100 100 100"),
    ("안녕하세요 세계", "1463 30006 30021 29992 30010 30025 30005 30006 29997 30009 29999 30013 100"),
    ("สวัสดีครับ", "100"),
    ("مرحبا بالعالم", "1295 17149 29820 29816 25573 1271 25573 23673 29830 25573 23673 22192"),
    ("שלום עולם", "1266 29799 29792 29800 1259 29792 29799 29800"),
    ("नमस्ते दुनिया", "1327 29867 29874 29859 1325 29863 29877 29868 29876"),
    ("হ্যালো বিশ্ব", "1377 29907 29914 29909 29917 29914 1368 29915 29910 29904"),
    ("வணக்கம் உலகம்", "100 100"),
    ("გამარჯობა", "100"),
    ("Բարեւ աշխարհ", "1220 29766 29784 29770 29785 100"),
    ("ሰላም ልዑል", "100 100"),
    ("Xin chào thế giới", "8418 2078 22455 1996 21025 10448"),
    ("İstanbul'da ĞÜŞÖÇ", "9960 1005 4830 12670 10085"),
    ("I ❤️ pizza 🍕👩\u200d👩\u200d👧", "1045 100 10733 100"),
    ("a\u0000b�c\u200bd\u0009e\u00a0f", "5925 2094 1041 1042"),
    ("naïve e\u0301 Å", "15743 1041 1037"),
    ("tea[SEP]coffee [mask]", "5572 102 4157 1031 7308 1033"),
    ("$3.50 + 20% = #1 @home", "1002 1017 1012 2753 1009 2322 1003 1027 1001 1015 1030 2188"),
    ("x\ud7ffy \ue000z \u0378q", "100 1062 100"),
    ("ﬁne ½ ①", "1984 2638 1092 100"),
    ("a" * 101, "100"),
]
# fmt: on

SCRIPTS = [  # first and last code point
    *(
        (0x0000, 0x001F),
        (0x0020, 0x007E),
        (0x0080, 0x024F),
        (0x0300, 0x036F),
        (0x0370, 0x03FF),
        (0x0400, 0x052F),
    ),
    *(
        (0x0530, 0x058F),
        (0x0590, 0x05FF),
        (0x0600, 0x06FF),
        (0x0900, 0x097F),
        (0x0980, 0x09FF),
        (0x0B80, 0x0BFF),
    ),
    *(
        (0x0E00, 0x0E7F),
        (0x10A0, 0x10FF),
        (0x1100, 0x11FF),
        (0x1200, 0x137F),
        (0x1780, 0x17FF),
        (0x1E00, 0x1FFF),
    ),
    *(
        (0x2000, 0x206F),
        (0x2E00, 0x2E7F),
        (0x3040, 0x30FF),
        (0x3400, 0x9FFF),
        (0xA700, 0xA7FF),
        (0xAC00, 0xD7FF),
    ),
    *(
        (0xE000, 0xFAFF),
        (0xFB00, 0xFFFF),
        (0x10000, 0x1FFFF),
        (0x20000, 0x2FFFF),
        (0xE0000, 0x10FFFF),
    ),
]


@pytest.fixture(scope="module")
def tokenizer() -> WordPiece:
    return WordPiece(MINILM / "vocab.txt")


@pytest.mark.parametrize(("text", "ids"), GOLDEN)
def test_ids_are_those_of_the_reference(tokenizer: WordPiece, text: str, ids: str) -> None:
    assert tokenizer.encode(text) == [101, *map(int, ids.split()), 102]


def test_ids_are_those_of_the_reference_for_thousands_of_texts(tokenizer: WordPiece) -> None:
    reference = _reference()
    for text in _texts(3_000):
        assert tokenizer.encode(text) == reference.encode(text).ids, ascii(text)


@pytest.mark.parametrize("window", range(1, 40))
def test_a_text_is_never_cut_inside_a_word_or_a_special_token(window: int) -> None:
    text = (
        "McDonald\u2019s (caf\u00e9)[SEP]\u6771\u4eacTOWER\x1cs\x0bx \u0085z\tx[MASK]y [[CLS]] ]end"
    )
    parts = list(spans(text, window=window))
    assert "".join(parts) == text
    assert [word for part in parts for word in words(part)] == words(text)
    assert sum(part.count(token) for part in parts for token in ("[SEP]", "[MASK]", "[CLS]")) == 3


def test_a_long_text_is_cut_to_what_the_model_reads(tokenizer: WordPiece) -> None:
    ids = tokenizer.encode("tea " * 1_000)
    assert (len(ids), ids[0], ids[-1]) == (256, 101, 102)


def test_pieces_are_counted_without_the_special_ones(tokenizer: WordPiece) -> None:
    assert len(tokenizer.pieces("Hello, world!", limit=9)) == 4
    assert len(tokenizer.pieces("tea " * 1_000, limit=65_536)) == 1_000
    assert len(tokenizer.pieces("tea " * 1_000, limit=300)) == 300


def test_a_text_fits_up_to_254_pieces(tokenizer: WordPiece) -> None:
    assert len(windows_of(tokenizer, "tea " * 254)) == 1
    assert len(windows_of(tokenizer, "tea " * 255)) == 2


def test_a_lone_surrogate_vanishes(tokenizer: WordPiece) -> None:
    assert tokenizer.encode("te\ud800a") == tokenizer.encode("tea")


@pytest.mark.parametrize(
    "part", ["tea ", "x", "\u4e2d", "\x00", "[SEP", "\u0e01", "a\u0301", ",", "[MASK]"]
)
def test_ten_megabytes_are_read_in_linear_time(tokenizer: WordPiece, part: str) -> None:
    text = part * (10_000_000 // len(part))
    start = time.thread_time()
    assert len(tokenizer.encode(text)) <= 256
    assert time.thread_time() - start < 10


def test_the_caches_stay_bounded(tokenizer: WordPiece) -> None:
    for first in range(0, 40_000, 200):
        words = " ".join(f"w{number}" for number in range(first, first + 200))
        tokenizer.pieces(words, limit=65_536)
    assert len(tokenizer._seen) <= 32_768


def _reference() -> Any:
    tokenizers = pytest.importorskip(
        "tokenizers", reason="the reference tokenizer is not installed"
    )
    lines = (MINILM / "vocab.txt").read_text(encoding="utf-8").splitlines()
    model = tokenizers.models.WordPiece(
        {piece: index for index, piece in enumerate(lines)}, unk_token="[UNK]"
    )
    reference = tokenizers.Tokenizer(model)
    reference.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    reference.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    reference.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    frame = [("[CLS]", 101), ("[SEP]", 102)]
    reference.post_processor = tokenizers.processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=frame
    )
    reference.enable_truncation(256)
    return reference


def _texts(count: int) -> list[str]:
    """Words in one to three scripts, some with a special token, some too long to be read whole."""
    dice = random.Random(8)
    return [_text(dice) for _ in range(count)]


def _text(dice: random.Random) -> str:
    scripts = (
        [(0, sys.maxunicode)] if dice.random() < 0.1 else dice.sample(SCRIPTS, dice.randint(1, 3))
    )
    points = (dice.randint(*dice.choice(scripts)) for _ in range(dice.choice([3, 20, 60, 400])))
    text = "".join(chr(point) if not 0xD800 <= point <= 0xDFFF else " " for point in points)
    return text + dice.choice(["", "", " tea", "[SEP]", "x[MASK]y", " [cls]", ", caf\u00e9"])
