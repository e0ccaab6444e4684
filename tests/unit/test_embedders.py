"""The packaged model, the hashing embedder and the cache around them."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import numpy as np
import pytest

from memorist import embedders
from memorist.embedders import Cached, Hashing, local
from memorist.embedders.local import MINILM, MiniLM
from memorist.errors import EmbedderUnavailable
from memorist.ports import Embedder, Vectors
from memorist.providers.onnx import WordPiece, windows_of

TEA = "I drink green tea every morning."
TEXTS = [
    TEA,
    "",
    "Yes.",
    "Caroline went to a support group. " * 12,
    "東京",
    "We moved in 2019. " * 60,
]


@pytest.fixture(scope="module")
def model() -> Iterator[MiniLM]:
    embedder = MiniLM()
    yield embedder
    asyncio.run(embedder.close())


class Counting:
    """The hashing embedder, writing down what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self._hashing = Hashing()

    @property
    def model(self) -> str:
        return self._hashing.model

    @property
    def dimensions(self) -> int:
        return self._hashing.dimensions

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        return await self._hashing.encode_batch(texts)

    async def close(self) -> None:
        self.calls.append(["closed"])


# -- the packaged model


@pytest.mark.spec("MIL-21", "MIL-22", "MLS-16", "MLS-17")
async def test_a_text_becomes_384_numbers_of_unit_length(model: MiniLM) -> None:
    vectors = await model.encode_batch(TEXTS)
    assert (model.model, model.dimensions) == ("all-MiniLM-L6-v2", 384)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


async def test_no_texts_give_no_rows(model: MiniLM) -> None:
    assert (await model.encode_batch([])).shape == (0, 384)
    assert await model.encode_tokens([]) == []


async def test_what_means_the_same_is_near(model: MiniLM) -> None:
    like, enjoy, market = await model.encode_batch(
        ["I like tea", "I enjoy green tea", "The stock market fell"]
    )
    assert like @ enjoy == pytest.approx(0.793, abs=0.002)
    assert like @ market == pytest.approx(-0.013, abs=0.002)


async def test_a_vector_does_not_depend_on_the_batch(model: MiniLM) -> None:
    together = await model.encode_batch(TEXTS)
    alone = [(await model.encode_batch([text]))[0] for text in TEXTS]
    assert (together * np.stack(alone)).sum(axis=1).min() > 0.99999


async def test_the_same_texts_give_the_same_bytes(model: MiniLM) -> None:
    first = await model.encode_batch(TEXTS)
    assert first.tobytes() == (await model.encode_batch(TEXTS)).tobytes()


async def test_what_is_said_late_in_a_long_text_counts(model: MiniLM) -> None:
    filler = "We talked about the weather and the garden. " * 200
    told = filler + "My sister is a dentist in Oslo. " * 40
    without, with_sister, question = await model.encode_batch(
        [filler, told, "Who is a dentist in Oslo?"]
    )
    assert with_sister @ question > without @ question + 0.05


@pytest.mark.parametrize(("pieces", "weight"), [(0, 1), (1, 1), (2, 2), (254, 254)])
def test_a_part_of_a_text_weighs_as_much_as_it_has_pieces(pieces: int, weight: int) -> None:
    window = local.Window(text=0, part=0, ids=[101, *[7] * pieces, 102])
    assert local.count_pieces(window) == weight


async def test_a_very_long_text_is_read_in_a_bounded_number_of_places(model: MiniLM) -> None:
    vectors = await model.encode_batch(["tea and cake " * 100_000])
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("words", "lengths"),
    [(0, [2]), (254, [256]), (255, [130, 129]), (600, [202] * 3), (5000, [256] * 16)],
)
def test_a_text_is_read_in_at_most_16_equal_windows_of_256_pieces(
    words: int, lengths: list[int]
) -> None:
    windows = windows_of(WordPiece(MINILM / "vocab.txt"), "tea " * words)
    assert [len(window) for window in windows] == lengths  # with [CLS] and [SEP]


async def test_token_states_have_one_unit_row_a_piece(model: MiniLM) -> None:
    greeting, blank, long = await model.encode_tokens(["Hello, world!", "", "tea " * 300])
    assert (greeting.shape, blank.shape, long.shape) == ((4, 384), (0, 384), (300, 384))
    assert np.allclose(np.linalg.norm(greeting, axis=1), 1, atol=1e-5)


async def test_token_states_do_not_depend_on_the_batch(model: MiniLM) -> None:
    together = await model.encode_tokens(TEXTS)
    alone = (await model.encode_tokens([TEA]))[0]
    assert np.abs(together[0] - alone).max() < 1e-4


async def test_a_missing_model_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(EmbedderUnavailable, match=r"model\.onnx"):
        await MiniLM(directory=tmp_path).encode_batch([TEA])


