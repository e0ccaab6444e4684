"""Transcripts of coding agents: Claude Code and Codex."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..types import Draft
from .provider_messages import SYSTEM, TOOL, text_of
from .source import (
    ImportRun,
    Items,
    Skipped,
    Source,
    as_object,
    digest,
    message,
    moment,
    read_json_lines,
)

SIDE_CHAIN = "a conversation of a subagent"
DAMAGED = "a line that is not JSON"
COMMAND = "a command of the program"
# Slash commands, and text that a program writes in place of the person.
_BY_PROGRAM = re.compile(
    r"/[a-z][\w:-]*(?:\s|$)|\[Request interrupted|# AGENTS\.md instructions"
    r"|This session is being continued from a previous conversation"
    r"|<(?:command-|local-command|bash-|system-reminder|user-memory-input|user-prompt-submit-hook"
    r"|task-notification|environment_context|user_inst)"
)
# A part in a tag of the program's own; the usual ones of HTML have neither "_" nor "-".
_WRAPPED = re.compile(r"(?s)<([a-z]{1,30}(?:[_-][a-z]{1,30}){1,5})(?: [^>]{0,200})?>.*</\1>")
_IDE_REQUEST = re.compile(r"(?s)# Context from my IDE setup:.*?\n## My request for Codex:(.*)")
_EVENTS = {"user_message": "user", "agent_message": "assistant"}
_REMINDER = re.compile(  # up to the next tag of this kind, so that each is read once
    r"<system-reminder>[^<]*(?:<(?!/?system-reminder>)[^<]*)*</system-reminder>"
)


def read_claude_code(source: Source, how: ImportRun) -> Items:
    """Read `~/.claude/projects`: what the person and the agent wrote, without tools."""
    if "/subagents/" in f"/{source.name}":
        yield Skipped(SIDE_CHAIN)
        return
    for _, line in read_json_lines(source, how):
        yield Skipped(DAMAGED) if line is None else read_line(line, source.stem)


def read_line(line: Mapping[str, Any], name: str = "") -> Draft | Skipped:
    """Return a line of a transcript of Claude Code as a draft, or why it is left out.

    `name` is that of the session, if the line does not say it.
    """
    kind = line.get("type")
    said = line.get("message")
    if kind not in ("user", "assistant") or not isinstance(said, dict):
        return Skipped(SYSTEM if kind == "system" else f"a line of type {kind!r:.40}")
    if line.get("isSidechain"):
        return Skipped(SIDE_CHAIN)
    if line.get("isMeta") or line.get("isCompactSummary"):
        return Skipped(SYSTEM)
    given = _REMINDER.sub("", text_of(said.get("content")))
    if not given.strip():
        return Skipped(TOOL)
    text = _read_prompt(said.get("content")) if kind == "user" else given
    if not text:
        return Skipped(COMMAND)
    session = line.get("sessionId") or name
    return message(
        text,
        id=f"claude-code:{line.get('uuid') or digest(session, line.get('timestamp'), text)}",
        session=f"claude-code:{session}",
        role=kind,
        at=moment(line.get("timestamp")),
    )


def is_by_program(text: str) -> bool:
    """Return whether a prompt is a command of the program, or was written by it."""
    prompt = text.strip()
    return bool(_BY_PROGRAM.match(prompt) or _WRAPPED.fullmatch(prompt))


def _read_prompt(content: object) -> str:
    """Return the person's own words of a prompt: the parts that the program did not add.

    >>> _read_prompt(["<ide_selection>def f():</ide_selection>", "Explain this"])
    'Explain this'
    """
    parts = content if isinstance(content, list) else [content]
    texts = [_REMINDER.sub("", text_of([part])).strip() for part in parts]
    own = "\n".join(text for text in texts if text and not is_by_program(text))
    request = _IDE_REQUEST.fullmatch(own)
    return request[1].strip() if request else own


def read_codex(source: Source, how: ImportRun) -> Items:
    """Read `~/.codex/sessions`: messages of the person and the agent, each once."""
    lines = [line for _, line in read_json_lines(source, how)]
    events = [line for line in lines if line and line.get("type") == "event_msg"]
    kinds = [str(as_object(line.get("payload")).get("type")) for line in events]
    has_events = not _EVENTS.keys().isdisjoint(kinds)
    session = f"codex:{source.stem}"
    for number, line in enumerate(lines):  # also of damaged lines, which may be whole next time
        if line is None:
            yield Skipped(DAMAGED)
        else:
            yield _read_codex_line(line, session, number, has_events=has_events)


def _read_codex_line(
    line: dict[str, Any], session: str, number: int, *, has_events: bool
) -> Draft | Skipped:
    payload = as_object(line.get("payload"))
    kind = payload.get("type")
    if has_events and line.get("type") == "event_msg":
        role = _EVENTS.get(str(kind))
        content = payload.get("message")
    elif not has_events and line.get("type") == "response_item" and kind == "message":
        role = payload.get("role")
        content = payload.get("content")
    else:
        return Skipped(f"a line of type {kind or line.get('type')!r:.40}")
    if role not in ("user", "assistant"):
        return Skipped(SYSTEM)
    text = _read_prompt(content) if role == "user" else text_of(content)
    if not text and text_of(content).strip():
        return Skipped(COMMAND)
    return message(
        text,
        id=f"codex:{digest(session, number)}",
        session=session,
        role=role,
        at=moment(line.get("timestamp")),
    )
