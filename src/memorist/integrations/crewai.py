"""CrewAI: the memory of a crew or an agent, without an API key.

CrewAI's scopes ("/crew/research") are paths in the memory of one user; a user is a scope of ours.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..errors import MissingExtra, NotFound, Refused
from ..ingest import validation
from ..sync import BlockingScope
from ..text.clock import utcnow
from ..types import Memory as Stored
from ..types import Message
from . import AnyScope, Bridge

try:
    import crewai  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra('CrewAI is not installed: pip install "memorist[crewai]"') from error

from crewai.memory.types import MemoryMatch, MemoryRecord, ScopeInfo
from crewai.memory.unified_memory import Memory
from crewai.memory.utils import join_scope_paths, normalize_scope_path

__all__ = ["MemoristMemory"]

KEY = "crewai"  # in the metadata of a memory: what CrewAI knows of it
RESULT = "\nResult: "  # after it, in what a crew gives to save, is the last text of the agent
ANSWER = "Final Answer:"  # after it is what the agent returned
Where = dict[str, Any]


class MemoristMemory(Memory):
    """The memory of one user, for `Crew(memory=…)` or `Agent(memory=…)`.

    Agents recall everything that is remembered of the user. What they save are words of an
    assistant, unless the scope has another `role`. Without `llm`, the result of a task is saved as
    it is; with one, CrewAI extracts statements from it. Raises InvalidInput, StoreUnavailable, and
    Refused if a text may not be stored.
    """

    def __init__(self, scope: AnyScope, **options: Any) -> None:
        # The memory computes the vectors.
        super().__init__(
            storage=Records(scope), embedder=lambda texts: [[]] * len(texts), **options
        )

    def remember(self, content: str, *args: Any, **options: Any) -> MemoryRecord | None:
        """Store a text. Return its record, or None if this memory is read-only."""
        found = self.remember_many([content], *args, **options)
        return found[0] if found else None

    def remember_many(
        self,
        contents: list[str],
        scope: str | None = None,
        categories: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        importance: float | None = None,
        source: str | None = None,
        private: bool = False,
        agent_role: str | None = None,
        root_scope: str | None = None,
    ) -> list[MemoryRecord]:
        """Store texts. When this returns, they can be recalled."""
        if self.read_only or not contents:
            return []
        root = self.root_scope if root_scope is None else root_scope
        about = describe(join_scope_paths(root, scope), categories, source, private=private)
        return self._records.remember(
            contents, {**(metadata or {}), KEY: about}, importance, agent_role
        )

    def extract_memories(self, content: str) -> list[str]:
        """Return what is worth saving of a text: the result of a task, or with `llm` statements."""
        if "llm" in self.model_fields_set:
            found: list[str] = super().extract_memories(content)
            return found
        text = content.partition(RESULT)[2] or content
        text = text.rpartition(ANSWER)[2]
        return [text.strip()] if text.strip() else []

    def recall(
        self,
        query: str,
        scope: str | None = None,
        categories: list[str] | None = None,
        limit: int = 10,
        depth: Literal["shallow", "deep"] = "deep",
        source: str | None = None,
        include_private: bool = False,
    ) -> list[MemoryMatch]:
        """Return what answers a question; nothing if nothing does. `depth` makes no difference."""
        path = join_scope_paths(self.root_scope, scope)
        where = select(path, categories)
        if not include_private:
            hidden: Where = {f"{KEY}.private": True}
            if source is not None:
                hidden |= {f"{KEY}.source": {"ne": source}}
            where["none_of"] = [{"metadata": hidden}]
        return self._records.recall(query, where, limit)

    def __deepcopy__(self, memo: object = None) -> MemoristMemory:
        return self  # a copy of a crew has the same memory

    async def aremember(self, *args: Any, **options: Any) -> MemoryRecord | None:
        return await asyncio.to_thread(self.remember, *args, **options)

    async def aremember_many(self, *args: Any, **options: Any) -> list[MemoryRecord]:
        return await asyncio.to_thread(self.remember_many, *args, **options)

    async def arecall(self, *args: Any, **options: Any) -> list[MemoryMatch]:
        return await asyncio.to_thread(self.recall, *args, **options)

    @property
    def _records(self) -> Records:
        assert isinstance(self._storage, Records)
        return self._storage


class Records:
    """The memories of a scope as records of CrewAI: what `Memory` calls of its storage."""

    def __init__(self, scope: AnyScope) -> None:
        bridge: Any = Bridge(scope)
        self._scope = BlockingScope(bridge.scope, bridge)

    def remember(
        self,
        texts: Sequence[str],
        metadata: Mapping[str, Any],
        importance: float | None,
        agent: str | None,
    ) -> list[MemoryRecord]:
        """Store texts and return their records. Raises Refused, naming the first that was not."""
        role = self._scope.labels.role or "assistant"
        said = [Message(content=text, role=role, name=agent) for text in texts]
        receipt = self._scope.remember(said, metadata=metadata, importance=importance)
        records = []
        for text, outcome in zip(texts, receipt.outcomes, strict=True):
            if outcome.status in ("refused", "skipped") and not outcome.ids:
                raise Refused(f"{text[:60]!r} was not stored: {outcome.reason}")
            record = self.get_record(outcome.ids[0]) if outcome.ids else None
            if record is None:  # it is stored when the database is available again
                path = metadata[KEY]["scope"]
                record = MemoryRecord(content=text, scope=path, created_at=utcnow())
            records.append(record)
        return records

    def recall(self, query: str, where: Where, limit: int) -> list[MemoryMatch]:
        """Return what answers a question."""
        found = self._scope.recall(query, limit=limit, where=where)
        matches = []
        for hit in found.hits:
            sure = hit.relevance if hit.confidence is None else hit.confidence
            score = min(1.0, max(0.0, sure))
            record = _to_record(hit.memory)
            matches.append(MemoryMatch(record=record, score=score, match_reasons=list(hit.parts)))
        return matches

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: Any = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Erase records, and return how many. Without ids, only what was saved through CrewAI."""
        where = select(scope_prefix, categories, metadata_filter)
        if record_ids is None:
            where["metadata"].setdefault(f"{KEY}.scope", {"exists": True})
        else:
            where["ids"] = record_ids
        if older_than is not None:
            where["created_before"] = validation.moment(older_than)
        return len(self._scope.forget_where(where=where, dry_run=False).ids)

    def update(self, record: MemoryRecord) -> None:
        """Change a record."""
        about = describe(record.scope, record.categories, record.source, private=record.private)
        self._scope.edit(
            record.id,
            record.content,
            metadata={**record.metadata, KEY: about},
            importance=record.importance,
        )

    def get_record(self, record_id: str) -> MemoryRecord | None:
        try:
            return _to_record(self._scope.get(record_id))
        except NotFound:
            return None

    def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """Return records, newest first."""
        return self._list(scope_prefix, offset + limit)[offset:]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Return what a path holds, with all paths below it."""
        found = self._list(scope)
        times = [record.created_at for record in found]
        return ScopeInfo(
            path=scope,
            record_count=len(found),
            categories=sorted(_count_categories(found)),
            oldest_record=min(times, default=None),
            newest_record=max(times, default=None),
            child_scopes=_children(found, scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the paths right below a path."""
        return _children(self._list(parent), parent)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return how many records each category has."""
        return dict(_count_categories(self._list(scope_prefix)))

    def count(self, scope_prefix: str | None = None) -> int:
        return len(self._list(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Erase what was saved through CrewAI. What the user said elsewhere stays."""
        self.delete(scope_prefix)

    def _list(self, path: str | None, most: int | None = None) -> list[MemoryRecord]:
        found: list[MemoryRecord] = []
        cursor = None
        while most is None or len(found) < most:
            page = self._scope.list(select(path), limit=1000, cursor=cursor)
            found += map(_to_record, page)
            cursor = page.cursor
            if cursor is None:
                break
        return found[:most]


