"""The graph of related memories: which are in it, and where they are drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...scoped import ScopedClient
from ...types import Memory

MAX_NODES = 36
ITERATIONS = 120  # of the layout
NODE_DISTANCE = (200.0, 110.0)  # between related memories: horizontal, vertical
MAX_SIZE = (320.0, 720.0)  # of the graph: width, height
Edges = dict[tuple[str, str], float]  # ids of related memories, and how strongly


async def load_graph(memories: ScopedClient, center: str) -> tuple[dict[str, Memory], Edges]:
    """Return related memories by id, around one memory or among the latest, and the edges."""
    if center:
        depth, limit = 2, 6
        found = {center: await memories.get(center)}
    else:
        depth, limit = 1, 3
        latest = await memories.list(limit=MAX_NODES // 2)
        found = {each.id: each for each in latest}
    edges: Edges = {}
    visited = 0
    for _ in range(depth):
        new = list(found)[visited:]
        visited = len(found)
        for id in new:
            for related in await memories.related(id, limit=limit):
                other = related.memory
                if other.id in found or len(found) < MAX_NODES:
                    found[other.id] = other
                    first, second = sorted((id, other.id))
                    edges[first, second] = related.strength
    return found, edges


def compute_layout(
    ids: Sequence[str],
    edges: Sequence[tuple[str, str]],
) -> dict[str, list[float]]:
    """Place related memories close together by a deterministic force-directed layout."""
    index = {id: number for number, id in enumerate(ids)}
    one = [index[first] for first, _ in edges]
    other = [index[second] for _, second in edges]
    angles = -2j * np.pi * np.arange(len(ids)) / len(ids)
    at = 1j * np.exp(angles)  # points on a circle, as complex numbers: x + y i
    ideal = 1.6 / np.sqrt(len(ids))
    for step in range(ITERATIONS):
        offset = at[:, None] - at
        distance = np.maximum(abs(offset), 0.01)
        push = offset * (ideal / distance) ** 2
        force = push.sum(axis=1) - 1.5 * at
        pull = at[other] - at[one]
        pull *= abs(pull) / ideal
        np.add.at(force, one, pull)
        np.add.at(force, other, -pull)
        size = np.maximum(abs(force), 1e-9)
        longest = 0.1 * (1 - step / ITERATIONS)
        at += force / size * np.minimum(size, longest)
    points: np.ndarray = np.stack([at.real, at.imag], axis=1)
    points -= points.min(axis=0)
    extent = np.maximum(points.max(axis=0), 1e-9)
    largest = np.divide(MAX_SIZE, extent)
    points *= np.minimum(np.divide(NODE_DISTANCE, ideal), largest)
    return dict(zip(ids, points.tolist(), strict=True))
