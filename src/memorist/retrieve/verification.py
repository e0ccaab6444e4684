"""Verification: a small model reads the question together with the best candidates.

Words and vectors tell what a memory is about. Whether it has what is asked for, such as a last name
and not just the person, only a model that reads both texts together can tell. That takes longer than
everything else, so the verifier reads a few candidates, and only if the answer is uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ProviderFailed
from ..ports import PairReader
from ..storage.queries import Reader
from ..text.cues import IS_FOREIGN, is_persons
from ..text.tokens import analyze
from ..types import Memory
from .confidence import CERTAIN, NEXT_PART, judge_verified
from .features import SnapshotSearch
from .score import Candidate

VERIFIED = 5  # candidates that are verified
PASSAGE = 400  # characters of a memory that the verifier reads
TERSE = 200  # characters up to which a turn may need the one before it to be understood
CONTEXT = 120  # characters that the verifier reads of the turn before
MOST_READ = 20_000  # characters in which the passage is looked for


async def verify(
    verifier: PairReader,
    search: SnapshotSearch,
    ranked: Sequence[Candidate],
    sure: float,
    store: Reader,
) -> tuple[float, list[Candidate], str]:
    """Verify the best candidates. Return the confidence, the candidates in their new order, and "ok".

    If the verifier fails, everything stays as it was, and the status says why.
    """
    try:
        odds = await find_odds(verifier, search, ranked, store)
    except ProviderFailed as error:
        return sure, list(ranked), str(error)
    sure, verified = judge_verified(search, ranked, sure, odds)
    return sure, verified, "ok"


async def find_odds(
    verifier: PairReader,
    search: SnapshotSearch,
    ranked: Sequence[Candidate],
    store: Reader,
) -> dict[str, float]:
    """Return the log odds that each of the best candidates has what is asked for, by its id.

    Of a question with several parts, one is enough. Candidates that are not in English are left out.
    Raises ProviderFailed.
    """
    is_foreign = search.snapshot.marked[IS_FOREIGN]
    best = [each for each in ranked[:VERIFIED] if not is_foreign[each.position]]
    texts = await write_out(search, best, store)
    odds = {each.memory.id: -CERTAIN for each in best}
    for part in NEXT_PART.split(search.question.text):
        verdicts = await verifier.read_pairs([(part, text) for text in texts])
        for each, likely in zip(best, verdicts.answers.tolist(), strict=True):
            odds[each.memory.id] = max(odds[each.memory.id], min(CERTAIN, likely))
    return odds


async def write_out(
    search: SnapshotSearch,
    best: Sequence[Candidate],
    store: Reader,
) -> list[str]:
    """Return candidates as the verifier reads them: who said it, and what.

    A short reply, such as "the 14th, at seven", follows the end of the question before it.
    """
    earlier = await read_asked(search, best, store)
    asked = frozenset(analyze(search.question.text))
    texts = []
    for each in best:
        text = f"{name_speaker(search, each.memory)}: {find_passage(each.memory.text, asked)}"
        previous = earlier.get(each.position)
        if previous is not None:
            text = add_context(text, name_speaker(search, previous), previous.text)
        texts.append(text)
    return texts


async def read_asked(
    search: SnapshotSearch,
    best: Sequence[Candidate],
    store: Reader,
) -> dict[int, Memory]:
    """Return the questions right before short turns, by the positions of these."""
    snapshot = search.snapshot
    rows = {}
    for each in best:
        before = int(snapshot.neighbors.before[each.position])
        if len(each.memory.text) <= TERSE and before < snapshot.n:
            rows[each.position] = int(snapshot.row[before])
    if not rows:
        return {}
    found = await store.at_rows(best[0].memory.scope, sorted({*rows.values()}))
    asked = {row: turn for row, turn in found.items() if turn.text.rstrip().endswith("?")}
    return {position: asked[row] for position, row in rows.items() if row in asked}


def name_speaker(search: SnapshotSearch, memory: Memory) -> str:
    """Return who said something. The person whose memory it is has a name only where the question
    names people.
    """
    if is_persons(memory) and not search.question.speakers:
        return "user"
    return memory.speaker or memory.labels.role or "user"


def add_context(text: str, who: str, before: str) -> str:
    """Put the end of the turn before in front of a text.

    >>> add_context("user: the 14th", "assistant", "Noted. Which day?")
    '(assistant: Noted. Which day?) user: the 14th'
    """
    end = before
    if len(before) > CONTEXT:
        end = before[-CONTEXT:].partition(" ")[2]
    return f"({who}: {end}) {text}"


def find_passage(text: str, asked: frozenset[str]) -> str:
    """Return the passage of a long text with the most terms of a question; a short text as it is.

    >>> find_passage("She came at two. " * 40 + "Her name is Ines.", frozenset({"name"}))[-17:]
    'Her name is Ines.'
    """
    if len(text) <= PASSAGE:
        return text
    step = PASSAGE // 2
    starts = range(0, min(len(text), MOST_READ) - step, step)
    passages = [text[start : start + PASSAGE] for start in starts]
    return max(passages, key=lambda passage: len(asked.intersection(analyze(passage))))
