"""Text files with the rows of a store, one JSON object per line."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from ..errors import InvalidInput, NotFound, RevisionConflict
from .atomic import new_file


@contextmanager
def create(path: Path) -> Iterator[TextIO]:
    """Open a new text file. Raises RevisionConflict if it exists."""
    if path.exists():
        raise RevisionConflict(f"{str(path)!r} exists already: choose another name")
    with new_file(path) as draft, open(draft, "w", encoding="utf-8") as file:
        yield file


def write_lines(file: TextIO, records: Sequence[dict[str, Any]]) -> None:
    """Write records, with bytes as Base64."""

    def encode(data: bytes) -> dict[str, str]:
        return {"base64": base64.b64encode(data).decode()}

    file.writelines(json.dumps(record, default=encode) + "\n" for record in records)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of an archive. Raises NotFound, InvalidInput."""

    def decode(found: dict[str, Any]) -> Any:
        if found.keys() != {"base64"}:
            return found
        return base64.b64decode(found["base64"], validate=True)

    if not path.exists():
        raise NotFound(f"File {str(path)!r} does not exist")
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            record = None
            with suppress(ValueError, TypeError):
                record = json.loads(line, object_hook=decode)
            if not isinstance(record, dict):
                raise InvalidInput(
                    f"Line {number} of {str(path)!r} cannot be read: "
                    "it is not an archive, or it is cut off or altered"
                )
            yield record


def take_shape(record: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Remove the table from a record; return it with the names of the columns."""
    table = str(record.pop("table", None))
    return table, tuple(record)
