"""Whether a newer statement is about another thing than the older one that it seems to replace.

"The wedding band needs a new van, the old one died" has words of a change, and words of "I play bass
in a wedding band". Small networks over the vectors of both know statements like these. See ADR-022.
"""

from __future__ import annotations

from ..embedders.local import MiniLM
from ..embedders.network import Name, compare, load
from ..ports import Vectors
from ..text.cues import read
from ..text.parts import read_aspects
from ..text.subjects import changes_another
from ..types import Memory
from .analyze import Chunk
from .candidates import Batch

UNKNOWN = 0.4  # the usual doubt, if vectors are missing
IN_CONTEXT = 0.25  # the most, if a text has to be read together with something else
LEAST = -1.0  # log odds against a change from which on there is doubt
MOST = 4.0  # … at which it is complete


def estimate_doubt(chunk: Chunk, older: Memory, batch: Batch) -> float:
    """Return from 0 to 1 how unlikely it is that a text replaces an older one.

    The vectors tell less of what has to be read together with something else.
    """
    new, old = _find_vectors(chunk, batch), _find_vectors(older, batch)
    names: tuple[Name, Name] = ("changes_english", "changes")
    odds = []
    for name, one, other in zip(names, new, old, strict=True):
        if one is not None and other is not None:
            odds.append(float(compare(load(name), one, other[None])[0]))
    if not odds:
        return UNKNOWN
    mean = sum(odds) / len(odds)
    most = IN_CONTEXT if _needs_context(chunk, older) else 1.0
    return min(most, max(0.0, (-mean - LEAST) / (MOST - LEAST)))


def _needs_context(chunk: Chunk, older: Memory) -> bool:
    """Return whether a text corrects something in its session, or says in English that the home or job
    changed, on which other things depend.
    """
    said = read(chunk.text)
    is_here = chunk.session is not None and chunk.session == older.labels.session
    if is_here and "corrected" in said.cues:
        return True
    return said.is_english and bool(read_aspects(chunk.text)) and not changes_another(chunk.text)


def _find_vectors(of: Chunk | Memory, batch: Batch) -> list[Vectors | None]:
    """Return the vectors of a text by MiniLM, if it is in English, and by the second model."""
    snapshot = batch.snapshot
    first = of.vector if isinstance(of, Chunk) else None
    if put := batch.puts.get(of.id or ""):
        first = put.vector
    _, second = batch.second.get(of.text, ("", None))
    rows = [batch.rows[of.id]] if of.id in batch.rows else []
    if rows and len(place := snapshot.positions(rows)):
        first = snapshot.vectors(place)[0]
        if snapshot.second is not None and snapshot.has_second[place[0]]:
            second = snapshot.second.rows[place[0]]
    is_known = batch.ctx.index.model == MiniLM.model and read(of.text).is_english
    return [first if is_known else None, second]
