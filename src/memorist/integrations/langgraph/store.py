"""LangGraph's store: items of agents, under namespaces and keys of their own.

A value is JSON and is returned as it was put. It is found by its key, its content or its meaning.
"""

from __future__ import annotations

import heapq
import json
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
from ...storage.documents import Document, DocumentKey, Documents
from ...sync import Blocking, BlockingScope, verb
from ...text import clock, normalize
from .. import Bridge

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
        self._inner = self  # whose async methods `verb` runs on the loop
        self._loop = Bridge(scope)
        self._ctx = self._loop.scope.ctx
        self._items = Documents(self._ctx.store, scope.scope)
        self._fields = tuple(fields)

    @classmethod
    @contextmanager
    def from_url(
        cls,
        url: str | Path,
        *,
        user: str = "langgraph",
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
        return await self._loop.wait(self._batch(list(ops)))

    batch = verb(abatch)

    async def asweep_ttl(self) -> int:
        """Delete expired items and return how many. Any write does the same."""
        return await self._loop.wait(self._items.sweep(self._ctx.clock()))

    sweep_ttl = verb(asweep_ttl)

    async def _batch(self, ops: Sequence[Op]) -> list[Result]:
        now = self._ctx.clock()
        keys = [_key(op.namespace, op.key) for op in ops if isinstance(op, GetOp)]
        stored = await self._items.get(keys, now)
        results: list[Result] = []
        read: list[Document] = []
        puts: dict[DocumentKey, PutOp] = {}
        for op in ops:
            if isinstance(op, GetOp):
                found = stored.get(_key(op.namespace, op.key))
                results.append(Item(**_fields(found)) if found else None)
                read += [found] if found and op.refresh_ttl else []
            elif isinstance(op, SearchOp):
                hits = await self._search(op, now)
                results.append([SearchItem(**_fields(hit), score=score) for hit, score in hits])
                read += [hit for hit, _ in hits] if op.refresh_ttl else []
            elif isinstance(op, ListNamespacesOp):
                results.append(_select_namespaces(await self._items.namespaces(now), op))
            elif isinstance(op, PutOp):
                puts[_key(op.namespace, op.key)] = op  # the last one counts
                results.append(None)
            else:
                raise InvalidInput(f"Unknown operation {type(op).__name__}")
        await self._items.refresh(read, now)
        if puts:
            await self._change(puts, now)
        return results

    async def _search(self, op: SearchOp, now: datetime) -> list[tuple[Document, float | None]]:
        """Return the items under a prefix that pass the filter; with a query, the nearest ones
        first.
        """
        prefix = _name(op.namespace_prefix)
        end = op.offset + op.limit
        wanted = op.filter or {}
        embedder = self._ctx.embedder
        scores: dict[DocumentKey, float] = {}  # the cosine of the query and the nearest field
        if op.query and embedder:
            vectors = await self._items.vectors(prefix, embedder.model, now)
            if vectors:
                asked = (await encode(embedder, [normalize.storable(op.query)]))[0]
                data = b"".join(vector for _, vector in vectors)
                cosines = np.frombuffer(data, "<f4").reshape(len(vectors), -1) @ asked
                for (key, _), score in zip(vectors, cosines.tolist(), strict=True):
                    scores[key] = max(score, scores.get(key, -1.0))
            if not wanted and len(scores) >= end:
                best = heapq.nsmallest(end, scores, key=lambda key: (-scores[key], key))
                stored = await self._items.get(best[op.offset :], now)
                return [(stored[key], scores[key]) for key in best[op.offset :] if key in stored]
        elif not wanted:
            found = await self._items.under(prefix, now, limit=op.limit, offset=op.offset)
            return [(item, None) for item in found]
        found = await self._items.under(prefix, now)
        if wanted:
            found = [item for item in found if holds(json.loads(item.value), wanted)]
        # Items without a vector come last.
        found.sort(key=lambda item: -scores.get(item[:2], -2.0))
        return [(item, scores.get(item[:2])) for item in found[op.offset : end]]

    async def _change(self, ops: Mapping[DocumentKey, PutOp], now: datetime) -> None:
        embedder = self._ctx.embedder
        most = self._ctx.settings.max_checkpoint_mb
        values = {key: to_json(op.value, most) for key, op in ops.items() if op.value is not None}
        texts: dict[tuple[str, ...], str] = {}  # to embed, by namespace, key and field
        for key in values if embedder else ():
            index = ops[key].index
            for path in self._fields if index is None else index or ():
                found = get_text_at_path(ops[key].value, path)
                for n, text in enumerate(map(normalize.storable, found)):
                    if text.strip():
                        texts[*key, f"{path}.{n}" if len(found) > 1 else path] = text
        at = clock.iso(now)
        puts: list[Document] = []
        for key, value in values.items():
            minutes = ops[key].ttl
            if minutes is not None and not 0 <= minutes <= _MOST_MINUTES:
                raise InvalidInput(
                    f"ttl is a number of minutes from 0 to {_MOST_MINUTES:,}, not {minutes!r}"
                )
            puts.append(Document(*key, value, at, at, minutes))
        gone = [key for key in ops if key not in values]
        made = await encode(embedder, list(texts.values())) if embedder and texts else ()
        vectors = dict(zip(texts, made, strict=True))
        await self._items.change(puts, gone, now, model=self._ctx.index.model, vectors=vectors)


def to_json(value: Mapping[str, Any], most_mb: int) -> str:
    """Return the text of an item. Raises InvalidInput if it is no mapping, no JSON or too large."""
    try:
        text = json.dumps(dict(value), ensure_ascii=False)
        size = len(text.encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"An item is a mapping that can be written as JSON: {error}") from error
    if size > most_mb << 20:
        raise InvalidInput(
            f"{size:,} bytes are too many: put less, or raise max_checkpoint_mb ({most_mb})"
        )
    return text if text == normalize.storable(text) else json.dumps(dict(value))


def _name(namespace: tuple[str, ...]) -> str:
    """Return the labels joined by dots. Raises InvalidInput for a label that holds a dot itself."""
    if not all(isinstance(label, str) and label and "." not in label for label in namespace):
        raise InvalidInput(
            f"The labels of a namespace are texts without a dot, not {namespace!r:.60}"
        )
    return ".".join(namespace)


def _key(namespace: tuple[str, ...], key: str) -> DocumentKey:
    """Return a key. Raises InvalidInput for names that not every database can store."""
    name = _name(namespace)
    key = str(key)
    both = name + key
    if normalize.storable(both) != both or len(both.encode()) > _MOST_BYTES:
        raise InvalidInput(
            f"Namespace and key are texts of at most {_MOST_BYTES:,} bytes, not {both!r:.60}"
        )
    return name, key


def _labels(name: str) -> tuple[str, ...]:
    return tuple(name.split(".")) if name else ()


def _fields(item: Document) -> dict[str, Any]:
    """Return what LangGraph's items are made from."""
    fields = item._asdict() | {
        "namespace": _labels(item.namespace),
        "value": json.loads(item.value),
    }
    del fields["ttl_minutes"]
    return fields


def _select_namespaces(names: Sequence[str], op: ListNamespacesOp) -> list[tuple[str, ...]]:
    """Return a page of the namespaces that match all conditions, cut to the depth."""
    matching: set[tuple[str, ...]] = set()
    for labels in map(_labels, names):
        for condition in op.match_conditions or ():
            path = tuple(condition.path)
            start = 0 if condition.match_type == "prefix" else len(labels) - len(path)
            if len(path) > len(labels) or any(
                wanted not in ("*", labels[start + n]) for n, wanted in enumerate(path)
            ):
                break
        else:
            matching.add(labels[: op.max_depth])
    return sorted(matching)[op.offset : op.offset + op.limit]


def holds(value: Any, wanted: Any) -> bool:
    """Whether a value matches a filter: equal, compared by `$` operators, or matching in each named
    part.
    """
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(compares(value, sign, bound) for sign, bound in wanted.items())
        return isinstance(value, dict) and all(
            holds(value.get(name), part) for name, part in wanted.items()
        )
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(holds(a, b) for a, b in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def compares(value: Any, sign: str, bound: Any) -> bool:
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
