"""LangGraph's store: items of agents, by namespace and key.

A value is JSON and is returned as it was put. It is found by key, by content or by meaning.
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
from ...index.arrays import products
from ...ports import Vectors
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
    """Stores items in one scope and searches them with the embedding model of the memory.

    `fields` are the paths whose text is embedded if a put names none; an empty list embeds nothing.
    An expired item is no longer returned, and the next write deletes it, so no sweeper is needed.
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
        self._inner = self  # `verb` runs its async methods on the loop
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
            scope = memory.scope(user, space, tenant)
            yield cls(scope, fields=fields, ttl=ttl)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer the reads with the state before the batch, then apply the writes, all or none."""
        return await self._loop.wait(self._batch(list(ops)))

    batch = verb(abatch)

    async def asweep_ttl(self) -> int:
        """Delete expired items and return how many. Every write does the same."""
        now = self._ctx.clock()
        return await self._loop.wait(self._items.sweep(now))

    sweep_ttl = verb(asweep_ttl)

    async def _batch(self, ops: Sequence[Op]) -> list[Result]:
        now = self._ctx.clock()
        wanted = [_key(op.namespace, op.key) for op in ops if isinstance(op, GetOp)]
        stored = await self._items.get(wanted, now)
        results: list[Result] = []
        read: list[Document] = []
        puts: dict[DocumentKey, PutOp] = {}
        for op in ops:
            if isinstance(op, GetOp):
                found = stored.get(_key(op.namespace, op.key))
                results.append(Item(**_fields(found)) if found else None)
                if found and op.refresh_ttl:
                    read.append(found)
            elif isinstance(op, SearchOp):
                items: list[SearchItem] = []
                for hit, score in await self._search(op, now):
                    items.append(SearchItem(**_fields(hit), score=score))
                    if op.refresh_ttl:
                        read.append(hit)
                results.append(items)
            elif isinstance(op, ListNamespacesOp):
                names = await self._items.namespaces(now)
                results.append(_select_namespaces(names, op))
            elif isinstance(op, PutOp):
                puts[_key(op.namespace, op.key)] = op  # the last one counts
                results.append(None)
            else:
                raise InvalidInput(f"Unknown operation {type(op).__name__}")
        await self._items.refresh(read, now)
        if puts:
            await self._change(puts, now)
        return results

    async def _search(
        self,
        op: SearchOp,
        now: datetime,
    ) -> list[tuple[Document, float | None]]:
        """Return the items under a prefix that match the filter; with a query, nearest first."""
        prefix = _name(op.namespace_prefix)
        end = op.offset + op.limit
        wanted = op.filter or {}
        embedder = self._ctx.embedder
        scores: dict[DocumentKey, float] = {}  # the cosine of the query and the best field
        if op.query and embedder:
            vectors = await self._items.vectors(prefix, embedder.model, now)
            if vectors:
                question = normalize.storable(op.query)
                asked = await encode(embedder, [question])
                keys, data = zip(*vectors, strict=True)
                matrix = np.frombuffer(b"".join(data), "<f4").reshape(len(keys), -1)
                cosines = products(matrix, asked[0])
                for key, score in zip(keys, cosines.tolist(), strict=True):
                    scores[key] = max(score, scores.get(key, -1.0))
            if not wanted and len(scores) >= end:
                best = heapq.nsmallest(end, scores, key=lambda key: (-scores[key], key))
                page = best[op.offset :]
                stored = await self._items.get(page, now)
                return [(stored[key], scores[key]) for key in page if key in stored]
        elif not wanted:
            found = await self._items.under(
                prefix,
                now,
                limit=op.limit,
                offset=op.offset,
            )
            return [(item, None) for item in found]
        matching: list[tuple[Document, float | None]] = []
        for item in await self._items.under(prefix, now):
            if not wanted or holds(json.loads(item.value), wanted):
                score = scores.get(item[:2])
                matching.append((item, score))
        # Items without a vector come last.
        matching.sort(key=lambda match: 2.0 if match[1] is None else -match[1])
        return matching[op.offset : end]

    async def _change(self, ops: Mapping[DocumentKey, PutOp], now: datetime) -> None:
        embedder = self._ctx.embedder
        most = self._ctx.settings.max_checkpoint_mb
        values: dict[DocumentKey, str] = {}
        gone: list[DocumentKey] = []
        for key, op in ops.items():
            if op.value is None:
                gone.append(key)
            else:
                values[key] = to_json(op.value, most)
        texts: dict[tuple[str, ...], str] = {}  # to embed, by namespace, key and field
        for key in values if embedder else ():
            index = ops[key].index
            for path in self._fields if index is None else index or ():
                found = get_text_at_path(ops[key].value, path)
                for n, text in enumerate(map(normalize.storable, found)):
                    field = f"{path}.{n}" if len(found) > 1 else path
                    if text.strip():
                        texts[*key, field] = text
        at = clock.iso(now)
        puts: list[Document] = []
        for key, value in values.items():
            minutes = ops[key].ttl
            if minutes is not None and not 0 <= minutes <= _MOST_MINUTES:
                raise InvalidInput(
                    f"ttl is a number of minutes from 0 to {_MOST_MINUTES:,}, not {minutes!r}"
                )
            puts.append(Document(*key, value, at, at, minutes))
        made: Iterable[Vectors] = ()
        if embedder and texts:
            words = list(texts.values())
            made = await encode(embedder, words)
        await self._items.change(
            puts,
            gone,
            now,
            model=self._ctx.index.model,
            vectors=dict(zip(texts, made, strict=True)),
        )


def to_json(value: Mapping[str, Any], most_mb: int) -> str:
    """Return the text of an item. Raises InvalidInput if it is not a JSON object or too large."""
    try:
        text = json.dumps(dict(value), ensure_ascii=False)
        size = len(text.encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"An item must be a mapping that JSON can represent: {error}") from error
    if size > most_mb << 20:
        raise InvalidInput(
            f"{size:,} bytes are too many: put less, or raise max_checkpoint_mb ({most_mb})"
        )
    if text != normalize.storable(text):
        text = json.dumps(dict(value))
    return text


def _name(namespace: tuple[str, ...]) -> str:
    """Return the labels joined by dots. Raises InvalidInput for a label that contains a dot."""
    for label in namespace:
        if not isinstance(label, str) or not label or "." in label:
            raise InvalidInput(
                f"The labels of a namespace must be text without a dot, not {namespace!r:.60}"
            )
    return ".".join(namespace)


def _key(namespace: tuple[str, ...], key: str) -> DocumentKey:
    """Return the key of an item. Raises InvalidInput for names that a database cannot store."""
    name = _name(namespace)
    key = str(key)
    both = name + key
    if normalize.storable(both) != both or len(both.encode()) > _MOST_BYTES:
        raise InvalidInput(
            f"Namespace and key must be text of at most {_MOST_BYTES:,} bytes, not {both!r:.60}"
        )
    return name, key


def _labels(name: str) -> tuple[str, ...]:
    return tuple(name.split(".")) if name else ()


def _fields(item: Document) -> dict[str, Any]:
    """Return the fields of a LangGraph item."""
    fields = item._asdict()
    del fields["ttl_minutes"]
    fields["namespace"] = _labels(item.namespace)
    fields["value"] = json.loads(item.value)
    return fields


def _select_namespaces(
    names: Sequence[str],
    op: ListNamespacesOp,
) -> list[tuple[str, ...]]:
    """Return a page of the namespaces that match all conditions, truncated to the depth."""
    matching: set[tuple[str, ...]] = set()
    for labels in map(_labels, names):
        for condition in op.match_conditions or ():
            path = tuple(condition.path)
            start = len(labels) - len(path)
            if start < 0:
                break
            if condition.match_type == "prefix":
                start = 0
            pairs = zip(path, labels[start:], strict=False)
            if any(wanted not in ("*", label) for wanted, label in pairs):
                break
        else:
            matching.add(labels[: op.max_depth])
    end = op.offset + op.limit
    return sorted(matching)[op.offset : end]


def holds(value: Any, wanted: Any) -> bool:
    """Return whether a value matches a filter.

    It is equal, passes the `$` operators, or matches in each named part.
    """
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(compares(value, sign, bound) for sign, bound in wanted.items())
        if not isinstance(value, dict):
            return False
        return all(holds(value.get(name), part) for name, part in wanted.items())
    if isinstance(wanted, (list, tuple)):
        if not isinstance(value, list) or len(value) != len(wanted):
            return False
        return all(map(holds, value, wanted))
    return bool(value == wanted)


def compares(value: Any, sign: str, bound: Any) -> bool:
    """Compare numbers as numbers, even if they are text, and other text as text.

    Anything else does not match.
    """
    if sign in ("$eq", "$ne"):
        return (value == bound) is (sign == "$eq")
    if sign not in _ORDER:
        raise InvalidInput(f"Unknown filter operator {sign!r}: use $eq, $ne, {', '.join(_ORDER)}")
    compare = _ORDER[sign]
    try:
        return compare(float(value), float(bound))
    except (TypeError, ValueError):
        are_texts = isinstance(value, str) and isinstance(bound, str)
        return are_texts and compare(value, bound)
