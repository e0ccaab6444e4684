"""The command that checks an installation: `doctor` finds problems and says how to fix them.

A check of `doctor` covers one thing and creates no files. If it raises, that is its finding.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

import memorist

from ...errors import MemoristError
from .. import FAILED, OK, SERVER, Call, load, plain
from . import variables
from .app import command
from .output import grid

if TYPE_CHECKING:
    from ...ports import Embedder
    from ...settings import Settings

_SQLITE = (3, 51, 3)  # older ones can lose commits when several processes use one file
_NEEDED = ("apsw", "numpy", "onnxruntime", "pydantic", "snowballstemmer", "typer")
_SIGNS = {"good": ("ok", "green"), "poor": ("warn", "yellow"), "bad": ("bad", "bold red")}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    about: str
    state: str  # good · poor · bad
    seen: str
    mend: str = ""  # what to do, unless the state is good


Findings = Iterator[tuple[str, ...]]  # the fields of findings


@command("doctor")
def doctor(call: Call) -> object:
    """Check the installation, the settings, the model and the database; say how to fix problems."""
    found = _run(INSTALLATION)
    try:
        settings = load("settings").load(db=call.db)
    except MemoristError as error:
        seen = str(error).removesuffix(". See `memorist doctor`")
        fix = "fix it in the environment or in memorist.toml"
        found.append(Finding("settings", "bad", seen, fix))
    else:
        found += _run(CONFIGURATION, settings)
    is_healthy = all(finding.state != "bad" for finding in found)
    rows = []
    for finding in found:
        sign, style = _SIGNS[finding.state]
        text = Text(plain(finding.seen))
        if finding.mend:
            text.append(f"\nto fix it: {finding.mend}", style="yellow")
        rows.append((Text(sign, style=style), finding.about, text))
    report = {"well": is_healthy, "python": platform.python_version(), "findings": found}
    return report, grid(rows, columns=3, space=2), (), OK if is_healthy else FAILED


def _run(checks: Iterable[Callable[..., Findings]], *given: Settings) -> list[Finding]:
    found: list[Finding] = []
    for work in checks:
        try:
            found.extend(Finding(*each) for each in work(*given))
        except Exception as error:
            about = work.__name__.removeprefix("check_").replace("_", " ")
            seen = f"{type(error).__name__}: {error}"
            found.append(Finding(about, "bad", seen, "see the message"))
    return found


def check_program() -> Findings:
    system = f"{platform.system()} {platform.machine()}"
    python = platform.python_version()
    yield "program", "good", f"memorist {memorist.__version__}, Python {python}, {system}"


def check_packages() -> Findings:
    installed = []
    for name in _NEEDED:
        try:
            installed.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield "packages", "bad", f"missing: {name}", f"pip install {name}"
    yield "packages", "good", ", ".join(installed)


def check_sqlite() -> Findings:
    import apsw

    installed = apsw.sqlite_lib_version()
    seen = f"{installed} (through apsw)"
    if tuple(map(int, installed.split("."))) >= _SQLITE:
        yield "sqlite", "good", seen
    else:
        wanted = ".".join(map(str, _SQLITE))
        yield "sqlite", "poor", seen, f"pip install --upgrade 'apsw>={wanted}'"


def check_settings(settings: Settings) -> Findings:
    changed = sorted(settings.model_fields_set - {"db"})
    values = [f"{name}={_without_password(str(getattr(settings, name)))}" for name in changed]
    listed = ", ".join(values) or "all defaults"
    file = load("settings").config_file()
    yield "settings", "good", f"{listed}; configuration file: {file}"
    for variable, close in variables.find_unknown():
        fix = f"did you mean {close}?" if close else "correct the name or remove it"
        yield "settings", "poor", f"unknown variable {variable}", fix


def check_model(settings: Settings) -> Findings:
    fix = "set MEMORIST_EMBEDDER=minilm, then run `memorist index`"
    kind, _, name = settings.embedder.partition(":")
    if kind == "none":
        yield "model", "poor", "none: keyword search only, no semantic search", fix
    elif kind == "hashing":
        yield "model", "poor", "hashing: for tests only, no semantic search", fix
    elif kind == "openai":
        where = _without_password(settings.embedder_url or "OpenAI")
        yield "model", "good", f"{name or kind}, remote: every text is sent to {where}"
    elif kind != "minilm":
        yield "model", "good", f"{settings.embedder}, an installed plug-in"
    else:
        model = load("embedders.local").MiniLM()
        try:
            milliseconds = 1000 * asyncio.run(_time_encoding(model))
            if settings.verifier:
                asyncio.run(_try_verifier())
        except MemoristError as error:
            fix = "reinstall: pip install --force-reinstall memorist"
            yield "model", "bad", str(error), fix
        else:
            size = f"{model.dimensions} dimensions, {milliseconds:.0f} ms per sentence"
            yield "model", "good", f"{model.model}, packaged, {size}"


async def _try_verifier() -> None:
    """Verify one sentence. Raises ProviderFailed."""
    verifier = load("rerankers").Verifier(load("embedders.local").MINILM)
    await verifier.read_pairs([("Does it work?", "It works.")])
    await verifier.close()


async def _time_encoding(model: Embedder) -> float:
    """Return the seconds that one sentence takes once the model is loaded."""
    await model.encode_batch(["warm up"])
    start = time.perf_counter()
    await model.encode_batch(["How long does one sentence take?"])
    seconds = time.perf_counter() - start
    await model.close()
    return seconds


def check_language_model(settings: Settings) -> Findings:
    about = "language model"
    if settings.llm == "none":
        yield about, "good", "none: rules are used, and no text leaves this machine"
        return
    try:
        load("aio").language_model(settings)
    except MemoristError as error:  # its message says what to do
        yield about, "bad", str(error)
        return
    where = _without_password(settings.llm_url or "its provider")
    user = settings.llm_daily_tokens_per_user
    tenant = settings.llm_daily_tokens_per_tenant
    limits = f"{user:,} tokens per user and {tenant:,} per tenant a day (0: no limit)"
    yield about, "good", f"{settings.llm} at {where}, at most {limits}"


def check_cache(settings: Settings) -> Findings:
    folder = settings.state_dir
    if settings.cache_mb == 0:
        yield "cache", "good", "off"
    elif _is_writable(folder):
        yield "cache", "good", f"{folder}, at most {settings.cache_mb} MB"
    else:
        fix = "set MEMORIST_STATE_DIR to a writable folder"
        yield "cache", "poor", f"{folder} is not writable: each text is embedded again", fix


def _is_writable(path: Path) -> bool:
    """Return whether a file can be created there, or in the nearest folder above that exists."""
    existing = next(each for each in (path, *path.parents) if each.exists())
    return existing.is_dir() and os.access(existing, os.W_OK)


def check_file(settings: Settings) -> Findings:
    place = settings.db
    if place.startswith(SERVER):
        try:
            load("interfaces.remote").Remote(settings).send("GET /v1/memory/settings")
        except MemoristError as error:  # its message says what to do
            yield "server", "bad", str(error)
        else:
            yield "server", "good", f"{place} answers and accepts the key"
        return
    path = Path(place)
    is_file = place != ":memory:" and "://" not in place
    if is_file and not path.exists():
        if _is_writable(path.parent):
            yield "file", "good", f"{place} will be created by the first `memorist remember`"
        else:
            fix = "set --db or MEMORIST_DB to a file in a writable folder"
            yield "file", "bad", f"{place} cannot be created", fix
        return
    try:
        with memorist.open(place) as memory:
            counts = memory.stats()
            problems = memory.check()
            # An open database has a file with reserved space, unless it is temporary.
            is_temporary = load("storage.sqlite.connection").is_temporary(path.absolute())
            reserve = path.with_name(f"{path.name}-reserve")
            has_reserve = not is_file or is_temporary or reserve.exists()
    except MemoristError as error:  # its message says what to do
        yield "file", "bad", str(error)
        return
    stored = counts["memories"]
    size = counts["bytes"]
    missing = counts["without_embeddings"]
    yield "file", "good", f"{_without_password(place)}, {stored} memories, {size:,} bytes"
    if not has_reserve:
        seen = "no space is reserved: forgetting may fail when the disk is full"
        yield "disk", "poor", seen, "free a few megabytes, or make the folder writable"
    if not problems:
        yield "health", "good", "no problems in the stored data"
    for problem in problems[:10]:
        fix = "`memorist export`, then import into a new file, or restore a backup"
        yield "health", "bad", problem, "" if "memorist" in problem else fix
    if len(problems) > 10:
        yield "health", "bad", f"and {len(problems) - 10} more"
    if settings.embedder == "none":
        return
    if missing:
        seen = f"{missing} of {stored} memories can only be found by keywords"
        yield "index", "poor", seen, "run `memorist index`"
    else:
        yield "index", "good", f"every memory is embedded by {counts['model']}"


def check_spool(settings: Settings) -> Findings:
    """Check for writes that wait for the store, and for lines that could not be replayed."""
    spool = load("aio").Spool.of(settings)
    if spool is None:
        yield "spool", "good", "off: writes fail while the store is down"
        return
    waiting = len(spool.waiting())
    aside = spool.set_aside()
    if waiting:
        fix = "start the store, then run `memorist db replay`"
        yield "spool", "poor", f"{waiting} waiting in {spool.folder}", fix
    for path in aside:
        fix = "read the lines, store again what is needed, and remove the file"
        yield "spool", "poor", f"lines that could not be replayed: {path}", fix
    if not waiting and not aside:
        yield "spool", "good", f"empty; its folder is {spool.folder}"


def _without_password(place: str) -> str:
    """Return an address without its password.

    >>> _without_password("postgresql://ana:secret@db.example/memories?password=secret")
    'postgresql://ana@db.example/memories?password=…'
    """
    if "://" not in place:
        return place
    hidden = re.sub(r"(?<=://)([^:/@]*):[^/@]*@", r"\1@", place)
    return re.sub(r"(?<=[?&]password=)[^&]*", "…", hidden)


# In order of dependency.
INSTALLATION = (check_program, check_packages, check_sqlite)
CONFIGURATION = (
    check_settings,
    check_model,
    check_language_model,
    check_cache,
    check_file,
    check_spool,
)
