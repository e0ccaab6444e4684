"""What other programs noted: Mem0, knowledge graphs, Markdown, and LangGraph's store."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from .markdown import add_headings, read_entries
from .source import (
    Damaged,
    ImportRun,
    Items,
    Skipped,
    Source,
    as_list,
    digest,
    moment,
    note,
    opened,
    read_items,
    read_json_lines,
    read_text,
)

_TEXTS = "memory text data content".split()
_LISTS = "results memories items".split()
_DAY = re.compile(r"(\d{4})[-_](\d\d)[-_](\d\d)(?!\d)")
_CATEGORY = re.compile(r"\[([\w -]{1,40})\]\s+(.+)")
_RELATION = re.compile(r"([\w-][\w -]{0,40})\[\[([^\]|]{1,200})(?:\|[^\]]{0,200})?\]\]$")
# Fenced code, which stays as it is unless it is a query of a plugin, or a comment of Obsidian.
_NOISE = re.compile(r"(?ms)^(```+|~~~+)[ ]*([\w-]*).*?(?:^\1[^\n]*$|\Z)|^%%.*?%%|%%[^\n]*?%%")
_QUERIES = {"dataview", "dataviewjs", "tasks", "query", "base", "button"}  # plugins run these
_EMBED = re.compile(r"!\[\[[^\]]{1,200}\]\]|!\[[^\]]{0,200}\]\([^)]{1,1000}\)")
_CODE = ("```", "~~~")
_ANCHOR = re.compile(r"(?m)(?:^|(?<![ \t])[ \t]+)\^(?=[\d-]{0,60}[A-Za-z])[\w-]{2,60}$")
_LINK = re.compile(r"\[\[([^\]|]{1,200})(?:\|([^\]]{1,200}))?\]\]")
_TAG = re.compile(r"(?<!\S)#([\w/-]{1,60})")
_FRONT = re.compile(r"---[ \t\r]*\n(.{0,20000}?)\n---[ \t\r]*(?:\n|\Z)", re.S)


def read_mem0(source: Source, how: ImportRun) -> Items:
    """Read memories of Mem0: a list, or the list in an answer of its API."""
    kind, keys = source.shape
    names = [name for name in _LISTS if name in keys]
    if kind == "lines" or (kind == "object" and not names):
        found: Iterator[Any] = (line for _, line in read_json_lines(source, how))
    else:
        found = read_items(source, how, f"{names[0]}.item" if names else "item")
    for each in found:
        if not isinstance(each, dict):
            yield Skipped("not a memory")
            continue
        text = next((each[name] for name in _TEXTS if isinstance(each.get(name), str)), "")
        categories = each.get("categories")
        yield note(
            text,
            id=f"mem0:{each.get('id') or digest(text)}",
            at=moment(each.get("created_at") or each.get("updated_at")),
            tags=[categories] if isinstance(categories, str) else map(str, as_list(categories)),
        )


def read_server_memory(source: Source, how: ImportRun) -> Items:
    """Read the knowledge graph of the MCP memory server: observations and relations."""
    for _, line in read_json_lines(source, how):
        if line is None:
            yield Skipped("a line that is not JSON")
            continue
        if line.get("type") == "relation":
            start = line.get("from") or line.get("from_id")
            end = line.get("to") or line.get("to_id")
            verb = str(line.get("relationType") or line.get("relation_type") or "")
            text = f"{start} {verb.replace('_', ' ')} {end}"
            is_whole = start and end and verb
            id = f"server-memory:{digest(text)}"
            yield note(text, id=id) if is_whole else Skipped("a relation without an end")
            continue
        name = str(line.get("name") or line.get("entityName") or "")
        observations = as_list(line.get("observations"))
        if not observations:
            yield Skipped("an entity without observations")
        for said in observations:
            text = str(said.get("content") if isinstance(said, dict) else said)
            about = text if name.casefold() in text.casefold() else f"{name}: {text}"
            tags = [name, str(line.get("entityType") or "")]
            yield note(about, id=f"server-memory:{digest(name, text)}", tags=tags)


def read_markdown(source: Source, how: ImportRun) -> Items:
    """Read notes: a bullet or paragraph is a memory, with its headings, which are also its tags."""
    front, body = _split_front(read_text(source, how))
    title = str(front.get("title") or source.stem)
    own = [each for each in (title, *front.get("tags", ())) if each.upper() != each or " " in each]
    day = _DAY.match(source.stem)  # a daily note
    at = moment("-".join(day.groups())) if day else None
    at = at or moment(front.get("modified") or front.get("created") or front.get("date"))
    above = [title] if title in own and not day else []
    seen: set[str] = set()
    kept = _NOISE.sub(_keep_code, body)
    if kept != body:
        yield Skipped("comments and queries of Obsidian")
    for headings, entry in read_entries(kept):
        if entry.startswith("@"):
            yield Skipped("an @import line")
            continue
        if entry in ("---", "***", "___"):
            yield Skipped("a line between paragraphs")
            continue
        category = _CATEGORY.fullmatch(entry)
        relation = _RELATION.fullmatch(entry)
        if category:
            entry = category[2]
        elif relation:
            entry = f"{title} {relation[1].strip().replace('_', ' ')} {relation[2]}"
        bare = entry if entry.startswith(_CODE) else _ANCHOR.sub("", _EMBED.sub("", entry))
        text = _LINK.sub(lambda link: link[2] or link[1], _TAG.sub("", bare))
        if text.strip() and not relation:  # a relation is a sentence about the note
            text = add_headings([*above, *headings], text.strip())
        repeats = headings if entry in seen else ()  # the same words below other headings
        seen.add(entry)
        yield note(
            text,
            id=f"markdown:{digest(source.name, entry, *repeats)}",
            at=at,
            tags=[*own, *headings, *_TAG.findall(entry)],
            category=category[1].lower() if category else None,
        )


def _keep_code(found: re.Match[str]) -> str:
    fence, language = found[1], found[2]
    return found[0] if fence and language.lower() not in _QUERIES else ""


def _split_front(text: str) -> tuple[dict[str, Any], str]:
    """Return the fields of the front matter, and the text after it.

    Only plain values and lists are read, which is all that titles, dates and tags need.
    """
    found = _FRONT.match(text)
    if found is None:
        return {}, text
    fields: dict[str, Any] = {}
    last = ""
    for line in found[1].splitlines():
        name, colon, value = line.partition(":")
        if line.lstrip().startswith("- ") and last:
            before = fields.get(last)
            item = line.strip()[2:].strip(" \"'")
            fields[last] = [*(before if isinstance(before, list) else ()), item]
        elif colon and not line.startswith((" ", "\t")):
            last = name.strip().lower()
            fields[last] = value.strip().strip("\"'")
    tags = fields.get("tags", ())
    if isinstance(tags, str):
        tags = [tag.strip(" \"'#") for tag in tags.strip("[]").split(",")]
    fields["tags"] = [tag for tag in tags if tag]
    return fields, text[found.end() :]


def read_langgraph(source: Source, how: ImportRun) -> Items:
    """Read the items of a store of LangGraph that is kept in an SQLite file."""
    # Not sorted, which would read the whole table first and so lose it to any damage.
    sql = "SELECT prefix, key, value, created_at FROM store"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "store.db")
        with opened(source, how) as file, copy.open("wb") as target:
            shutil.copyfileobj(file, target)
        try:
            with closing(sqlite3.connect(copy)) as database:
                database.execute("PRAGMA writable_schema = ON")  # else a file cut off is refused
                for prefix, key, value, created in database.execute(sql):
                    try:
                        text = "; ".join(_texts(json.loads(value)))
                    except (ValueError, TypeError):
                        yield Skipped("a value that is not JSON")
                        continue
                    id = f"langgraph:{prefix}:{key}"
                    yield note(text, id=id, at=moment(created), tags=str(prefix).split("."))
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise Damaged(f"{source.name}: {error}") from error


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of an item: those with a usual name, or else all."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        usual = [value[name] for name in _TEXTS if isinstance(value.get(name), str)]
        for each in usual or value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def is_markdown(source: Source) -> bool:
    """Return whether a file is a note by its name."""
    return source.suffix in (".md", ".markdown", ".mdx")
