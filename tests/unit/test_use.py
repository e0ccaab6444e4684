"""The packaged multilingual model; its ids and numbers are those of the published one."""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memorist.embedders import local
from memorist.embedders.local import MULTILINGUAL, Multilingual, Unigram
from memorist.errors import EmbedderUnavailable
from memorist.ports import Embedder

DOG = "My dog is afraid of thunderstorms."
HUND = "Mein Hund hat Angst vor Gewittern."
INU = "雷が鳴ると、うちの犬は怖がります。"
RECHNUNG = "Die Rechnung ist Ende des Monats fällig."
TEXTS = [DOG, "", "Yes.", "Caroline went to a support group. " * 12, INU, "東京 " * 400]

# fmt: off
GOLDEN = [  # ids between <s> 1 and </s> 2; 0 is <unk>
    ("", "0"),
    (" \t\n", "0"),
    ("Hello, world!", "17486 7 1017 42"),
    ("I've been to the café in Zürich.", "33 11 344 372 15 12 15567 16 54728 8"),
    ("I've been to the cafe\u0301 in Zu\u0308rich.", "33 11 344 372 15 12 15567 16 54728 8"),
    ("Donaudampfschifffahrtsgesellschaft", "82751 234 31392 32905 21718 9 32609"),
    ("Привет, как дела?", "85019 1183 7 861 14549 21"),
    ("東京に住んでいます。", "22870 59091 223 27"),
    ("ｶﾞｷﾞ ㎏", "6 4388 7224 3106"),
    ("한국어를 배워요", "12288 87460 14845 20931 13475"),
    ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "12288"),
    ("مرحبا بالعالم", "21991 33916 668 2459 55036"),
    ("🍕 and ⅷ", "6 0 17 1589 3393"),
    ("a▁b\u200bc\td", "10 254 143 95"),
]
HOSTILE = [
    "", " \n\t", "\ud800", "a\udfffb", "\x00", "\x00a\x00", "🏳️\u200d🌈👩\u200d👧", "שלום \u202eעולם",
    "e" + "\u0301" * 999, "\ufeff", "\U0010ffff", "▁", "▁▁a", "<unk>", "a" * 1_000_000,
]
# fmt: on


@pytest.fixture(scope="module")
def model() -> Iterator[Multilingual]:
    embedder = Multilingual()
    yield embedder
    asyncio.run(embedder.close())


@pytest.fixture(scope="module")
def tokenizer() -> Unigram:
    return Unigram(MULTILINGUAL)


# -- pieces


@pytest.mark.parametrize(("text", "ids"), GOLDEN)
def test_the_pieces_are_those_of_the_published_tokenizer(
    tokenizer: Unigram, text: str, ids: str
) -> None:
    assert tokenizer.encode(text) == [1, *map(int, ids.split()), 2]


def test_special_tokens_in_a_text_are_text(tokenizer: Unigram) -> None:
    assert not {1, 2} & set(tokenizer.encode("a <s> b </s> c")[1:-1])


def test_a_word_seen_before_has_the_same_pieces(tokenizer: Unigram) -> None:
    assert tokenizer.encode("unforgettably") == tokenizer.encode("unforgettably")


@pytest.mark.parametrize("text", ["tea " * 9_999, "ab" * 9_999, "東" * 9_999, "\u0301" * 9_999])
def test_at_most_512_pieces_are_read(tokenizer: Unigram, text: str) -> None:
    ids = tokenizer.encode(text)
    assert len(ids) <= 512
    assert (ids[0], ids[-1]) == (1, 2)


def test_a_text_after_many_blanks_is_read(tokenizer: Unigram) -> None:
    assert tokenizer.encode(" \n" * 9_999 + "tea") == tokenizer.encode("tea")


@pytest.mark.parametrize("char", ["a", " ", "東", "\u0301", "ﷺ", "🍕", "\x00"])
def test_a_megabyte_of_one_character_takes_no_time(tokenizer: Unigram, char: str) -> None:
    start = time.thread_time()
    tokenizer.encode(char * 1_000_000)
    assert time.thread_time() - start < 0.5


# -- vectors


async def test_a_text_becomes_256_numbers_of_unit_length(model: Multilingual) -> None:
    vectors = await model.encode_batch(TEXTS)
    assert (model.model, model.dimensions) == ("use-multilingual-v3-256", 256)
    assert (vectors.shape, vectors.dtype) == ((len(TEXTS), 256), np.float32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


async def test_no_texts_give_no_rows(model: Multilingual) -> None:
    assert (await model.encode_batch([])).shape == (0, 256)


async def test_the_numbers_are_fixed(model: Multilingual) -> None:
    vectors = await model.encode_batch(["I drink green tea every morning.", "東京", ""])
    expected = [
        [0.276, 0.029, 0.117, 0.036, -0.209],
        [0.095, 0.212, -0.096, 0.007, 0.001],
        [0.226, 0.429, -0.331, 0.006, 0.156],
    ]
    assert np.allclose(vectors[:, :5], expected, atol=0.001)


async def test_the_same_meaning_is_near_in_every_language(model: Multilingual) -> None:
    dog, hund, inu, rechnung = await model.encode_batch([DOG, HUND, INU, RECHNUNG])
    assert dog @ hund == pytest.approx(0.791, abs=0.002)
    assert dog @ inu == pytest.approx(0.764, abs=0.002)
    assert dog @ rechnung == pytest.approx(0.030, abs=0.002)
    assert hund @ rechnung == pytest.approx(0.002, abs=0.002)


async def test_a_vector_does_not_depend_on_the_batch(model: Multilingual) -> None:
    together = await model.encode_batch(TEXTS * 20)
    alone = np.concatenate([await model.encode_batch([text]) for text in TEXTS] * 20)
    assert np.abs(together - alone).max() < 2e-6


async def test_the_same_texts_give_the_same_bytes(model: Multilingual) -> None:
    first = await model.encode_batch(TEXTS)
    assert first.tobytes() == (await model.encode_batch(TEXTS)).tobytes()


@pytest.mark.parametrize("text", HOSTILE)
async def test_every_text_has_a_vector(model: Multilingual, text: str) -> None:
    vector = (await model.encode_batch([text]))[0]
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


# -- lifetime


async def test_a_missing_model_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(EmbedderUnavailable, match=r"did not load from .*model\.onnx"):
        await Multilingual(directory=tmp_path).encode_batch([DOG])


async def test_a_damaged_table_is_our_error(tmp_path: Path) -> None:
    shutil.copytree(MULTILINGUAL, tmp_path, dirs_exist_ok=True)
    content = (tmp_path / "table.bin").read_bytes()
    (tmp_path / "table.bin").write_bytes(content[:50_000] + bytes(len(content) - 50_000))
    with pytest.raises(EmbedderUnavailable, match="did not run"):
        await Multilingual(directory=tmp_path).encode_batch([DOG])


async def test_a_closed_embedder_says_so() -> None:
    embedder = Multilingual()
    await embedder.encode_batch([DOG])
    await embedder.close()
    await embedder.close()
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await embedder.encode_batch([DOG])


def test_importing_it_loads_no_runtime() -> None:
    code = "import sys, memorist.embedders.local; sys.exit('onnxruntime' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(local.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == 0


def test_it_has_the_port() -> None:
    embedder: Embedder = Multilingual()
    assert embedder.dimensions == 256
