"""Models on this machine that read two texts together: the packaged verifier, token states of MiniLM,
or a cross-encoder that the user provides.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import BadModelAnswer, ProviderFailed
from ..ports import Closable, Vectors, Verdicts
from ..providers import WorkerThread, onnx

LONGEST = 512  # pieces of a pair, the special ones included
_BATCH_TOKENS = 2048  # padding included
VERIFIER = Path(__file__).parent / "verifier_model"
VERIFIER_LONGEST = 112  # pieces of a pair that the packaged verifier reads
VERIFIER_TOKENS = 128  # of its batches, which run side by side
# The word table in MiniLM's model.onnx, which the verifier shares: where it begins, and its size.
WORDS_AT = 14_067
WORDS = (30_522, 384)
PairBatch = tuple[list[onnx.EncodedPair], onnx.Inputs]


class TokenEncoder(Closable, Protocol):
    """A model that returns the states of a text's pieces, as `MiniLM` does."""

    async def encode_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the unit-length states of each text's pieces, one row a piece.

        Raises EmbedderUnavailable.
        """
        ...


class MaxSim:
    """Late interaction: compares the pieces of the question with those of a text.

    The model may be shared with the embedder; closing it twice is fine.
    """

    name = "maxsim"

    def __init__(self, model: TokenEncoder) -> None:
        self._model = model

    async def score(
        self,
        question: str,
        texts: Sequence[str],
    ) -> NDArray[np.float32]:
        """Return how well each text answers, in [0, 1] and in order. Raises EmbedderUnavailable."""
        asked, *read = await self._model.encode_tokens([question, *texts])

        def compare() -> list[float]:
            return [likeness(asked, text) for text in read]

        scores = await asyncio.to_thread(compare)
        return np.array(scores, np.float32)

    async def close(self) -> None:
        await self._model.close()


def likeness(asked: Vectors, text: Vectors) -> float:
    """Return the mean over the question's pieces of the best cosine with a piece of the text.

    >>> likeness(np.eye(2, dtype=np.float32), np.array([[1.0, 0.0]], np.float32))
    0.5
    """
    if not len(asked) or not len(text):
        return 0.0
    cosines = asked @ text.T
    mean = cosines.max(axis=1).mean()
    return float(np.clip(mean, 0.0, 1.0))


class VerifierModel(NamedTuple):
    """All parts of the packaged verifier."""

    tokenizer: onnx.WordPiece
    words: NDArray[np.float16]  # one row a piece
    session: Any


class Verifier(onnx.LocalModel[VerifierModel]):
    """The packaged verifier, a PairReader: a small cross-encoder with one head for each judgment.

    It was trained on the examples in `bench/own`. Vocabulary and word table are MiniLM's, whose
    folder is given. It reads English. Safe to share between threads and event loops.
    """

    name = "verifier"

    def __init__(self, minilm: Path, *, folder: Path = VERIFIER) -> None:
        def load(folder: Path) -> VerifierModel:
            tokenizer = onnx.WordPiece(minilm / "vocab.txt")
            words = np.memmap(minilm / "model.onnx", "<f2", "r", WORDS_AT, WORDS)
            return VerifierModel(tokenizer, words, onnx.load_session(folder, threads=1))

        super().__init__(self.name, folder, load, ProviderFailed)

    async def read_pairs(self, pairs: Sequence[tuple[str, str]]) -> Verdicts:
        """Return what it says of each pair, in order. Raises ProviderFailed."""

        def run(loaded: VerifierModel, batch: PairBatch) -> NDArray[np.float32]:
            _, inputs = batch
            ids = inputs.pop("input_ids")
            inputs["words"] = loaded.words[ids].astype(np.float32)
            found: NDArray[np.float32] = loaded.session.run(["odds"], inputs)[0]
            return found

        encode = partial(
            onnx.batch_pairs, pairs=pairs, longest=VERIFIER_LONGEST, tokens=VERIFIER_TOKENS
        )
        odds = np.zeros((len(pairs), len(Verdicts._fields)), np.float32)
        if len(pairs):
            inferred = self.infer(lambda loaded: encode(loaded.tokenizer), run)
            async for (encoded, _), found in inferred:
                odds[[pair.place for pair in encoded]] = found
        # Rounded, they are the same alone and among others.
        return Verdicts(*np.round(odds, 2).T)


class CrossEncoder:
    """An ONNX cross-encoder as a Reranker: a folder with `model.onnx` and `vocab.txt`.

    Any BERT-like model with one logit works, such as ms-marco-MiniLM-L-6-v2. It is loaded on first
    use and runs in its own thread, one batch at a time. Safe to share between event loops.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        longest: int = LONGEST,
    ) -> None:
        self._folder = Path(folder)
        self._longest = longest
        self.name = f"cross-encoder:{self._folder.name}"
        closed = ProviderFailed(f"The cross-encoder {self.name} is closed")
        self._thread = WorkerThread("cross-encoder", closed)
        self._loaded: tuple[onnx.WordPiece, Any] | None = None  # used in that thread only

    async def score(
        self,
        question: str,
        texts: Sequence[str],
    ) -> NDArray[np.float32]:
        """Return how well each text answers, in [0, 1] and in order. Raises ProviderFailed."""
        scores = np.zeros(len(texts), np.float32)
        for pairs, inputs in await self._thread.run(self.encode, question, texts):
            logits = await self._thread.run(self.infer, inputs, len(pairs))
            places = [pair.place for pair in pairs]
            scores[places] = squash(logits)
        return scores

    async def close(self) -> None:
        """Wait for running work and release the model. Closing twice is fine."""
        await self._thread.close()
        self._loaded = None

    def encode(
        self,
        question: str,
        texts: Sequence[str],
    ) -> list[PairBatch]:
        """Return the question with each text as the model reads them, in batches."""
        tokenizer, _ = self._load()
        pairs = [(question, text) for text in texts]
        return onnx.batch_pairs(tokenizer, pairs, self._longest, tokens=_BATCH_TOKENS)

    def infer(self, given: onnx.Inputs, count: int) -> NDArray[np.float64]:
        """Return one number for each of so many pairs. Raises ProviderFailed."""
        _, session = self._load()
        inputs = {}
        for each in session.get_inputs():
            if each.name in given:
                inputs[each.name] = given[each.name]
        with self._translate_errors():
            output, *_ = session.run(None, inputs)
            found = np.asarray(output, np.float64)
        if found.size != count or not np.isfinite(found).all():
            raise BadModelAnswer(
                f"The cross-encoder in {self._folder} has to return one number for each pair"
            )
        return found.reshape(-1)

    def _load(self) -> tuple[onnx.WordPiece, Any]:
        if self._loaded is None:
            with self._translate_errors():
                self._loaded = onnx.load_model(self._folder)
        return self._loaded

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn any error of the runtime into ours; they have no common base class."""
        try:
            yield
        except Exception as error:
            way_out = "it needs a model.onnx and a vocab.txt; or set `reranker` to none or maxsim"
            raise ProviderFailed(
                f"The cross-encoder in {self._folder} did not work: {error}. {way_out}"
            ) from error


def squash(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map numbers to 0 … 1 by the logistic function, without overflow.

    >>> squash(np.array([0.0, 800.0, -800.0])).tolist()
    [0.5, 1.0, 0.0]
    """
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)))
