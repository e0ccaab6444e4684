"""Files with one record or message per line, as `import` reads them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import IO

from ...errors import InvalidInput
from ...storage import HEADS
from ...types import FAKE_ID, frozen
from .. import Json
from .app import decode

BATCH = 64  # lines imported together: few enough for a moving progress bar


@frozen
class Line:
    """One record of a file."""

    number: int
    record: Json
    read: int  # bytes up to its end

    @property
    def is_message(self) -> bool:
        return "content" in self.record

    def is_since(self, start: datetime | None) -> bool:
        """Whether it is not older than a time; without a time of its own only if all are wanted."""
        from ...readers.provider_messages import time_of  # with numpy, which others do without

        if start is None:
            return True
        if not self.is_message:
            raise InvalidInput(f"Line {self.number} is no message: --since only applies to these")
        at = time_of(self.record)
        return at is not None and at >= start

    @property
    def is_counted(self) -> bool:
        """Whether it is a record: the first line of an export only describes it."""
        return self.record.get("record_type") not in HEADS


def split_batches(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Yield batches of lines of one kind. Before an error, yield the lines read so far."""
    batch: list[Line] = []
    try:
        for line in lines:
            if batch and (len(batch) == BATCH or line.is_message != batch[0].is_message):
                yield batch
                batch = []
            batch.append(line)
    except InvalidInput:
        yield batch
        raise
    yield batch


def read_lines(file: IO[bytes]) -> Iterator[Line]:
    """Yield the records of a file. Raises InvalidInput with the line number."""
    read = 0
    for number, raw in enumerate(file, 1):
        read += len(raw)
        text = decode(raw, f"Line {number}").strip().removeprefix("\ufeff")
        if not text:
            continue
        expected = 'Expected one JSON object per line, for example {"content": "…"}'
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"Line {number} is not JSON. {expected}") from error
        if not isinstance(record, dict):
            raise InvalidInput(f"Line {number} is not a JSON object. {expected}")
        yield Line(number=number, record=record, read=read)


def add_ids(lines: Iterable[Line], *, name: str, session: str | None) -> Iterator[Line]:
    """Give each message a session and an id, so that importing a file twice changes nothing.

    Messages without a session form one, with the given name and a digest of its first message.
    """
    seen: Counter[str] = Counter()
    for line in lines:
        record = line.record
        if line.is_message:
            if session is None:
                session = f"{name}-{_digest(record)[:8]}"
            record["session"] = record.get("session") or session
            if record.get("id") in (None, FAKE_ID):
                digest = _digest(record)
                record["id"] = f"import-{_digest(record, seen[digest])[:24]}"
                seen[digest] += 1
        yield line


def _digest(record: Json, repetition: int = 0) -> str:
    rest = {name: value for name, value in record.items() if name != "id"}
    text = f"{repetition}:{json.dumps(rest, sort_keys=True)}"
    return hashlib.sha256(text.encode()).hexdigest()
