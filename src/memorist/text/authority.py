"""Whose words a memory holds. Only the person's own become a preference, an instruction or a field
of the profile.

Decided by who spoke, as the application says it, and never by what was said: words can be made to
fit any rule.
"""

import re
from dataclasses import replace
from unicodedata import normalize

from ..types import Draft, Memory

_OWN_ROLES = ("user", "human")
ROLE_WORDS = frozenset("user human assistant ai system developer tool function".split())
_WORD = re.compile(r"[^\W_]+")
A_NAME = " (a name)"  # follows a name that could be taken for a role
_KINDS = ("procedural", "insight")
_CATEGORIES = "preference preferences procedural profile instruction instructions".split()


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


def is_own(role: str | None, speaker: str | None, user: str) -> bool:
    """Return whether the person said it: in their own role, and under no name but that of the
    scope.

    A name that equals a role word never counts as the person: display names are chosen freely.

    >>> is_own("user", "user", "ana"), is_own("user", "Ana", "ana"), is_own("user", "Bo", "ana")
    (True, True, False)
    >>> is_own("user", "User", "ana"), is_own("user", "Human", "ana")
    (False, False)
    """
    if not is_own_role(role):
        return False
    if speaker is None or speaker == role:
        return True
    return _fold(speaker) == _fold(user) and _fold(speaker) not in ROLE_WORDS


def poses(name: str) -> bool:
    """Return whether a name could be taken for a role.

    >>> poses("The User"), poses("Ursula")
    (True, False)
    """
    return not ROLE_WORDS.isdisjoint(_WORD.findall(normalize("NFKC", name).casefold()))


def is_own_role(role: str | None) -> bool:
    """Return whether a role is the person's; no role counts as theirs."""
    return role is None or _fold(role) in _OWN_ROLES


def is_persons(memory: Memory) -> bool:
    """Return whether a memory holds the person's own words."""
    return is_own(memory.labels.role, memory.speaker, memory.scope.user)


def as_episode(draft: Draft, *, typed: bool) -> Draft:
    """Return a draft as an episode: the fact that someone said this. Its topic stays if it claims
    nothing.

    With `typed`, a draft that names no type gets one, so that none is read out of its words. The
    steps of a how-to are kept as a part of what was said.
    """
    claims = draft.item_type == "preference" or (typed and draft.item_type is None)
    return replace(
        draft,
        text=f"{draft.text}: {draft.steps_text}" if draft.steps_text else draft.text,
        steps_text=None,
        kind="episodic" if draft.kind is None or draft.kind in _KINDS else draft.kind,
        category=None if _fold(draft.category or "") in _CATEGORIES else draft.category,
        item_type="crumb" if claims else draft.item_type,
        fact_type="other" if draft.fact_type in _CATEGORIES else draft.fact_type,
    )


def _fold(name: str) -> str:
    return " ".join(name.split()).casefold()
