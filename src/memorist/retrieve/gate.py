"""What is too weak, too slight or not asked for is left out, and said so."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..types import Cut, Memory
from . import rank
from .candidates import Candidates
from .profiles import Gate, Profile


def kept(
    profile: Profile, found: Candidates, memories: list[Memory]
) -> tuple[Candidates, list[Memory], list[Cut]]:
    """Those that pass the gate of the profile, in their order, and why the others do not."""
    semantic = rank.has_semantic(found)
    gate = (
        profile.gate
        if semantic or profile.gate_without_semantic is None
        else profile.gate_without_semantic
    )
    ok = passes(gate, found)
    if gate.grows and found.is_chance:
        ok[:] = False
    if not ok.any() and not gate.strict:
        ok[:] = True
    reasons = [
        _reason(profile, gate, memory, bool(strong))
        for memory, strong in zip(memories, ok, strict=True)
    ]
    order = [i for i, reason in enumerate(reasons) if not reason]
    cut = [
        Cut(id=memories[i].id, reason=why, score=float(found.score[i]))
        for i, why in enumerate(reasons)
        if why
    ]
    return found.taken(np.array(order, np.intp)), [memories[i] for i in order], cut


def _reason(profile: Profile, gate: Gate, memory: Memory, strong: bool) -> str:
    if not strong:
        return "its score is too low to count as evidence"
    if memory.importance < gate.importance_min and not memory.pinned:
        return f"its importance is below {gate.importance_min}"
    if memory.procedural_form == "workflow" and not profile.workflows:
        return "how-to memories have to be asked for"
    return ""


def passes(gate: Gate, found: Candidates) -> NDArray[np.bool_]:
    """Which candidates are strong enough."""
    ok = _any(gate.enough, found)
    if gate.strong is not None:
        ok |= (found.score >= gate.strong) & (_any(gate.signal, found) if gate.signal else True)
    if not gate.enough and gate.strong is None:
        ok = np.ones(len(found.positions), np.bool_)
    if gate.floor is not None:
        ok &= found.score >= gate.floor
    if gate.share_of_best is not None:
        ok &= found.score >= gate.share_of_best * found.score.max(initial=0.0)
    return ok


def _any(least: Mapping[str, float], found: Candidates) -> NDArray[np.bool_]:
    ok = np.zeros(len(found.positions), np.bool_)
    for name, enough in least.items():
        ok |= found.features[name] >= enough
    return ok
