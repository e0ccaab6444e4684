"""What agents may read: the categories there are, how much of each goes into a context, and which agent sees which."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from ..errors import Misconfigured, NotAllowed

USUAL_LENGTH = 30  # memories of a category that says nothing about it
ALL = -1
PROCEDURAL = "procedural"  # how-tos, which only agents that carry things out are given
# Memories of one category under several names: whoever may read the last may read the first.
_ALIASES = {
    "preference": "preferences",
    "project": "projects",
    "relationship": "relationships",
    "goal": "goals",
    "task": "tasks",
    "interest": "interests",
    "constraint": "constraints",
    "relationship_dynamic": "relationships",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """What a memory can be about, and how much of it goes into a context."""

    name: str
    context: Literal["all", "rag"] = "rag"  # the whole category, or what fits the question
    rag_length: int = USUAL_LENGTH  # memories at most; -1: as many as there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The categories, and which agent may read which."""

    categories: Mapping[str, Category]
    allowlists: Mapping[str, tuple[str, ...]]
    custom: tuple[str, ...] = field(
        default=()
    )  # of the categories, those that the application added

    def category(self, name: str) -> Category:
        """The category that memories called so belong to; one that nobody declared is asked by question."""
        known = canonical(name)
        return self.categories.get(known) or Category(name=known)

    def allowed(self, agent: str, wanted: Sequence[str] | None = None) -> tuple[str, ...]:
        """The categories that an agent asks for, or all it may read. Raises NotAllowed if it may not read one."""
        if agent not in self.allowlists:
            known = ", ".join(sorted(self.allowlists))
            raise NotAllowed(f"No agent {agent!r} has an allowlist: there are {known}")
        own = self.allowlists[agent]
        asked = tuple(dict.fromkeys(canonical(each) for each in wanted or own))
        if refused := [each for each in asked if each not in own]:
            raise NotAllowed(
                f"Agent {agent!r} may not read {', '.join(refused)}: only {', '.join(own)}"
            )
        return asked


def canonical(name: str) -> str:
    """The name under which a category is declared and allowed.

    >>> canonical("Preference"), canonical("relationship_dynamic"), canonical("tasks")
    ('preferences', 'relationships', 'tasks')
    """
    folded = name.strip().lower()
    return _ALIASES.get(folded, folded)


def spellings(names: Sequence[str]) -> tuple[str, ...]:
    """The names under which memories of these categories are kept.

    >>> spellings(["relationships"])
    ('relationships', 'relationship', 'relationship_dynamic')
    """
    others = [alias for name in names for alias, known in _ALIASES.items() if known == name]
    return (*names, *others)


def load(path: Path | None) -> Access:
    """The configuration in a YAML or TOML file, or ours if there is none. Raises Misconfigured, naming the place."""
    return USUAL if path is None else read(_parsed(path), str(path))


def read(data: Any, where: str) -> Access:
    """A configuration from plain values. Raises Misconfigured, naming the place."""
    top = _mapping(data, where, ("categories", "allowlists"))
    if not top:
        raise Misconfigured(f"{where} is empty: it takes categories and allowlists")
    groups = _mapping(top.get("categories", {}), f"{where}: categories", ("system", "custom"))
    found: dict[str, Category] = {}
    for group in ("system", "custom"):
        for number, each in enumerate(_list(groups.get(group, []), f"{where}: categories.{group}")):
            made = _category(each, f"{where}: categories.{group}[{number}]")
            if made.name in found:
                raise Misconfigured(f"{where}: the category {made.name!r} is declared twice")
            found[made.name] = made
    lists = _mapping(top.get("allowlists", {}), f"{where}: allowlists", None)
    allowed = {
        agent: _names(names, f"{where}: allowlists.{agent}") for agent, names in lists.items()
    }
    undeclared = {
        name: Category(name=name)
        for names in allowed.values()
        for name in names
        if name not in found
    }
    custom = [canonical(str(each["name"])) for each in groups.get("custom", [])]
    return Access(categories={**found, **undeclared}, allowlists=allowed, custom=tuple(custom))


def _parsed(path: Path) -> Any:
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        return _yaml(text, path)
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{path} cannot be read: {error}") from error


def _yaml(text: str, path: Path) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise Misconfigured(
            f'{path} is YAML: pip install "memorist[supervisor]", or write the same as TOML into a .toml file'
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Misconfigured(f"{path} is no YAML: {' '.join(str(error).split())}") from error


def _category(given: Any, where: str) -> Category:
    fields = _mapping(given, where, ("name", "context", "rag_length", "description"))
    name, context = fields.get("name"), fields.get("context", "rag")
    length = fields.get("rag_length", ALL if context == "all" else USUAL_LENGTH)
    if not isinstance(name, str) or not name.strip():
        raise Misconfigured(f"{where} needs a name: a text, not {name!r}")
    if context not in ("all", "rag"):
        raise Misconfigured(f"{where}.context is all or rag, not {context!r}")
    if isinstance(length, bool) or not isinstance(length, int) or not (length == ALL or length > 0):
        raise Misconfigured(
            f"{where}.rag_length is a whole number of at least 1, or -1 for all, not {length!r}"
        )
    return Category(
        name=canonical(name), context=cast(Literal["all", "rag"], context), rag_length=length
    )


def _mapping(given: Any, where: str, known: Sequence[str] | None) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise Misconfigured(f"{where} is a mapping of names, not {given!r:.60}")
    if known is not None and (unknown := [key for key in given if key not in known]):
        raise Misconfigured(f"{where} knows no {unknown[0]!r}: it takes {', '.join(known)}")
    return given


def _list(given: Any, where: str) -> Sequence[Any]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise Misconfigured(f"{where} is a list, not {given!r:.60}")
    return given


def _names(given: Any, where: str) -> tuple[str, ...]:
    names = _list(given, where)
    if wrong := [each for each in names if not isinstance(each, str) or not each.strip()]:
        raise Misconfigured(f"{where} holds names of categories, not {wrong[0]!r}")
    return tuple(dict.fromkeys(canonical(each) for each in names))


USUAL = read(
    {
        "categories": {
            "system": [
                {"name": "profile", "context": "all"},
                {"name": "event", "context": "rag", "rag_length": 30},
                {"name": "activity", "context": "rag", "rag_length": 50},
            ],
            "custom": [],
        },
        "allowlists": {
            "supervisor": [
                "profile",
                "goals",
                "preferences",
                "event",
                "activity",
                "relationships",
                "tasks",
            ],
            "planner": ["goals", "tasks", "projects", PROCEDURAL],
            "stylist": ["preferences", "tone", "style"],
            "researcher": ["knowledge", "interests", "history"],
            "executor": ["tasks", "recent_activity", "constraints", PROCEDURAL],
        },
    },
    "the usual categories",
)