async def test_a_damaged_model_is_our_error(tmp_path: Path) -> None:
    shutil.copy(MINILM / "vocab.txt", tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(EmbedderUnavailable):
        await MiniLM(directory=tmp_path).encode_batch([TEA])


async def test_a_closed_embedder_says_so() -> None:
    embedder = MiniLM()
    await embedder.close()
    await embedder.close()
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await embedder.encode_batch([TEA])


def test_threads_with_their_own_event_loops_may_share_it(model: MiniLM) -> None:
    expected = asyncio.run(model.encode_batch(TEXTS))
    with ThreadPoolExecutor(max_workers=4) as threads:
        results = list(threads.map(lambda _: asyncio.run(model.encode_batch(TEXTS)), range(8)))
    assert all(np.allclose(result, expected, atol=1e-5) for result in results)


def test_importing_it_loads_no_runtime() -> None:
    code = "import sys, memorist.embedders.local; sys.exit('onnxruntime' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(local.__file__).parents[2])}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )


# -- hashing


@pytest.mark.parametrize("text", [TEA, "", " ", "\ud800", "\x00", "🍕"])
async def test_hashing_gives_every_text_a_unit_vector(text: str) -> None:
    vectors = await Hashing(64).encode_batch([text])
    assert vectors.shape == (1, 64)
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-5)


async def test_hashing_is_the_same_everywhere_and_sees_spelling() -> None:
    tea, teas, stocks = await Hashing().encode_batch(["green tea", "green teas", "falling stocks"])
    assert Hashing().model == "hashing-384"
    assert np.flatnonzero(tea)[:3].tolist() == [11, 117, 125]
    assert tea @ teas > 0.5 > 0.2 > tea @ stocks


# -- the cache


@pytest.mark.spec("MIL-25", "MLS-19")
async def test_a_text_seen_before_does_not_reach_the_model(tmp_path: Path) -> None:
    counting = Counting()
    cache = Cached(counting, tmp_path)
    first = await cache.encode_batch([TEA, "Yes.", TEA])
    second = await cache.encode_batch(["Yes.", TEA])
    assert counting.calls == [[TEA, "Yes."]]
    assert (first[[1, 0]] == second).all()
    assert (first[0] == first[2]).all()
    await cache.close()


@pytest.mark.spec("MIL-25", "MLS-19")
async def test_a_text_of_an_earlier_run_is_read_from_its_file(tmp_path: Path) -> None:
    expected = await _filled(tmp_path, [TEA])
    counting = Counting()
    cache = Cached(counting, tmp_path)
    assert (await cache.encode_batch([TEA]) == expected).all()
    assert counting.calls == []
    await cache.close()


@pytest.mark.spec("MLS-18")
async def test_new_texts_reach_the_model_once_and_together(tmp_path: Path) -> None:
    counting = Counting()
    cache = Cached(counting, tmp_path)
    await cache.encode_batch([TEA])
    await cache.encode_batch(["a", TEA, "b", "a"])
    assert counting.calls == [[TEA], ["a", "b"]]
    await cache.close()


async def test_vectors_are_not_written_while_too_many_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedders, "_MOST_WAITING", 2)
    cache = Cached(Hashing(), tmp_path)
    await cache.encode_batch(["a", "b", "c"])  # more than may wait
    await cache.encode_batch(["d", "e"])
    await cache.encode_batch(["f"])  # the thread has written the two before it looked for this one
    await cache.close()
    assert await _missing(tmp_path, list("abcdef")) == ["a", "b", "c"]


@pytest.mark.parametrize("damage", ["empty", "cut", "overwritten", "text", "foreign"])
async def test_a_damaged_or_foreign_file_is_replaced(tmp_path: Path, damage: str) -> None:
    expected = await _filled(tmp_path, [TEA])
    _damage(tmp_path / embedders.FILE, damage)
    for calls in ([[TEA], ["closed"]], [["closed"]]):  # made again, and then kept again
        counting = Counting()
        cache = Cached(counting, tmp_path)
        assert (await cache.encode_batch([TEA]) == expected).all()
        await cache.close()
        assert counting.calls == calls


async def test_one_flipped_bit_is_noticed(tmp_path: Path) -> None:
    expected = await _filled(tmp_path, [TEA])
    path = tmp_path / embedders.FILE
    content = bytearray(path.read_bytes())
    content[content.index(expected[0].tobytes()) + 700] ^= 1
    path.write_bytes(content)
    assert (await _filled(tmp_path, [TEA]) == expected).all()


@pytest.mark.parametrize("content", ["x'010203'", "'words'", "7"])
async def test_a_row_that_holds_no_vector_is_made_again(tmp_path: Path, content: str) -> None:
    expected = await _filled(tmp_path, [TEA])
    file = apsw.Connection(str(tmp_path / embedders.FILE))
    file.execute(f"UPDATE vectors SET vector = {content}")
    file.close()
    assert (await _filled(tmp_path, [TEA]) == expected).all()


