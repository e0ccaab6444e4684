"""The categories of memories: how much of each goes into a context, and which agent may read it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
)

from ..errors import Misconfigured, NotAllowed
from ..text import wording
from ..types import frozen

DOCUMENTED = Path(__file__).with_name("categories.toml")
USUAL_LENGTH = 30  # memories of a category that does not say how many
ALL = -1
PROCEDURAL = "procedural"  # how-tos, which only agents that act on them are given
# Other names of a category: an agent that may read the category may read these memories.
_NAMES = "preference project relationship goal task interest constraint".split()
_ALIASES = {name: f"{name}s" for name in _NAMES} | {"relationship_dynamic": "relationships"}


def canonical(name: str) -> str:
    """Return the name under which a category is declared and allowed.

    >>> canonical("Preference"), canonical("relationship_dynamic"), canonical("tasks")
    ('preferences', 'relationships', 'tasks')
    """
    folded = name.strip().lower()
    return _ALIASES.get(folded, folded)


def spellings(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names under which memories of these categories are stored.

    >>> spellings(["relationships"])
    ('relationships', 'relationship', 'relationship_dynamic')
    """
    others = [alias for name in names for alias, known in _ALIASES.items() if known == name]
    return (*names, *others)


Name = Annotated[
    str,
    StringConstraints(strict=True, strip_whitespace=True, min_length=1),
    AfterValidator(canonical),
]


class Part(BaseModel):
    """A part of the file with categories and allowlists."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Category(Part):
    """What a memory can be about, and how much of it goes into a context."""

    name: Name
    context: Literal["all", "rag"] = "rag"  # the whole category, or what fits the question
    rag_length: int = Field(  # at most; -1: as many as there are
        default_factory=lambda known: ALL if known.get("context") == "all" else USUAL_LENGTH,
        strict=True,
        ge=ALL,
    )
    description: Any = None

    @field_validator("rag_length")
    @classmethod
    def _refuse_zero(cls, length: int) -> int:
        if length == 0:
            raise ValueError("at least 1, or -1 for all")
        return length


class Groups(Part):
    """The categories of the file."""

    system: list[Category] | None = None
    custom: list[Category] | None = None  # those that the application added


class AccessFile(Part):
    """The file with categories and allowlists."""

    categories: Groups | None = None
    allowlists: dict[str, list[Name] | None] | None = None


@frozen
class Access:
    """The categories, and which agent may read which."""

    categories: Mapping[str, Category]
    allowlists: Mapping[str, tuple[str, ...]]
    custom: tuple[str, ...] = ()  # of the categories, those that the application added

    def category(self, name: str) -> Category:
        """Return the category of memories with this name, which may be undeclared."""
        known = canonical(name)
        return self.categories.get(known) or Category(name=known)

    def allowed(self, agent: str, wanted: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the categories that an agent asks for, or all it may read.

        Raises NotAllowed if it may not read one.
        """
        if agent not in self.allowlists:
            known = ", ".join(sorted(self.allowlists))
            raise NotAllowed(f"Agent {agent!r} has no allowlist: choose one of {known}")
        own = self.allowlists[agent]
        asked = tuple(dict.fromkeys(map(canonical, wanted or own)))
        if refused := [each for each in asked if each not in own]:
            names = ", ".join(refused)
            raise NotAllowed(f"Agent {agent!r} may not read {names}: only {', '.join(own)}")
        return asked


def load(path: Path | None) -> Access:
    """Read a YAML or TOML file; without one, the documented categories and allowlists.

    Raises Misconfigured, naming the place.
    """
    path = path or DOCUMENTED
    try:
        file = AccessFile.model_validate(_read(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "categories and allowlists"
        raise Misconfigured(f"{path}: {place}: {wording.explain(first)}") from error
    groups = file.categories or Groups()
    custom = groups.custom or []
    found = {}
    for category in [*(groups.system or []), *custom]:
        if category.name in found:
            raise Misconfigured(f"{path}: the category {category.name!r} is declared twice")
        found[category.name] = category
    allowed = {}
    for agent, names in (file.allowlists or {}).items():
        allowed[agent] = tuple(dict.fromkeys(names or ()))
        for name in allowed[agent]:
            found.setdefault(name, Category(name=name))
    added = tuple(category.name for category in custom)
    return Access(categories=found, allowlists=allowed, custom=added)


def _read(path: Path) -> Any:
    """Return the contents of a YAML or TOML file."""
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".toml":
            data = tomllib.loads(text)
        else:
            import yaml  # type: ignore[import-untyped]

            try:
                data = yaml.safe_load(text)
            except yaml.YAMLError as error:
                why = " ".join(str(error).split())
                raise Misconfigured(f"{path} is not YAML: {why}") from error
    except ImportError as error:
        raise Misconfigured(
            f'{path} is YAML: pip install "memorist[supervisor]", or write it as TOML'
        ) from error
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{path} cannot be read: {error}") from error
    if not data:
        raise Misconfigured(f"{path} is empty: it should list categories and allowlists")
    return data
