"""Numbered migrations with checksums: a database knows what made it, and nothing is run twice or altered."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from ..errors import MigrationNeeded, StoreDamaged


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The SQL without comments, split at each ";" that is not inside `$$ … $$`.

        >>> Migration(1, "example", "SELECT 1; DO $$ BEGIN NULL; END $$; -- done").statements
        ['SELECT 1', ' DO $$ BEGIN NULL; END $$']
        """
        lines = (line.split("--")[0] for line in self.sql.splitlines())
        found = re.findall(r"(?:\$\$.*?\$\$|[^;])+", "\n".join(lines), re.DOTALL)
        return [statement for statement in found if statement.strip()]


def shipped(package: str) -> list[Migration]:
    """The migrations of an engine's package, in order."""
    folder = resources.files(package).joinpath("migrations")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [Migration(int(f.name[:4]), f.name[5:-4], f.read_text("utf-8")) for f in files]


def missing(done: Mapping[int, str], steps: Sequence[Migration], place: str) -> list[Migration]:
    """The steps still to do.

    Raises MigrationNeeded for a database from a newer version, StoreDamaged for an altered one.
    """
    known = {step.number: step.checksum for step in steps}
    newest = max(done, default=0)
    if newest > max(known):
        raise MigrationNeeded(
            f"{place!r} was made by a newer Memorist (schema {newest}): upgrade with pip"
        )
    altered = [number for number, checksum in done.items() if known.get(number) != checksum]
    if altered:
        raise StoreDamaged(f"Schema step {altered[0]} of {place!r} is not the one Memorist ships")
    return [step for step in steps if step.number > newest]
