"""Frozen help and output of every command."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from golden.files import Golden
from golden.normalize import Normalizer
from golden.stage import Stage
from memorist.interfaces.cli import app

Command = tuple[str, ...]
PROGRAM = "memorist"
WIDTH = "100"
CHAT = [
    {"content": "I sold my bicycle.", "name": "Ana", "at": "2024-03-10T10:00:00Z"},
    {"content": "It was red."},
]
TASK: dict[str, Any] = {
    "sessions": [
        {
            "at": "2024-03-04T09:00:00Z",
            "messages": [{"role": "user", "content": "The gate is green."}],
        }
    ],
    "question": "Which color has the gate?",
    "asked_at": "2024-03-20T09:00:00Z",
    "must": ["green"],
}
QUESTIONS: dict[str, Any] = {
    "name": "ana",
    "messages": [
        {"id": "m1", "speaker": "user", "text": "My sister Marta keeps bees in Braga."},
        {"id": "m2", "speaker": "user", "text": "I drink green tea every morning."},
    ],
    "questions": [
        {"question": "What does my sister do?", "evidence": ["m1"], "category": "fact"},
        {"question": "Who painted the Mona Lisa?", "evidence": [], "category": "unknown"},
    ],
}
FILES = {  # in the folder that the commands run in
    "memorist.toml": "",
    "chat.jsonl": "".join(f"{json.dumps(message)}\n" for message in CHAT),
    "bad.jsonl": "[1, 2]\n",
    "tasks/gate.json": json.dumps(TASK),
    "questions.jsonl": json.dumps(QUESTIONS),
}
# How each command is called, in words and then with --json. {name} is an id of the history.
CALLS: dict[str, list[str]] = {
    "": ["--version", "nonsense", "vacum", "tend"],
    "demo": [""],
    "remember": [
        "'I collect stamps from Peru.' --tag hobby", "'My password is hunter2-Xy77!'", "'I live in Lisbon.'", "''",
    ],
    "recall": [
        "'What does my sister do?'", "'What does my sister do?' --explain", "'What does my sister do?' --prompt",
        "'Submarine propeller?' --tag none", "standup --shared", "'What does my sister do?' --min-confidence 0.99",
        "'What does my sister do?' --min-confidence 0.99 --explain",
        "'What does my sister do?' --min-confidence 0.99 --prompt", "tea --min-confidence 1.5",
    ],
    "agent query": [
        "'What does my sister do?' --agent supervisor", "bees --agent nobody", "bees --agent supervisor --full",
    ],
    "list": ["", "--limit 2", "--state soft_deleted", "--user carl", "--tag drinks --pinned", "--limt 2"],
    "stats overview": [""],
    "show": ["{tea}", "00000000-0000-7000-8000-000000000000"],
    "why": ["{tea}", "{honey}"],
    "related": ["{honey}", "{cello}"],
    "why-not": ["'What does my sister do?' {cello}", "'What does my sister do?' {bees}"],
    "edit": ["{cello} 'On Mondays I play the cello.' --tag music", "{cello}"],
    "pin": ["{bees}"],
    "unpin": ["{peanuts}"],
    "forget": ["{cello} --yes", "{cello} --dry-run", "{cello} --keep-days 7", "--query 'sister Marta' --dry-run"],
    "undo": ["--session chat-2 --dry-run", "--session chat-2", "nothing"],
    "restore": ["{locker}", "{bees}"],
    "conflicts list": [""],
    "conflicts confirm": ["{blue}"],
    "conflicts reject": ["{blue}"],
    "conflicts both": ["{blue}"],
    "history": ["", "{tea}"],
    "agent context": [
        "'What does my sister do?' --session chat-1 --since 2 --budget 200",
        "bees --agent planner", "bees --agent nobody",
    ],
    "agent delta": ["chat-1 --since 2", "nowhere"],
    "stats events": ["--limit 5"],
    "stats event-counts": [""],
    "agent feedback": ["{tea} {bees} --reply 'Your sister Marta keeps bees in Braga.'", "{tea} --reply Hello."],
    "jobs purge": ["--dry-run", "--all"],
    "jobs extract": ["{porto}", "{honey}"],
    "jobs compress": ["--threshold 1 --dry-run", "--threshold 1"],
    "jobs roll-up": ["--days 1 --dry-run", "--days 1"],
    "db migrate": ["", "--partitions 4"],
    "jobs backfill": [""],
    "jobs run": ["", "--only nothing"],
    "jobs worker": ["--db empty.db"],
    "jobs backlog": [""],
    "eval": ["--tasks tasks --own", "questions.jsonl", "bad.jsonl"],
    "mcp": ["install claude-code --dry-run --hooks", "install"],
    "hook": [
        "before 'What does my sister do?'", "after 'I sold my bicycle.' --reply 'A pity.'", "session-start", "prompt",
    ],
    "db copy": ["memory.db other.db", "missing.db other.db"],
    "index reembed": ["--model hashing", "--model nonsense"],
    "privacy status": ["", "--session hidden"],
    "privacy set": ["off", "on --sharing", ""],
    "privacy incognito": ["start --session chat-1", "end --session hidden", "start"],
    "privacy erase": ["", "--yes", "--user nobody --yes --json"],
    "consent list": [""],
    "consent approve": ["{proposal}", ""],
    "consent deny": ["{proposal}"],
    "consent about": [""],
    "consent set": ["language Portuguese"],
    "consent withdraw": ["tone"],
    "agent say": ["'What do you remember about bees?'", "'Turn memory off.'", "'I had soup.'"],
    "serve": ["--port 0", "--host 0.0.0.0 --tenant other --db empty.db"],
    "keys list": [""],
    "keys create": ["phone --right read", ""],
    "keys revoke": ["{key}", "nothing"],
    "import": ["chat.jsonl", "bad.jsonl"],
    "export": ["", "out.jsonl", "--all out.jsonl"],
    "db backup": ["backup.db"],
    "index update": ["", "--dry-run --force", "--stats"],
    "index rebuild": [""],
    "stats summary": ["", "--all"],
    "stats llm-usage": [""],
    "doctor": [""],
    "db replay": [""],
    "db vacuum": [""],
}  # fmt: skip
STDIN = {"hook prompt": json.dumps({"prompt": "What does my sister do?", "session_id": "chat-1"})}
STOPPED = ("jobs worker --db empty.db", "serve --port 0")  # these run until they are told to stop
WIDE = ("doctor",)  # prints versions, whose length must not move line breaks
MEASURED = ("demo",)  # uses the packaged model, whose numbers depend on the processor
_COLORS = re.compile(r"\x1b\[[0-9;]*m")  # typer may color help, whatever the terminal is
_BARS, _MEASURES = re.compile("[█▉▊▋▌▍▎▏]+ *"), re.compile(r"[+-]?\b\d+\.\d+\b")


def commands(group: Any, path: Command = ()) -> Iterator[tuple[Command, Any]]:
    """Every command of the app with its words, groups included; the app itself has none."""
    yield path, group
    for name, inner in getattr(group, "commands", {}).items():
        yield from commands(inner, (*path, name))


PROGRAM_GROUP: Any = typer.main.get_command(
    app
)  # made once: typer would make all commands anew for each call
KNOWN = dict(commands(PROGRAM_GROUP))
LEAVES = {
    " ".join(path): command for path, command in KNOWN.items() if not hasattr(command, "commands")
}


def manners(name: str) -> tuple[str, ...]:
    """How a command can be asked to answer: in words, and in JSON if it has that option."""
    options = [
        option for parameter in KNOWN[tuple(name.split())].params for option in parameter.opts
    ]
    return ("", "--json") if "--json" in options else ("",)


def file_of(words: str) -> str:
    return f"{words.replace(' ', '-') or PROGRAM}.txt"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the fixed history, named by relative paths, and a terminal of a fixed width."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    program = tmp_path / "bin" / PROGRAM  # for what looks for the program itself
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    for name, value in {
        "DB": "memory.db",
        "STATE_DIR": "state",
        "SPOOL_DIR": "failsafe",
    }.items():
        monkeypatch.setenv(f"MEMORIST_{name}", value)
    monkeypatch.setenv("MEMORIST_CONFIG", "memorist.toml")
    monkeypatch.setenv("COLUMNS", WIDTH)
    for name in (
        "FORCE_COLOR",
        "TTY_COMPATIBLE",
        "TTY_INTERACTIVE",
    ):  # with these a pipe counts as a terminal
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(words: list[str], stdin: str = "") -> tuple[str, str, int]:
    """Run a command in this process, and return its stdout, stderr and exit code."""
    with CliRunner().isolation(input=stdin) as (out, err, _):
        with pytest.raises(SystemExit) as end:
            PROGRAM_GROUP.main(words)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return out.getvalue().decode(), err.getvalue().decode(), end.value.code or 0


@contextmanager
def stopping() -> Iterator[None]:
    """Send SIGTERM to this process once a block has begun to handle it."""
    before, over = signal.getsignal(signal.SIGTERM), threading.Event()
    priority = os.getpriority(os.PRIO_PROCESS, 0)  # a worker lowers it

    def stop() -> None:
        while signal.getsignal(signal.SIGTERM) == before and not over.wait(0.01):
            pass
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, priority)


def recorded(words: str, stage: Stage, folder: Path, normal: Normalizer) -> str:
    """One call of a command on a fresh copy of the history, as a person would see it."""
    for name in ("memory.db-wal", "memory.db-shm", "other.db", "backup.db", "out.jsonl"):
        (folder / name).unlink(missing_ok=True)
    stage.copy(folder)
    given = [word.format(**stage.ids) for word in shlex.split(words)]
    plain = words.removesuffix(" --json")
    with stopping() if plain in STOPPED else nullcontext():
        stdout, stderr, code = run(given, STDIN.get(plain, ""))
    errors = f"--- stderr\n{normal.printed(stderr)}" if stderr else ""
    return f"{normal.printed(stdout)}{errors}--- exit code {code}\n\n"


@pytest.mark.parametrize("path", KNOWN, ids=lambda path: " ".join(path) or PROGRAM)
def test_the_help_of_a_command_is_frozen(golden: Golden, path: Command) -> None:
    stdout, _, code = run([*path, "--help"])
    assert code == 0
    golden.check(f"cli/help/{file_of(' '.join(path))}", _COLORS.sub("", stdout))


def test_every_command_has_a_recorded_call() -> None:
    assert set(CALLS) == {"", *LEAVES}


@pytest.mark.parametrize("name", CALLS, ids=lambda name: name or PROGRAM)
def test_the_output_of_a_command_is_frozen(
    golden: Golden,
    normal: Normalizer,
    stage: Stage,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    if name in WIDE:
        monkeypatch.setenv("COLUMNS", "300")
    shown: dict[str, str] = {}  # by the call that showed it first
    text = ""
    for words in (
        " ".join(filter(None, (name, *call))) for call in product(CALLS[name], manners(name))
    ):
        output = recorded(words, stage, folder, normal)
        first = shown.setdefault(output, words)
        text += f"$ {PROGRAM} {words}\n" + (
            output if first == words else f"as {PROGRAM} {first}\n\n"
        )
    if name in MEASURED:
        text = _MEASURES.sub("<n>", _BARS.sub("<bar>", text))
    golden.check(f"cli/output/{file_of(name)}", text)
