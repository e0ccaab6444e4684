"""`memorist doctor`: what is installed, which model, how the file is, what is degraded and how to mend it.

Each check is a function that looks at one thing and never fails; it makes no file that was not there.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table
from rich.text import Text

from ...errors import MemoristError
from . import output

if TYPE_CHECKING:
    from ...settings import Settings

_SQLITE = (3, 51, 3)  # older ones can lose what was committed when several processes use one file
_NEEDED = ("apsw", "numpy", "onnxruntime", "pydantic", "snowballstemmer", "typer")
State = Literal["good", "poor", "bad"]
_SIGNS = {"good": ("ok", "green"), "poor": ("look", "yellow"), "bad": ("bad", "bold red")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    about: str
    state: State
    seen: str
    mend: str = ""  # what to do, if it is not good


def examined(db: str | None) -> list[Finding]:
    """Look at everything, in the order in which one thing rests on another."""
    found = [
        *_looked("program", _program),
        *_looked("packages", _packages),
        *_looked("sqlite", _sqlite),
    ]
    try:
        from ...settings import load

        settings = load(db=db)
    except MemoristError as error:
        seen, mend = (
            str(error).removesuffix(". See `memorist doctor`"),
            "correct it in the environment or in memorist.toml",
        )
        return [*found, Finding(about="settings", state="bad", seen=seen, mend=mend)]
    checks = {
        "settings": _settings,
        "model": _model,
        "language model": _language_model,
        "cache": _cache,
        "file": _file,
        "fail-safe": _files,
    }
    for about, look in checks.items():
        found += _looked(about, look, settings)
    return found


def _looked(about: str, look: Callable[..., Iterator[Finding]], *given: Any) -> list[Finding]:
    """What a check finds; if it fails itself, that is a finding too."""
    try:
        return list(look(*given))
    except Exception as error:
        return [
            Finding(
                about=about,
                state="bad",
                seen=f"{type(error).__name__}: {error}",
                mend="see the message",
            )
        ]


def _program() -> Iterator[Finding]:
    from ... import __version__

    seen = f"memorist {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield Finding(about="program", state="good", seen=seen)


def _packages() -> Iterator[Finding]:
    found = {name: _version(name) for name in _NEEDED}
    missing = [name for name, known in found.items() if known is None]
    seen = ", ".join(f"{name} {known}" for name, known in found.items() if known)
    if missing:
        mend = f"pip install {' '.join(missing)}"
        yield Finding(
            about="packages", state="bad", seen=f"missing: {', '.join(missing)}", mend=mend
        )
    yield Finding(about="packages", state="good", seen=seen)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _sqlite() -> Iterator[Finding]:
    import apsw

    known = apsw.sqlite_lib_version()
    fine = tuple(map(int, known.split("."))) >= _SQLITE
    wanted = ".".join(map(str, _SQLITE))
    mend = "" if fine else f"pip install --upgrade 'apsw>={wanted}'"
    yield Finding(
        about="sqlite", state="good" if fine else "poor", seen=f"{known} (through apsw)", mend=mend
    )


def _settings(settings: Settings) -> Iterator[Finding]:
    from ...settings import config_file

    changed = [name for name in sorted(settings.model_fields_set) if name != "db"]
    said = (
        ", ".join(f"{name}={_address(str(getattr(settings, name)))}" for name in changed)
        or "all as they come"
    )
    variables = sorted(name for name in os.environ if name.startswith("MEMORIST_"))
    unknown = [
        name for name in variables if name.removeprefix("MEMORIST_").lower() not in _names(settings)
    ]
    yield Finding(
        about="settings", state="good", seen=f"{said}; the file for them: {config_file()}"
    )
    if unknown:
        mend = "correct the name or remove it"
        yield Finding(
            about="settings", state="poor", seen=f"nobody reads {', '.join(unknown)}", mend=mend
        )


def _names(settings: Settings) -> set[str]:
    return {*type(settings).model_fields, "config", "traceback"}


def _model(settings: Settings) -> Iterator[Finding]:
    if settings.embedder == "none":
        mend = "set MEMORIST_EMBEDDER=minilm, then run `memorist index`"
        yield Finding(
            about="model",
            state="poor",
            seen="none: only words are compared, not meanings",
            mend=mend,
        )
        return
    if settings.embedder == "hashing":
        mend = "set MEMORIST_EMBEDDER=minilm, then run `memorist index`"
        yield Finding(
            about="model", state="poor", seen="hashing: for tests, it knows no meanings", mend=mend
        )
        return
    kind, _, named = settings.embedder.partition(":")
    if kind == "openai":
        where = _address(settings.embedder_url or "OpenAI")
        yield Finding(
            about="model",
            state="good",
            seen=f"{named or kind}, on a server: every text is sent to {where}",
        )
        return
    yield _tried()


def _language_model(settings: Settings) -> Iterator[Finding]:
    if settings.llm == "none":
        yield Finding(
            about="language model",
            state="good",
            seen="none: rules do its work, and nothing leaves here",
        )
        return
    from ...bootstrap import language_model

    try:
        language_model(settings)
    except MemoristError as error:  # whose message names the way out
        yield Finding(about="language model", state="bad", seen=str(error))
        return
    where = _address(settings.llm_url or "its maker")
    user, tenant = settings.llm_daily_tokens_per_user, settings.llm_daily_tokens_per_tenant
    caps = f"{user:,} tokens a user and {tenant:,} a tenant a day (0: no limit)"
    yield Finding(
        about="language model",
        state="good",
        seen=f"{settings.llm}, asked at {where}, at most {caps}",
    )


def _tried() -> Finding:
    """Whether the packaged model does its work, and how fast."""
    import asyncio

    from ...embedders.minilm import DIMENSIONS, MODEL, MiniLM

    async def encode() -> float:
        model = MiniLM()
        await model.encode_batch(["warm up"])
        begun = time.perf_counter()
        await model.encode_batch(["How long does one sentence take?"])
        took = time.perf_counter() - begun
        await model.close()
        return took

    try:
        took = asyncio.run(encode())
    except MemoristError as error:
        mend = "reinstall: pip install --force-reinstall memorist"
        return Finding(about="model", state="bad", seen=str(error), mend=mend)
    seen = f"{MODEL}, in the package, {DIMENSIONS} dimensions, {1000 * took:.0f} ms a sentence"
    return Finding(about="model", state="good", seen=seen)


def _cache(settings: Settings) -> Iterator[Finding]:
    folder = settings.state_dir
    if settings.cache_mb == 0:
        yield Finding(about="cache", state="good", seen="switched off")
    elif _writable(folder):
        yield Finding(about="cache", state="good", seen=f"{folder}, at most {settings.cache_mb} MB")
    else:
        mend = "set MEMORIST_STATE_DIR to a folder that can be written"
        seen = f"{folder} cannot be written: each text is embedded anew"
        yield Finding(about="cache", state="poor", seen=seen, mend=mend)


def _writable(path: Path) -> bool:
    """Whether something can be made there, or in the nearest folder above that exists."""
    there = next(each for each in (path, *path.parents) if each.exists())
    return there.is_dir() and os.access(there, os.W_OK)


def _file(settings: Settings) -> Iterator[Finding]:
    place = settings.db
    if place != ":memory:" and "://" not in place and not Path(place).exists():
        yield from _no_file(Path(place))
        return
    import memorist

    try:
        with memorist.open(place) as memory:
            counts, problems = memory.stats(), memory.check()
    except MemoristError as error:  # whose message names the way out
        yield Finding(about="file", state="bad", seen=str(error))
        return
    seen = f"{_address(place)}, {counts['memories']} memories, {counts['bytes']:,} bytes"
    yield Finding(about="file", state="good", seen=seen)
    yield from _health(problems)
    yield from _vectors(settings, counts)


def _files(settings: Settings) -> Iterator[Finding]:
    """What waits for a store that is away, and what could not be handed over to it."""
    from ...bootstrap import fail_safe_files

    spool = fail_safe_files(settings)
    if spool is None:
        yield Finding(
            about="fail-safe",
            state="good",
            seen="switched off: while the store is away, writing fails",
        )
        return
    waiting, aside = len(spool.waiting()), spool.set_aside()
    if waiting:
        mend = "bring the store back, then: memorist replay"
        yield Finding(
            about="fail-safe", state="poor", seen=f"{waiting} wait in {spool.folder}", mend=mend
        )
    for path in aside:
        mend = "look at the lines, remember what they say, and remove the file"
        yield Finding(
            about="fail-safe", state="poor", seen=f"lines that could not be used: {path}", mend=mend
        )
    if not waiting and not aside:
        yield Finding(
            about="fail-safe",
            state="good",
            seen=f"nothing waits; the files would be in {spool.folder}",
        )


def _address(place: str) -> str:
    """Where the memory is, without the password to it.

    >>> _address("postgresql://ana:secret@db.example/memories?password=secret")
    'postgresql://ana@db.example/memories?password=…'
    """
    hidden = re.sub(r"(?<=://)([^:/@]*):[^/@]*@", r"\1@", place)
    return re.sub(r"(?<=[?&]password=)[^&]*", "…", hidden) if "://" in place else place


def _no_file(place: Path) -> Iterator[Finding]:
    if _writable(place.parent):
        yield Finding(
            about="file", state="good", seen=f"{place} is made when the first thing is remembered"
        )
        return
    mend = "name a file in a folder that can be written, with --db or MEMORIST_DB"
    yield Finding(about="file", state="bad", seen=f"{place} cannot be made", mend=mend)


def _health(problems: Sequence[str]) -> Iterator[Finding]:
    if not problems:
        yield Finding(about="health", state="good", seen="nothing is wrong with what is stored")
    for problem in problems[:10]:
        mend = (
            ""
            if "memorist" in problem
            else "`memorist export`, then import into a new file, or restore a backup"
        )
        yield Finding(about="health", state="bad", seen=problem, mend=mend)
    if len(problems) > 10:
        yield Finding(about="health", state="bad", seen=f"and {len(problems) - 10} more like these")


def _vectors(settings: Settings, counts: dict[str, Any]) -> Iterator[Finding]:
    if settings.embedder == "none":
        return
    missing = counts["without_embeddings"]
    if missing:
        seen = f"{missing} of {counts['memories']} memories are found by their words only"
        yield Finding(about="index", state="poor", seen=seen, mend="run `memorist index`")
    else:
        yield Finding(
            about="index", state="good", seen=f"every memory is embedded by {counts['model']}"
        )


def table(found: Sequence[Finding]) -> Table:
    """The findings, with what to do below those that are not good."""
    made = Table.grid(padding=(0, 2))
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for finding in found:
        sign, style = _SIGNS[finding.state]
        text = Text(output.plain(finding.seen))
        if finding.mend:
            text.append(f"\nto mend it: {finding.mend}", style="yellow")
        made.add_row(Text(sign, style=style), finding.about, text)
    return made


def as_plain(found: Sequence[Finding]) -> dict[str, Any]:
    """The same for programs."""
    well = all(finding.state != "bad" for finding in found)
    return {
        "well": well,
        "python": sys.version.split()[0],
        "findings": [asdict(finding) for finding in found],
    }
