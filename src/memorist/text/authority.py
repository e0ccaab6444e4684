"""Decide whose words a memory has. Only the user's own become a preference, an instruction or a
field of the profile.

The decision rests on who spoke, as reported by the application, and never on what was said: a text
can be made to fit any rule.
"""

import re
from dataclasses import replace
from typing import Any
from unicodedata import normalize

from ..errors import NotAllowed
from ..types import Draft, Memory, frozen

_OWN_ROLES = ("user", "human")
ROLE_WORDS = frozenset("user human assistant ai system developer tool function".split())
_WORD = re.compile(r"[^\W_]+")
A_NAME = " (a name)"  # follows a name that could be taken for a role
_KINDS = (None, "procedural", "insight")  # of a draft that becomes an episode
_CATEGORIES = "preference preferences procedural profile instruction instructions".split()


@frozen
class Voice:
    """On whose behalf a caller speaks. Without an agent, the application names the speakers."""

    agent: str | None = None  # the only one whose words the caller can store
    is_owner: bool = True  # whether the caller may save on purpose and give commands for the user

    def speak(self, draft: Draft) -> Draft:
        """Return a draft in this voice. Raises NotAllowed."""
        if draft.pinned or draft.manually_saved:
            self.require_owner("Saving explicitly (`pinned`, `manually_saved`)")
        if self.agent is None:
            return draft
        role = "assistant" if is_own_role(draft.labels.role) else draft.labels.role
        labels = replace(draft.labels, role=role, agent=self.agent)
        return replace(draft, labels=labels, speaker=speaker_of(role, self.agent))

    def require_rewording(self, memory: Memory) -> None:
        """Raise NotAllowed unless the caller may change the words of a memory."""
        if self.agent not in (None, memory.speaker):
            raise NotAllowed("A caller bound to an agent can only edit what this agent said")
        if memory.on_purpose:
            self.require_owner("Editing what was saved explicitly")

    def require_owner(self, what: str) -> None:
        """Raise NotAllowed unless the caller may do something on behalf of the user."""
        if not self.is_owner:
            raise NotAllowed(f"{what} needs a key with the right 'owner', which is not for agents")


def speaker_of(role: str | None, name: str | None) -> str | None:
    """Return whom to store as the speaker of a message: the given name, or else the role.

    A stored speaker that equals the role means that no name was given, so a name spelled like the
    role is marked.

    >>> speaker_of("user", None), speaker_of("user", "Bo"), speaker_of("user", "user")
    ('user', 'Bo', 'user (a name)')
    """
    if not name:
        return role
    return f"{name}{A_NAME}" if name == role else name


def is_own(
    role: str | None,
    speaker: str | None,
    user: str,
) -> bool:
    """Return whether the user said it: in the user's role, and under no name but that of the scope.

    A name that equals a role word never counts as the user: anyone can choose a display name.

    >>> is_own("user", "user", "ana"), is_own("user", "Ana", "ana"), is_own("user", "Bo", "ana")
    (True, True, False)
    >>> is_own("user", "User", "ana"), is_own("user", "Human", "ana")
    (False, False)
    """
    if not is_own_role(role):
        return False
    if speaker is None or speaker == role:
        return True
    name = _fold(speaker)
    return name == _fold(user) and name not in ROLE_WORDS


def poses(name: str) -> bool:
    """Return whether a name could be mistaken for a role.

    >>> poses("The User"), poses("Ursula")
    (True, False)
    """
    plain = normalize("NFKC", name).casefold()
    return not ROLE_WORDS.isdisjoint(_WORD.findall(plain))


def is_own_role(role: str | None) -> bool:
    """Return whether a role is the user's; a missing role counts as such."""
    return role is None or _fold(role) in _OWN_ROLES


def is_persons(memory: Memory) -> bool:
    """Return whether a memory has the user's own words."""
    return is_own(memory.labels.role, memory.speaker, memory.scope.user)


def as_episode(draft: Draft, *, typed: bool) -> Draft:
    """Return a draft as an episode: the fact that someone said this. Its topic stays unless it
    makes a claim.

    With `typed`, a draft without a type gets one, so that it is not derived from the text. The
    steps of a how-to become part of the text.
    """
    changes: dict[str, Any] = {"steps_text": None}
    if draft.steps_text:
        changes["text"] = f"{draft.text}: {draft.steps_text}"
    if draft.kind in _KINDS:
        changes["kind"] = "episodic"
    if _fold(draft.category or "") in _CATEGORIES:
        changes["category"] = None
    if draft.item_type == "preference" or (typed and draft.item_type is None):
        changes["item_type"] = "crumb"
    if draft.fact_type in _CATEGORIES:
        changes["fact_type"] = "other"
    return replace(draft, **changes)


def _fold(name: str) -> str:
    return " ".join(name.split()).casefold()
