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
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    validate_op_namespace,
)

from ...embedders import encode
from ...errors import InvalidInput
from ...index import Snapshot
from ...ports import IndexRow, Vectors
from ...retrieve.features import SnapshotSearch
from ...retrieve.profiles import DEFAULT
from ...retrieve.question import understand
from ...storage.documents import Document, DocumentKey, Documents, IndexedText
from ...sync import Blocking, verb
from ...text import clock, normalize, tokens
from .. import Adapter, AnyScope, Bridge, on_loop

_MOST_MINUTES = 60 * 24 * 36_500
_MOST_BYTES = 1_000
_WORDS = DEFAULT.weights["sparse"] / DEFAULT.weights["semantic"]  # how far words raise a score
# A row of the index with the columns that items do not have.
_BLANK = IndexRow._make([None] * len(IndexRow._fields))._replace(
    state="active",
    kind="semantic",
    created=0,
    updated=0,
    importance=0.0,
    confidence=0.0,
    pinned=False,
    simhash=0,
    flags=0,
)
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class MemoristStore(Adapter, BaseStore):
    """Stores items in one scope and searches them with the embedding model of the memory.

    `fields` are the paths whose text is indexed if a put names none; an empty list indexes nothing.
    An expired item is no longer returned, and the next write deletes it, so no sweeper is needed.
    Raises InvalidInput for values that are not JSON or larger than `max_checkpoint_mb`,
    StoreUnavailable, EmbedderUnavailable.
    """

    supports_ttl = True

    def __init__(
        self,
        scope: AnyScope,
        *,
        fields: Sequence[str] = ("$",),
        ttl: TTLConfig | None = None,
        index: IndexConfig | None = None,
    ) -> None:
        self.ttl_config = ttl
        self.index_config = index
        self._loop = Bridge(scope)
        self._ctx = self._loop.scope.ctx
        self._items = Documents(self._ctx.store, scope.scope)
        self._fields = tuple((index or {}).get("fields") or fields)

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
        index: IndexConfig | None = None,
        **settings: Any,
    ) -> Iterator[MemoristStore]:
        """Open a memory for a `with` block: a file, `:memory:` or `postgresql://…`.

        `index` is that of LangGraph's other stores: its `fields`, and its `embed` as the embedder.
        """
        if index is not None and "embedder" not in settings:
            settings["embedder"] = ensure_embeddings(index["embed"]).aembed_documents
        with Blocking.open(url, **settings) as memory:
            scope = memory.scope(user, space, tenant)
            yield cls(scope, fields=fields, ttl=ttl, index=index)

    @on_loop
    async def asweep_ttl(self) -> int:
        """Delete expired items and return how many. Every write does the same."""
        return await self._items.sweep(self._ctx.clock())

    def sweep_ttl(self, *_: Any, **__: Any) -> Any:
        """Do the same, or return an awaitable on the event loop of an async scope."""
        return self._loop.run_or_await(self.asweep_ttl())

    start_ttl_sweeper = stop_ttl_sweeper = sweep_ttl  # no thread is needed

    @on_loop
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer the reads with the state before the batch, then apply the writes, all or none."""
        ops = list(ops)
        for op in ops:
            validate_op_namespace(op)
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

    batch = verb(abatch)

    async def _search(
        self,
        op: SearchOp,
        now: datetime,
    ) -> list[tuple[Document, float | None]]:
        """Return the items under a prefix that match the filter; with a query, best first."""
        prefix = ".".join(op.namespace_prefix)
        end = op.offset + op.limit
        wanted = op.filter or {}
        scores: dict[DocumentKey, float] = {}
        if op.query:
            texts = await self._items.texts(prefix, now)
            scores = await self._score(normalize.storable(op.query), texts, now)
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
        # Items that nothing is known of come last.
        matching.sort(key=lambda match: 2.0 if match[1] is None else -match[1])
        return matching[op.offset : end]

    async def _score(
        self, query: str, texts: Sequence[IndexedText], now: datetime
    ) -> dict[DocumentKey, float]:
        """Return the score of the best text of each item, by meaning and by words.

        It is the cosine, or 0 without a vector, and shared words raise it towards 1.
        """
        embedder = self._ctx.embedder
        if not texts:
            return {}
        asked = None
        if embedder is not None:
            (asked,) = await encode(embedder, [query])
        rows = []
        for number, text in enumerate(texts):
            is_comparable = embedder is not None and text.model == embedder.model
            vector = text.vector if is_comparable else None
            rows.append(_BLANK._replace(row=number, terms=text.terms or b"", vector=vector))
        dimensions = 1 if embedder is None else embedder.dimensions
        snapshot = Snapshot.empty("", dimensions).extend(rows, [], 1)
        search = SnapshotSearch(
            profile=DEFAULT,
            snapshot=snapshot,
            question=understand(query, (), now, self._ctx.settings.language),
            usable=snapshot.alive,
            now=now,
            vector=asked,
        )
        sparse = np.minimum(search.sparse, 1.0)
        scores: dict[DocumentKey, float] = {}
        for text, row, cosine, words in zip(texts, rows, search.cosine, sparse, strict=True):
            if row.vector is None and not words:
                continue
            score = float(cosine + (1.0 - cosine) * _WORDS * words)
            key = (text.namespace, text.key)
            scores[key] = max(score, scores.get(key, -1.0))
        return scores

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
        texts: dict[tuple[str, str, str], str] = {}  # to index, by namespace, key and field
        for key in values:
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
                    f"ttl must be a number of minutes from 0 to {_MOST_MINUTES:,}, not {minutes!r}"
                )
            puts.append(Document(*key, value, at, at, minutes))
        vectors: Iterable[Vectors] = [np.empty(0, np.float32)] * len(texts)
        model = ""
        if embedder and texts:
            model = embedder.model
            vectors = await encode(embedder, list(texts.values()))
        indexed: list[IndexedText] = []
        language = self._ctx.settings.language
        for (place, text), vector in zip(texts.items(), vectors, strict=True):
            numbers = np.asarray(vector, "<f4").tobytes()
            terms = tokens.pack(map(tokens.term_id, tokens.analyze_spoken(text, language)))
            indexed.append(IndexedText(*place, model, numbers, terms))
        await self._items.change(puts, gone, now, indexed)


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


def _key(namespace: tuple[str, ...], key: str) -> DocumentKey:
    """Return the key of an item. Raises InvalidInput for names that a database cannot store."""
    name = ".".join(namespace)
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
        return all(holds(_find(value, name), part) for name, part in wanted.items())
    if isinstance(wanted, (list, tuple)):
        if not isinstance(value, list) or len(value) != len(wanted):
            return False
        return all(map(holds, value, wanted))
    return bool(value == wanted)


def _find(value: Mapping[str, Any], name: str) -> Any:
    """Return the part of a value with that name, or at that dotted path."""
    if name in value or "." not in name:
        return value.get(name)
    first, rest = name.split(".", 1)
    inner = value.get(first)
    return _find(inner, rest) if isinstance(inner, dict) else None


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
