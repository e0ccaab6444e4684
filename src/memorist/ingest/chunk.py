"""A chunk: as much of a draft as becomes one memory, with everything that is known before it meets the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ..text import entities, normalize, tokens
from ..text.entities import Entity
from ..text.statements import Statement, parse
from ..types import Draft
from . import importance, split
from .policies import Policy

WINDOW = 200  # tokens by our count that surely fit into the 256 word chunks of the packaged model


@dataclass(frozen=True)
class Chunk:
    """A text about to be remembered."""

    draft: Draft
    text: str

    @cached_property
    def content_hash(self) -> str:
        """The same for texts that differ only in case and blanks."""
        return normalize.content_hash(self.text)

    @cached_property
    def simhash(self) -> int:
        return normalize.simhash64(self.text)

    @cached_property
    def statement(self) -> Statement:
        """What it says, as texts are compared."""
        return parse(self.text)

    @cached_property
    def entities(self) -> list[Entity]:
        """The names in it."""
        return entities.entities(self.text)

    @cached_property
    def about(self) -> list[Entity]:
        """What it is about, and how sure that is; a turn of a conversation is about what the turns around it are."""
        return (
            []
            if self.draft.labels.session is not None
            else entities.about(self.text, lambda _: self.entities)
        )

    @property
    def tags(self) -> tuple[tuple[str, ...], float]:
        """The same as tags."""
        return entities.tags(self.about)

    @cached_property
    def salience(self) -> importance.Salience:
        """The signals in it."""
        return importance.salience(self.text, detect=lambda _: self.entities)


def chunks(
    draft: Draft, policy: Policy, count: Callable[[str], int] = tokens.count_tokens
) -> list[Chunk]:
    """Clean a draft and cut it where the policy says, or where the model could not read it at once."""
    text = normalize.clean(draft.text)
    if policy.longest is not None:
        text = normalize.one_line(text)[: policy.longest]
    if not text:
        return []
    minimum, maximum = policy.chunk or (0, WINDOW)
    if count(text) <= maximum:
        return [Chunk(draft, text)]
    return [Chunk(draft, part) for part in split.by_meaning(text, count, minimum, maximum)]
