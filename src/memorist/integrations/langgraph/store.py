"""LangGraph's store: items of agents, under namespaces and keys of their own.

A value is JSON and is returned as it was put. It is found by its key, its content or its meaning.
"""

from __future__ import annotations

import heapq
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
)

from ...embedders import encode
from ...errors import InvalidInput
from ...scoped import ScopedClient
from ...storage import documents
from ...sync import Blocking, BlockingScope
from ...text import normalize
from .bridge import Bridge, blocking
from .saver import USER

_MOST_MINUTES = 60 * 24 * 36_500
_MOST_BYTES = 1_000
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class MemoristStore(BaseStore):
    """Stores items in one scope, searched with the memory's own embedding model.

    `fields` are the paths whose text is embedded if a put names none; an empty list embeds nothing.
    An expired item is not found any more, and the next write deletes it, so no sweeper has to run.
    Raises InvalidInput for values that are not JSON or larger than `max_checkpoint_mb`,
    StoreUnavailable, EmbedderUnavailable.
    """

    supports_ttl = True

    def __init__(
        self,
        scope: ScopedClient | BlockingScope,
        *,
        fields: Sequence[str] = ("$",),
        ttl: TTLConfig | None = None,
    ) -> None:
        self.ttl_config = ttl
        self._bridge = Bridge(scope)
        self._ctx = self._bridge.scope.ctx
        self._items = documents.Documents(self._ctx.store, scope.scope)
        self._fields = tuple(fields)

    @classmethod
    @contextmanager
    def from_url(
        cls,
        url: str | Path,
        *,
        user: str = USER,
        space: str | None = None,
        tenant: str | None = None,
        fields: Sequence[str] = ("$",),
        ttl: TTLConfig | None = None,
        **settings: Any,
    ) -> Iterator[MemoristStore]:
        """Open a memory for a `with` block: a file, `:memory:` or `postgresql://…`."""
        with Blocking.open(url, **settings) as memory:
            yield cls(memory.scope(user, space, tenant), fields=fields, ttl=ttl)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer the reads, all as of before the batch; then apply its writes, all or none."""
        return await self._bridge.wait(self._batch(list(ops)))

    batch = blocking(abatch)

    async def asweep_ttl(self) -> int:
        """Delete expired items and return how many. Any write does the same."""
        return await self._bridge.wait(self._items.sweep(self._ctx.clock()))

    sweep_ttl = blocking(asweep_ttl)

    async def _batch(self, ops: Sequence[Op]) -> list[Result]:
        now = self._ctx.clock()
        keys = [_key(op.namespace, op.key) for op in ops if isinstance(op, GetOp)]
        kept = await self._items.get(keys, now) if keys else {}
        results: list[Result] = []
        read: list[documents.Document] = []
        for op in ops:
            if isinstance(op, GetOp):
                found = kept.get(_key(op.namespace, op.key))
                results.append(Item(**_fields(found)) if found else None)
                read += [found] if found and op.refresh_ttl else []
            elif isinstance(op, SearchOp):
                hits = await self._search(op, now)
                results.append([SearchItem(**_fields(hit), score=score) for hit, score in hits])
                read += [hit for hit, _ in hits] if op.refresh_ttl else []
            elif isinstance(op, ListNamespacesOp):
                results.append(_listed(await self._items.namespaces(now), op))
            elif isinstance(op, PutOp):
                results.append(None)
            else:
                raise InvalidInput(f"Unknown operation {type(op).__name__}")
        await self._items.refresh(read, now)
        await self._change([op for op in ops if isinstance(op, PutOp)], now)
        return results

    async def _search(
        self, op: SearchOp, now: datetime
    ) -> list[tuple[documents.Document, float | None]]:
        """Return the items under a prefix that pass the filter; with a query, the nearest ones
        first.
        """
        prefix, end = _name(op.namespace_prefix), op.offset + op.limit
        if not (op.query and self._ctx.embedder):
            if not op.filter:
                found = await self._items.under(prefix, now, limit=op.limit, offset=op.offset)
                return [(item, None) for item in found]
            passing = [
                item for item in await self._items.under(prefix, now) if _passes(item, op.filter)
            ]
            return [(item, None) for item in passing[op.offset : end]]
        scores = await self._scores(op.query, prefix, now)
        if not op.filter and len(scores) >= end:
            best = heapq.nsmallest(end, scores, key=lambda key: (-scores[key], key))[op.offset :]
            kept = await self._items.get(best, now)
            return [(kept[key], scores[key]) for key in best if key in kept]
        passing = [
            item for item in await self._items.under(prefix, now) if _passes(item, op.filter or {})
        ]
        # Items without a vector come last.
        passing.sort(key=lambda item: -scores.get(item[:2], -2.0))
        return [(item, scores.get(item[:2])) for item in passing[op.offset : end]]

    async def _scores(
        self, query: str, prefix: str, now: datetime
    ) -> dict[documents.DocumentKey, float]:
        """Return the cosine of the query and the nearest field of each item."""
        embedder = self._ctx.embedder
        assert embedder is not None
        found = await self._items.vectors(prefix, embedder.model, now)
        if not found:
            return {}
        asked = (await encode(embedder, [normalize.storable(query)]))[0]
        matrix = np.frombuffer(b"".join(vector for _, vector in found), "<f4").reshape(
            len(found), -1
        )
        scores: dict[documents.DocumentKey, float] = {}
        for (key, _), score in zip(found, (matrix @ asked).tolist(), strict=True):
            scores[key] = max(score, scores.get(key, -1.0))
        return scores

    async def _change(self, ops: Sequence[PutOp], now: datetime) -> None:
        last = {_key(op.namespace, op.key): op for op in ops}
        if not last:
            return
        embedder = self._ctx.embedder
        values = {key: self._dump(op.value) for key, op in last.items() if op.value is not None}
        texts = {key: _texts(last[key], self._fields) for key in values} if embedder else {}
        every = [text for named in texts.values() for _, text in named]
        vectors = iter(await encode(embedder, every) if embedder and every else ())
        puts = [
            documents.NewDocument(
                *key,
                value,
                _ttl(last[key].ttl),
                [(field, next(vectors)) for field, _ in texts.get(key, ())],
            )
            for key, value in values.items()
        ]
        gone = [key for key in last if key not in values]
        await self._items.change(puts, gone, embedder.model if embedder else "", now)

    def _dump(self, value: Mapping[str, Any] | None) -> str:
        try:
            text = json.dumps(dict(value or {}), ensure_ascii=False)
            size = len(text.encode("utf-8", "surrogatepass"))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                f"An item is a mapping that can be written as JSON: {error}"
            ) from error
        most = self._ctx.settings.max_checkpoint_mb
        if size > most << 20:
            raise InvalidInput(
                f"{size:,} bytes are too many: put less, or raise max_checkpoint_mb ({most})"
            )
        return text if text == normalize.storable(text) else json.dumps(dict(value or {}))


def _name(namespace: tuple[str, ...]) -> str:
    """Return the labels joined by dots. Raises InvalidInput for a label that holds a dot itself."""
    if not all(isinstance(label, str) and label and "." not in label for label in namespace):
        raise InvalidInput(
            f"The labels of a namespace are texts without a dot, not {namespace!r:.60}"
        )
    return ".".join(namespace)


def _key(namespace: tuple[str, ...], key: str) -> documents.DocumentKey:
    """Return a key. Raises InvalidInput for names that not every database can store."""
    name, key = _name(namespace), str(key)
    if normalize.storable(name + key) != name + key or len((name + key).encode()) > _MOST_BYTES:
        raise InvalidInput(
            f"Namespace and key are texts of at most {_MOST_BYTES:,} bytes, not {name + key!r:.60}"
        )
    return name, key


def _fields(item: documents.Document) -> dict[str, Any]:
    return {
        "namespace": tuple(item.namespace.split(".")) if item.namespace else (),
        "key": item.key,
        "value": json.loads(item.value),
        "created_at": item.created_at,
        "updated_at": item.updated_at,
    }


def _texts(op: PutOp, usual: Sequence[str]) -> list[tuple[str, str]]:
    """Return the texts of an item to embed, each with the name of its field."""
    if op.index is False:
        return []
    out = []
    for path in usual if op.index is None else op.index:
        found = [normalize.storable(text) for text in get_text_at_path(op.value, path)]
        out += [
            (f"{path}.{n}" if len(found) > 1 else path, text)
            for n, text in enumerate(found)
            if text.strip()
        ]
    return list(dict(out).items())


def _ttl(minutes: float | None) -> float | None:
    if minutes is not None and not (math.isfinite(minutes) and 0 <= minutes <= _MOST_MINUTES):
        raise InvalidInput(
            f"ttl is a number of minutes from 0 to {_MOST_MINUTES:,}, not {minutes!r}"
        )
    return minutes


def _listed(names: Sequence[str], op: ListNamespacesOp) -> list[tuple[str, ...]]:
    every = [tuple(name.split(".")) if name else () for name in names]
    matching = {
        each[: op.max_depth]
        for each in every
        if all(_matches(each, c) for c in op.match_conditions or ())
    }
    return sorted(matching)[op.offset : op.offset + op.limit]


def _matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    part = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return len(namespace) >= len(path) and all(
        p in ("*", n) for p, n in zip(path, part, strict=True)
    )


def _passes(item: documents.Document, wanted: Mapping[str, Any]) -> bool:
    return not wanted or _holds(json.loads(item.value), wanted)


def _holds(value: Any, wanted: Any) -> bool:
    """Whether a value matches a filter: equal, compared by `$` operators, or matching in each named
    part.
    """
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, sign, bound) for sign, bound in wanted.items())
        return isinstance(value, dict) and all(
            _holds(value.get(name), part) for name, part in wanted.items()
        )
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_holds(a, b) for a, b in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _compares(value: Any, sign: str, bound: Any) -> bool:
    """Compare numbers as numbers, even if they are text, and other texts as texts; anything else is
    False.
    """
    if sign in ("$eq", "$ne"):
        return (value == bound) is (sign == "$eq")
    if sign not in _ORDER:
        raise InvalidInput(
            f"No filter operator {sign!r}: choose from $eq, $ne, {', '.join(_ORDER)}"
        )
    try:
        return _ORDER[sign](float(value), float(bound))
    except (TypeError, ValueError):
        return isinstance(value, str) and isinstance(bound, str) and _ORDER[sign](value, bound)