def select(
    path: str | None,
    categories: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Where:
    """Return the filter for a path with all below it; the root has everything.

    >>> select("/crew/research")
    {'metadata': {'crewai.scopes': '/crew/research'}}
    """
    conditions = dict(metadata or {})
    if path and path.strip("/"):
        conditions[f"{KEY}.scopes"] = normalize_scope_path(path)
    if categories:
        conditions[f"{KEY}.categories"] = list(categories)
    return {"metadata": conditions}


def describe(
    path: str, categories: Sequence[str] | None, source: str | None, *, private: bool
) -> dict[str, Any]:
    """Return what CrewAI knows of a record; `scopes` are its path and all above it.

    >>> describe("/a/b", None, None, private=False)["scopes"]
    ['/a', '/a/b']
    """
    path = normalize_scope_path(path)
    parts = path.strip("/").split("/")
    above = ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts)) if parts[0]]
    listed = list(categories or ())
    return {
        "scope": path,
        "scopes": above,
        "categories": listed,
        "source": source,
        "private": private,
    }


def _count_categories(records: Sequence[MemoryRecord]) -> Counter[str]:
    return Counter(name for record in records for name in record.categories)


def _children(records: Sequence[MemoryRecord], parent: str) -> list[str]:
    """Return the paths right below a path that records are in."""
    start = parent.rstrip("/") + "/"
    found = set()
    for record in records:
        below = record.scope.removeprefix(start).partition("/")[0]
        if record.scope.startswith(start) and below:
            found.add(start + below)
    return sorted(found)


def _to_record(memory: Stored) -> MemoryRecord:
    metadata = dict(memory.metadata)
    about = metadata.pop(KEY, {})
    return MemoryRecord(
        id=memory.id,
        content=memory.text,
        scope=about.get("scope", "/"),
        categories=about.get("categories", []),
        metadata=metadata,
        importance=min(1.0, max(0.0, memory.importance)),
        created_at=memory.created_at,
        last_accessed=memory.last_accessed or memory.updated_at,
        source=about.get("source"),
        private=about.get("private", False),
    )
