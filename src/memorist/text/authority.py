"""Decide whose words a memory has. Only the user's own become a preference, an instruction or a
field of the profile.

The decision rests on who spoke, as reported by the application, and never on what was said: a text
can be made to fit any rule.
"""

import re
from unicodedata import normalize

from ..types import Memory

_OWN_ROLES = ("user", "human")
ROLE_WORDS = frozenset("user human assistant ai system developer tool function".split())
_WORD = re.compile(r"[^\W_]+")
A_NAME = " (a name)"  # follows a name that could be taken for a role


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


def is_user(speaker: str, user: str) -> bool:
    """Return whether a stored speaker is the user: by the role, or by the name of the scope.

    >>> is_user("user", "ana"), is_user("Ana", "ana"), is_user("Bo", "ana")
    (True, True, False)
    """
    return speaker in _OWN_ROLES or is_own("user", speaker, user)


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


def _fold(name: str) -> str:
    return " ".join(name.split()).casefold()