async def test_a_directory_that_cannot_be_used_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cached(Hashing(), tmp_path / "file")
    assert (await cache.encode_batch(TEXTS) == await Hashing().encode_batch(TEXTS)).all()
    await cache.close()


async def test_the_file_stays_below_its_limit_and_the_oldest_used_go_first(tmp_path: Path) -> None:
    await _filled(tmp_path, ["old", "older but used"], limit_bytes=500_000)
    for start in range(0, 800, 80):
        await _filled(tmp_path, [f"text {start + i}" for i in range(80)], limit_bytes=500_000)
        await _filled(tmp_path, ["older but used"], limit_bytes=500_000)
    assert 300_000 < sum(file.stat().st_size for file in _files(tmp_path)) <= 500_000
    assert await _missing(tmp_path, ["old", "older but used", "text 799"]) == ["old"]


async def test_the_file_stays_below_its_limit_while_it_is_open(tmp_path: Path) -> None:
    cache = Cached(Hashing(), tmp_path, limit_bytes=500_000)
    for start in range(0, 800, 80):
        await cache.encode_batch([f"text {start + i}" for i in range(80)])
    await cache.close()
    assert 300_000 < sum(file.stat().st_size for file in _files(tmp_path)) <= 500_000


async def test_a_forgotten_text_leaves_no_vector(tmp_path: Path) -> None:
    counting = Counting()
    cache = Cached(counting, tmp_path)
    vector = (await cache.encode_batch([TEA, "something else"]))[0].tobytes()
    await cache.forget([TEA, "never seen"])
    assert all(vector not in file.read_bytes() for file in _files(tmp_path))
    await cache.encode_batch([TEA])
    assert counting.calls == [[TEA, "something else"], [TEA]]
    await cache.close()


async def test_an_answer_may_be_changed_without_changing_the_cache(tmp_path: Path) -> None:
    cache = Cached(Hashing(), tmp_path)
    (await cache.encode_batch([TEA]))[:] = 0
    assert np.linalg.norm(await cache.encode_batch([TEA])) == pytest.approx(1, abs=1e-5)
    await cache.close()


async def test_vectors_of_different_models_do_not_meet(tmp_path: Path) -> None:
    await _filled(tmp_path, [TEA])
    cache = Cached(Hashing(64), tmp_path)
    assert (await cache.encode_batch([TEA])).shape == (1, 64)
    await cache.close()


def test_threads_with_their_own_event_loops_may_share_a_cache(tmp_path: Path) -> None:
    cache = Cached(Hashing(), tmp_path)
    texts = [f"text {number}" for number in range(200)]
    expected = asyncio.run(Hashing().encode_batch(texts))
    with ThreadPoolExecutor(max_workers=4) as threads:
        results = list(threads.map(lambda _: asyncio.run(cache.encode_batch(texts)), range(8)))
    assert all((result == expected).all() for result in results)
    asyncio.run(cache.close())


async def test_closing_writes_what_waits_and_closes_the_embedder(tmp_path: Path) -> None:
    counting = Counting()
    cache = Cached(counting, tmp_path)
    await cache.encode_batch([f"text {number}" for number in range(300)])
    await cache.close()
    assert counting.calls[-1] == ["closed"]
    assert await _missing(tmp_path, [f"text {number}" for number in range(301)]) == ["text 300"]


@pytest.mark.parametrize("embedder", [MiniLM(), Hashing(), Counting()])
def test_every_embedder_has_the_port(embedder: Embedder) -> None:
    assert embedder.dimensions == 384
    assert embedder.model


async def _filled(
    directory: Path, texts: list[str], limit_bytes: int = embedders.LIMIT_BYTES
) -> Vectors:
    cache = Cached(Hashing(), directory, limit_bytes=limit_bytes)
    vectors = await cache.encode_batch(texts)
    await cache.close()
    return vectors


async def _missing(directory: Path, texts: list[str]) -> list[str]:
    """Those of the texts whose vectors are not kept."""
    counting = Counting()
    cache = Cached(counting, directory)
    await cache.encode_batch(texts)
    await cache.close()
    return [text for call in counting.calls[:-1] for text in call]


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _damage(path: Path, how: str) -> None:
    sound = path.read_bytes()
    if how == "foreign":
        path.unlink()
        other = apsw.Connection(str(path))
        other.execute("CREATE TABLE vectors (something TEXT)")
        other.close()
    else:
        damaged = {"empty": b"", "cut": sound[: len(sound) // 2], "text": b"not a database " * 500}
        path.write_bytes(damaged.get(how, sound[:100] + bytes(len(sound) - 100)))
