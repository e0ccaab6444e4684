"""The space of a project: named after its folder, or by a `.memorist` file in it.

The file is TOML, and each line is optional:

    memory = false    # or true: turn memory off or on in this project
    space = "shop"    # use this space
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Misconfigured
from ..types import frozen

if TYPE_CHECKING:
    from ..sync import BlockingScope

MARKER = ".memorist"


@frozen
class Project:
    """What is known of a project."""

    space: str | None
    memory: bool | None = None  # whether its file turns memory on or off

    def apply(self, mine: BlockingScope) -> None:
        """Turn memory on or off as the file of the project says."""
        if self.memory is None or mine.privacy.settings().memory_enabled == self.memory:
            return
        mine.privacy.set(memory_enabled=self.memory, actor=MARKER)


def find_project(folder: str | Path) -> Project:
    """Return the project of a folder: that of the nearest `.memorist` file, or the folder itself.

    Folders of the same name at other places have other spaces. Raises Misconfigured if the file
    cannot be read.
    """
    if not str(folder):
        return Project(space=None)
    root = Path(folder).resolve()
    given: dict[str, object] = {}
    for each in (root, *root.parents):
        if (each / MARKER).is_file():
            root = each
            given = _read_marker(each / MARKER)
            break
    memory = given.get("memory")
    space = given.get("space")
    if not isinstance(memory, bool | None) or not isinstance(space, str | None):
        raise Misconfigured(f"{root / MARKER}: memory is true or false, and space a name")
    name = root.name.strip()[:180]
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogatepass")).hexdigest()
    return Project(space=space or (f"{name}-{digest[:6]}" if name else None), memory=memory)


def _read_marker(path: Path) -> dict[str, object]:
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{path} cannot be read: {error}") from error
    unknown = given.keys() - {"memory", "space"}
    if unknown:
        raise Misconfigured(f"{path}: unknown setting {min(unknown)!r}; use memory and space")
    return given
