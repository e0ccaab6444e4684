"""`memorist doctor`: check the installation, the models and the database, and how to fix problems.

Each check looks at one thing, never fails, and creates no files.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table
from rich.text import Text

import memorist

from ...errors import MemoristError
from .. import plain
from ..call import load
from . import output

if TYPE_CHECKING:
    from ...settings import Settings

_SQLITE = (3, 51, 3)  # older ones can lose commits when several processes use one file
_NEEDED = ("apsw", "numpy", "onnxruntime", "pydantic", "snowballstemmer", "typer")
FindingState = Literal["good", "poor", "bad"]
_SIGNS = {"good": ("ok", "green"), "poor": ("warn", "yellow"), "bad": ("bad", "bold red")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    about: str
    state: FindingState
    seen: str
    mend: str = ""  # what to do, unless the state is good


def _good(about: str, seen: str) -> Finding:
    return Finding(about=about, state="good", seen=seen)


def _poor(about: str, seen: str, mend: str) -> Finding:
    return Finding(about=about, state="poor", seen=seen, mend=mend)


def _bad(about: str, seen: str, mend: str = "") -> Finding:
    return Finding(about=about, state="bad", seen=seen, mend=mend)


def examine(db: str | None) -> list[Finding]:
    """Run all checks, in the order in which one thing depends on another."""
    found = _run(check_program, check_packages, check_sqlite)
    try:
        settings = load("settings").load(db=db)
    except MemoristError as error:
        seen = str(error).removesuffix(". See `memorist doctor`")
        return [*found, _bad("settings", seen, "fix it in the environment or in memorist.toml")]
    checks = check_settings, check_model, check_language_model, check_cache, check_file, check_spool
    return found + _run(*checks, given=(settings,))


def _run(*checks: Callable[..., Iterator[Finding]], given: Sequence[Any] = ()) -> list[Finding]:
    """Run some checks. If a check itself fails, that is a finding, too."""
    found: list[Finding] = []
    for check in checks:
        try:
            found += list(check(*given))
        except Exception as error:
            about = check.__name__.removeprefix("check_").replace("_", " ")
            found.append(_bad(about, f"{type(error).__name__}: {error}", "see the message"))
    return found


def check_program() -> Iterator[Finding]:
    system = f"{platform.system()} {platform.machine()}"
    python = platform.python_version()
    yield _good("program", f"memorist {memorist.__version__}, Python {python}, {system}")


def check_packages() -> Iterator[Finding]:
    installed, missing = [], []
    for name in _NEEDED:
        try:
            installed.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        mend = f"pip install {' '.join(missing)}"
        yield _bad("packages", f"missing: {', '.join(missing)}", mend)
    yield _good("packages", ", ".join(installed))


def check_sqlite() -> Iterator[Finding]:
    import apsw

    installed = apsw.sqlite_lib_version()
    seen = f"{installed} (through apsw)"
    if tuple(map(int, installed.split("."))) >= _SQLITE:
        yield _good("sqlite", seen)
    else:
        wanted = ".".join(map(str, _SQLITE))
        yield _poor("sqlite", seen, f"pip install --upgrade 'apsw>={wanted}'")


def check_settings(settings: Settings) -> Iterator[Finding]:
    changed = [name for name in sorted(settings.model_fields_set) if name != "db"]
    values = [f"{name}={_without_password(str(getattr(settings, name)))}" for name in changed]
    listed = ", ".join(values) or "all defaults"
    yield _good("settings", f"{listed}; configuration file: {load('settings').config_file()}")
    known = {*type(settings).model_fields, "config", "traceback"}
    for variable in sorted(os.environ):
        name = variable.removeprefix("MEMORIST_").lower()
        if not variable.startswith("MEMORIST_") or name in known:
            continue
        mend = "correct the name or remove it"
        if close := get_close_matches(name, known, n=1):
            mend = f"did you mean MEMORIST_{close[0].upper()}?"
        yield _poor("settings", f"unknown variable {variable}", mend)


def check_model(settings: Settings) -> Iterator[Finding]:
    mend = "set MEMORIST_EMBEDDER=minilm, then run `memorist index`"
    kind, _, name = settings.embedder.partition(":")
    if kind == "none":
        yield _poor("model", "none: only words are compared, not meanings", mend)
    elif kind == "hashing":
        yield _poor("model", "hashing: for tests, it compares no meanings", mend)
    elif kind == "openai":
        where = _without_password(settings.embedder_url or "OpenAI")
        yield _good("model", f"{name or kind}, remote: every text is sent to {where}")
    else:
        minilm = load("embedders.minilm")

        async def encode() -> float:
            model = minilm.MiniLM()
            await model.encode_batch(["warm up"])
            start = time.perf_counter()
            await model.encode_batch(["How long does one sentence take?"])
            seconds = time.perf_counter() - start
            await model.close()
            return seconds

        try:
            seconds = asyncio.run(encode())
        except MemoristError as error:
            mend = "reinstall: pip install --force-reinstall memorist"
            yield _bad("model", str(error), mend)
        else:
            size = f"{minilm.DIMENSIONS} dimensions, {1000 * seconds:.0f} ms per sentence"
            yield _good("model", f"{minilm.MODEL}, packaged, {size}")


def check_language_model(settings: Settings) -> Iterator[Finding]:
    about = "language model"
    if settings.llm == "none":
        yield _good(about, "none: rules are used, and no text leaves this machine")
        return
    try:
        load("bootstrap").language_model(settings)
    except MemoristError as error:  # its message says what to do
        yield _bad(about, str(error))
        return
    where = _without_password(settings.llm_url or "its provider")
    user, tenant = settings.llm_daily_tokens_per_user, settings.llm_daily_tokens_per_tenant
    limits = f"{user:,} tokens per user and {tenant:,} per tenant a day (0: no limit)"
    yield _good(about, f"{settings.llm} at {where}, at most {limits}")


def check_cache(settings: Settings) -> Iterator[Finding]:
    folder = settings.state_dir
    if settings.cache_mb == 0:
        yield _good("cache", "off")
    elif _is_writable(folder):
        yield _good("cache", f"{folder}, at most {settings.cache_mb} MB")
    else:
        mend = "set MEMORIST_STATE_DIR to a writable folder"
        yield _poor("cache", f"{folder} is not writable: each text is embedded again", mend)


def _is_writable(path: Path) -> bool:
    """Return whether a file can be created there, or in the nearest folder above that exists."""
    existing = next(each for each in (path, *path.parents) if each.exists())
    return existing.is_dir() and os.access(existing, os.W_OK)


def check_file(settings: Settings) -> Iterator[Finding]:
    place = settings.db
    if place != ":memory:" and "://" not in place and not Path(place).exists():
        if _is_writable(Path(place).parent):
            yield _good("file", f"{place} will be created by the first `memorist remember`")
        else:
            mend = "name a file in a writable folder with --db or MEMORIST_DB"
            yield _bad("file", f"{place} cannot be created", mend)
        return
    try:
        with memorist.open(place) as memory:
            counts, problems = memory.stats(), memory.check()
    except MemoristError as error:  # its message says what to do
        yield _bad("file", str(error))
        return
    stored, size = counts["memories"], counts["bytes"]
    yield _good("file", f"{_without_password(place)}, {stored} memories, {size:,} bytes")
    if not problems:
        yield _good("health", "no problems in the stored data")
    for problem in problems[:10]:
        mend = "`memorist export`, then import into a new file, or restore a backup"
        yield _bad("health", problem, "" if "memorist" in problem else mend)
    if len(problems) > 10:
        yield _bad("health", f"and {len(problems) - 10} more like these")
    if settings.embedder == "none":
        return
    missing = counts["without_embeddings"]
    if missing:
        seen = f"{missing} of {stored} memories can only be found by their words"
        yield _poor("index", seen, "run `memorist index`")
    else:
        yield _good("index", f"every memory is embedded by {counts['model']}")


def check_spool(settings: Settings) -> Iterator[Finding]:
    """Check for writes that wait for the store, and for lines that could not be replayed."""
    spool = load("bootstrap").Spool.of(settings)
    if spool is None:
        yield _good("spool", "off: writes fail while the store is down")
        return
    waiting, aside = len(spool.waiting()), spool.set_aside()
    if waiting:
        mend = "bring the store back, then run `memorist db replay`"
        yield _poor("spool", f"{waiting} waiting in {spool.folder}", mend)
    for path in aside:
        mend = "read the lines, remember what they say, and remove the file"
        yield _poor("spool", f"lines that could not be used: {path}", mend)
    if not waiting and not aside:
        yield _good("spool", f"empty; its files would be in {spool.folder}")


def _without_password(place: str) -> str:
    """Return an address without its password.

    >>> _without_password("postgresql://ana:secret@db.example/memories?password=secret")
    'postgresql://ana@db.example/memories?password=…'
    """
    if "://" not in place:
        return place
    hidden = re.sub(r"(?<=://)([^:/@]*):[^/@]*@", r"\1@", place)
    return re.sub(r"(?<=[?&]password=)[^&]*", "…", hidden)


def table(found: Sequence[Finding]) -> Table:
    """Return the findings as a table, with what to do below those that are not good."""
    rows = []
    for finding in found:
        sign, style = _SIGNS[finding.state]
        text = Text(plain(finding.seen))
        if finding.mend:
            text.append(f"\nto fix it: {finding.mend}", style="yellow")
        rows.append((Text(sign, style=style), finding.about, text))
    return output.grid(rows, columns=3, space=2)


def as_plain(found: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings as JSON values."""
    return {
        "well": all(finding.state != "bad" for finding in found),
        "python": sys.version.split()[0],
        "findings": [asdict(finding) for finding in found],
    }
