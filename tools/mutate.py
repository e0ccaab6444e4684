"""Mutation testing: plant one small change at a time, run the tests that should notice it, report those that did not.

python tools/mutate.py planted [MIL IMP-36 …]   changes of tools/mutants/, with the tests that claim the requirement
python tools/mutate.py replant                  write down where the planted changes stand in the source now
python tools/mutate.py generated [--count 300]  changes made by rule, with the tests that run the changed line
python tools/mutate.py map [TESTS …]            record which test runs which line, for `generated`; needs coverage.py

A planted change is found wherever its code stands now (tools/locate.py); those that are not found are listed as stale.
The exit status is 1 if more than 3 % of the changes survive that are not listed as equivalent. The tests run in copies
of the tree.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from queue import Queue

import pytest
from locate import Place, Tree, compiles

ROOT = Path(__file__).parents[1]
(PACKAGE,) = (path.parent for path in (ROOT / "src").glob("*/__init__.py"))
MUTANTS = ROOT / "tools" / "mutants"
MAP = ROOT / ".mutation-map.json"
SECONDS = 300  # for the tests of one change; a change that makes them hang is noticed
MOST_TESTS = 120  # for one generated change, the quickest first
MOST_SURVIVING = 0.03
NOT_MUTATED = (
    "evals/",
    "interfaces/demo.py",
    "interfaces/show.py",
    "interfaces/web/markup.py",
    "__main__.py",
)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one file, and the tests that should notice it."""

    path: str  # within the package
    line: int
    old: str
    new: str
    text: str  # the whole file, changed
    rule: str  # the kind of change, or the requirement that it breaks
    tests: tuple[str, ...]
    spec: str | None = None  # run only tests that claim this requirement
    equivalent: str | None = None  # why no test can notice it

    def __str__(self) -> str:
        return f"{self.path}:{self.line} [{self.rule}] {_short(self.old)} -> {_short(self.new)}"


def _short(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= 90 else f"{folded[:60]} … {folded[-25:]}"


# Changes written by hand, each against a requirement


def planted(wanted: Iterable[str]) -> tuple[list[Mutant], list[str]]:
    """Return the changes in tools/mutants/*.toml, and those that are not found in the source any more."""
    tree = source_tree()
    found: list[Mutant] = []
    stale: list[str] = []
    for file in planted_files():
        for entry in tomllib.loads(file.read_text("utf-8")).get("mutant", []):
            spec = entry["spec"]
            if wanted and not any(spec == name or spec.startswith(f"{name}-") for name in wanted):
                continue
            place = tree.find(entry["file"], entry["old"], entry["new"])
            if place is None:
                stale.append(f"{spec}: {entry['file']} {_short(entry['old'])!r}")
                continue
            source = tree.sources[place.path]
            mutant = Mutant(
                path=place.path,
                line=source[: place.start].count("\n") + 1,
                old=source[place.start : place.end],
                new=place.new,
                text=place.text,
                rule=spec,
                tests=tuple(entry.get("tests", ())) or tuple(files_naming(spec)),
                spec=None if "tests" in entry else spec,
                equivalent=entry.get("equivalent"),
            )
            found.append(mutant)
    return found, stale


def one_of_each_first(mutants: list[Mutant]) -> list[Mutant]:
    """Order changes so that a sample breaks as many requirements as possible."""
    earlier: Counter[str] = Counter()
    rounds = []
    for each in mutants:
        rounds.append((earlier[each.rule], each))
        earlier[each.rule] += 1
    return [each for _, each in sorted(rounds, key=lambda numbered: numbered[0])]


def planted_files() -> list[Path]:
    others = ("equivalent.toml", "renames.toml")
    return [file for file in sorted(MUTANTS.glob("*.toml")) if file.name not in others]


def source_tree() -> Tree:
    renames = MUTANTS / "renames.toml"
    return Tree.read(PACKAGE, tomllib.loads(renames.read_text("utf-8")) if renames.exists() else {})


def replant() -> int:
    """Rewrite the entries whose code has moved or was reworded, with the file and the text of today."""
    tree = source_tree()
    counts: Counter[str] = Counter()
    for file in planted_files():
        head, *entries = file.read_text("utf-8").split("[[mutant]]\n")
        for number, text in enumerate(entries):
            entry = tomllib.loads(text)
            place = tree.find(entry["file"], entry["old"], entry["new"])
            counts[place.step if place else "stale"] += 1
            if place is None or place.step == "text":
                continue
            old, new = _whole_lines(tree.sources[place.path], place)
            for name, value in (("file", place.path), ("old", old), ("new", new)):
                text = _with_value(text, name, value)
            assert tomllib.loads(text)["old"] == old, text
            entries[number] = text
        file.write_text("[[mutant]]\n".join([head, *entries]), "utf-8")
    print(", ".join(f"{count} {step}" for step, count in counts.most_common()))
    return 0


def _whole_lines(source: str, place: Place) -> tuple[str, str]:
    """Return the lines around a place, as few as make them unique in the file, before and after the change."""
    start, end = place.start, place.end
    while True:
        start = source.rfind("\n", 0, start) + 1
        end = source.find("\n", end)
        end = len(source) if end < 0 else end
        old = source[start:end]
        if source.count(old) == 1:
            return old, source[start : place.start] + place.new + source[place.end : end]
        start, end = max(0, start - 1), min(len(source), end + 1)


def _with_value(entry: str, name: str, after: str) -> str:
    """Replace the value of a key in the text of an entry."""
    value = r"(?:'''.*?'''|\"\"\".*?\"\"\"|'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\")"
    written = re.compile(rf"^{name} = {value}$", re.MULTILINE | re.DOTALL)
    plain = f'"{after}"' if name == "file" else f"'''{after}'''"
    if "'''" in after or after.startswith("\n"):
        plain = json.dumps(after, ensure_ascii=False)
    return written.sub(lambda _: f"{name} = {plain}", entry, count=1)


def files_naming(spec: str) -> Iterator[str]:
    """Yield the test files whose text names a requirement."""
    for file, names in _names_of_tests().items():
        if spec in names:
            yield file


@cache
def _names_of_tests() -> dict[str, frozenset[str]]:
    """Return what could name a requirement in the text of each test file."""
    found = {}
    for file in sorted((ROOT / "tests").rglob("*.py")):
        names = re.findall(r"\b[A-Z]{3}-\d+\b", file.read_text("utf-8"))
        found[str(file.relative_to(ROOT))] = frozenset(names)
    return found


# Changes made by rule

Edit = tuple[ast.AST, str, str]  # what is replaced, by what, and the name of the rule

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


def edits(tree: ast.Module) -> Iterator[Edit]:
    """Yield every change that a rule can make in a file."""
    skipped = {id(part) for node in ast.walk(tree) for part in _not_behavior(node)}
    for node in ast.walk(tree):
        if id(node) not in skipped:
            yield from _edits(node)


def _not_behavior(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what only people read, what only the type checker sees and what checks itself: messages of errors,
    annotations, assertions.
    """
    roots: list[ast.AST | None] = []
    if isinstance(node, ast.Raise):
        roots = [node.exc]
    elif isinstance(node, ast.AnnAssign | ast.arg):
        roots = [node.annotation]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        roots = [node.returns]
    elif isinstance(node, ast.JoinedStr | ast.Assert) or (
        isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ):
        roots = [node]
    elif isinstance(node, ast.keyword) and node.arg == "strict":  # checks what holds anyway
        roots = [node.value]
    for root in roots:
        yield from ast.walk(root) if root is not None else ()


def _edits(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Constant(value=bool(value)):
            yield node, str(not value), "default or flag"
        case ast.Constant(value=int(value)) if abs(value) < 1_000_000:
            yield node, str(value + 1), "threshold"
        case ast.Constant(value=float(value)):
            yield node, repr(round(value * 1.5 + 0.05, 6)), "threshold"
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            changed = ast.Compare(node.left, [_COMPARISONS[type(op)]()], node.comparators)
            yield node, f"({ast.unparse(changed)})", "comparison"
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, f"({ast.unparse(ast.BoolOp(other, values))})", "condition"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})", "guard"
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield node, f"({ast.unparse(operand)})", "order"
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC and not isinstance(
            node.left, ast.Constant | ast.JoinedStr
        ):
            changed_sum = ast.BinOp(node.left, _ARITHMETIC[type(op)](), node.right)
            yield node, f"({ast.unparse(changed_sum)})", "formula"
        case ast.If(test=test, body=[ast.Raise() | ast.Return() | ast.Continue()], orelse=[]):
            yield test, "False", "guard"
        case ast.comprehension(ifs=[only]):
            yield only, "True", "filter"
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            yield node.func, "max" if name == "min" else "min", "order"
        case ast.Call(func=ast.Name(id="sorted"), keywords=[]):
            yield node, f"list({ast.unparse(node.args[0])})", "order"
        case ast.keyword(arg="key", value=value):
            yield value, "lambda _: 0", "order"
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))) if (
            _is_prompt(name, text)
        ):
            yield node.value, repr(_shortened(text)), "prompt"


def _is_prompt(name: str, text: str) -> bool:
    return (
        bool(re.search("SYSTEM|PROMPT|GUARD|RULES|INSTRUCTIONS|TASK", name))
        and len(text.split()) >= 8
    )


def _shortened(text: str) -> str:
    """Leave out one of a prompt's sentences: the last one."""
    sentences = re.split(r"(?<=[.:;,])\s+", text.strip())
    return " ".join(sentences[:-1])


def generated(count: int, seed: int, only: str) -> list[Mutant]:
    """Return changes made by rule, as many of each rule as there are, drawn alike for the same seed and source."""
    tests = Tests.load()
    known = {_key(e["file"], e["where"], e["old"], e["new"]): e["reason"] for e in _equivalents()}
    outdated: list[str] = []
    by_rule: dict[str, list[Mutant]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE).as_posix()
        if path.startswith(NOT_MUTATED) or not path.startswith(only):
            continue
        source = file.read_text("utf-8")
        if not tests.fits(path, source):
            outdated.append(path)
            continue
        tree = ast.parse(source)
        for node, new, rule in edits(tree):
            old = ast.get_source_segment(source, node) or ""
            changed = _replaced(source, node, new)
            if not old or not compiles(changed):
                continue
            where = _where(tree, node)
            chosen = tests.of(path, node, tree)
            if chosen:
                by_rule[rule].append(
                    Mutant(
                        path=path,
                        line=getattr(node, "lineno", 0),
                        old=old,
                        new=new,
                        text=changed,
                        rule=rule,
                        tests=chosen,
                        equivalent=known.get(_key(path, where, old, new)),
                    )
                )
    if outdated:
        print(
            f"{len(outdated)} files have changed since the map was recorded, run `map` again: {' '.join(outdated)}"
        )
    chance = random.Random(seed)
    for each in by_rule.values():
        chance.shuffle(each)
    drawn: list[Mutant] = []
    while len(drawn) < count and any(by_rule.values()):
        drawn += [each.pop() for each in by_rule.values() if each]
    return drawn[:count]


def _key(path: str, where: str, old: str, new: str) -> tuple[str, ...]:
    """Return what a change is known by wherever it stands in its file: the name of the function, and the texts."""
    name = where.rpartition(".")[2]
    return (path, name, *(" ".join(text.split()) for text in (old, new)))


def _equivalents() -> list[dict[str, str]]:
    file = MUTANTS / "equivalent.toml"
    found: list[dict[str, str]] = (
        tomllib.loads(file.read_text("utf-8")).get("equivalent", []) if file.exists() else []
    )
    return found


def _where(tree: ast.Module, node: ast.AST) -> str:
    """Return the name of the function or class around a node; it outlives a change of line numbers."""
    names = [
        each.name
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and each.lineno <= getattr(node, "lineno", 0) <= (each.end_lineno or 0)
    ]
    return ".".join(names)


def _replaced(source: str, node: ast.AST, new: str) -> str:
    lines = source.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]  # type: ignore[attr-defined]
    return b"".join([*lines[:first], before + new.encode() + after, *lines[last + 1 :]]).decode()


class Tests:
    """Which tests run which lines, with the time each takes."""

    def __init__(
        self,
        lines: dict[str, dict[str, list[int]]],
        seconds: dict[str, float],
        names: list[str],
        digests: dict[str, str],
    ) -> None:
        self._lines, self._seconds, self._names, self._digests = lines, seconds, names, digests

    @classmethod
    def load(cls) -> Tests:
        """Read the map. Raises SystemExit if there is none."""
        if not MAP.exists():
            sys.exit(
                "There is no map of tests to lines yet: run `python tools/mutate.py map` first"
            )
        return cls(**json.loads(MAP.read_text("utf-8")))

    def fits(self, path: str, source: str) -> bool:
        """Whether a file is as it was when the map was recorded, so that its line numbers are right."""
        return self._digests.get(path) == _digest(source)

    def of(self, path: str, node: ast.AST, tree: ast.Module) -> tuple[str, ...]:
        """Return the tests to run for a change, the quickest first."""
        found = self._running(path, range(node.lineno, node.end_lineno + 1))  # type: ignore[attr-defined]
        if not found:  # run on import: those that run a line that uses what is defined here
            for name in _defined(tree, node):
                found |= self._using(name)
        ordered = sorted(found, key=lambda name: (self._seconds.get(name, 9.9), name))
        return tuple(ordered[:MOST_TESTS])

    def _running(self, path: str, lines: Iterable[int]) -> set[str]:
        of_file = self._lines.get(path, {})
        return {self._names[number] for line in lines for number in of_file.get(str(line), ())}

    def _using(self, name: str) -> set[str]:
        found: set[str] = set()
        for path, lines in self._uses[name].items():
            found |= self._running(path, lines)
        return found

    @cached_property
    def _uses(self) -> dict[str, dict[str, list[int]]]:
        """The lines that use each name, by file."""
        uses: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for path in self._lines:
            source = (PACKAGE / path).read_text("utf-8") if (PACKAGE / path).exists() else ""
            for number, line in enumerate(source.splitlines(), 1):
                for name in set(re.findall(r"\w+", line)):
                    uses[name][path].append(number)
        return uses


def _digest(source: str) -> str:
    return hashlib.blake2b(source.encode(), digest_size=8).hexdigest()


def _defined(tree: ast.Module, node: ast.AST) -> Iterator[str]:
    """Yield the name that a line run on import gives a value to: of a constant, a field, an argument, a class."""
    for each in ast.walk(tree):
        first, last = getattr(each, "lineno", 1 << 30), getattr(each, "end_lineno", 0) or 0
        inside = first <= node.lineno <= last  # type: ignore[attr-defined]
        if not inside:
            continue
        if isinstance(each, ast.Assign):
            yield from (target.id for target in each.targets if isinstance(target, ast.Name))
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name


def record(paths: list[str], jobs: int) -> None:
    """Run tests under coverage, in so many processes, and write which of them runs which line."""
    import coverage

    groups = [paths]
    if jobs > 1:
        files = [path for path in paths if path.endswith(".py")]
        for folder in [path for path in paths if not path.endswith(".py")] or ["tests", "src"]:
            files += [str(file) for file in sorted(Path(folder).rglob("test_*.py"))]
            files += [folder] if folder.startswith("src") else []  # its examples
        files.sort(key=lambda path: -Path(path).stat().st_size)
        groups = [files[number::jobs] for number in range(jobs)]
    names: dict[str, int] = {}
    seconds: dict[str, float] = {}
    lines: dict[str, dict[str, list[int]]] = {}
    options = ["-q", "-n0", "-p", "mutate", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / str(number) for number in range(len(groups))]
        running = []
        for place, group in zip(places, groups, strict=True):
            environment = {
                **_environment(ROOT),
                "MUTATE_COVERAGE": f"{place}.coverage",
                "MUTATE_SECONDS": f"{place}.json",
            }
            command = [sys.executable, "-m", "pytest", *options, *group]
            running.append(subprocess.Popen(command, cwd=ROOT, env=environment))
        for process in running:
            process.wait()
        for place in places:
            seconds |= json.loads(Path(f"{place}.json").read_text("utf-8"))
            found = coverage.CoverageData(f"{place}.coverage")
            found.read()
            for measured in found.measured_files():
                if not Path(measured).is_relative_to(PACKAGE):
                    continue
                of_file = lines.setdefault(Path(measured).relative_to(PACKAGE).as_posix(), {})
                for line, tests in found.contexts_by_lineno(measured).items():
                    numbers = [names.setdefault(test, len(names)) for test in tests if test]
                    of_file.setdefault(str(line), []).extend(numbers)
    digests = {path: _digest((PACKAGE / path).read_text("utf-8")) for path in lines}
    written = {"lines": lines, "seconds": seconds, "names": list(names), "digests": digests}
    MAP.write_text(json.dumps(written), "utf-8")


# Running


def noticed(mutant: Mutant, tree: Path) -> bool:
    """Whether one of the tests fails on the changed tree."""
    file = tree / PACKAGE.relative_to(ROOT) / mutant.path
    before = file.read_text("utf-8")
    file.write_text(mutant.text, "utf-8")
    try:
        return not passes(mutant.tests, mutant.spec, tree)
    finally:
        file.write_text(before, "utf-8")


def passes(tests: Iterable[str], spec: str | None, tree: Path) -> bool:
    """Whether the tests pass in a tree; a run that hangs does not."""
    only = [f"--claiming={spec}"] if spec else []
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n0",
        "-p",
        "mutate",
        "-p",
        "no:cacheprovider",
        *only,
        *tests,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=_environment(tree),
            timeout=SECONDS,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    if (
        done.returncode == pytest.ExitCode.USAGE_ERROR and "Error" not in done.stdout
    ):  # no module that fails to import
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        if "not found" in done.stderr and set(files) != set(tests):
            return passes(files, spec, tree)  # the change renames or removes cases of a test
        raise RuntimeError(f"pytest could not run {spec or ' '.join(tests)}: {done.stderr[-500:]}")
    if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
        return True  # a requirement that no test claims protects nothing
    return done.returncode == pytest.ExitCode.OK


def _environment(tree: Path) -> dict[str, str]:
    path = os.pathsep.join([str(tree / "src"), str(ROOT / "tools")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def copies(count: int) -> Iterator[Queue[Path]]:
    """Copies of the tree, in which tests can run side by side."""
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        trees: Queue[Path] = Queue()
        for number in range(count):
            tree = Path(folder) / str(number)
            shutil.copytree(
                ROOT,
                tree,
                ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__"),
                symlinks=True,
            )
            trees.put(tree)
        yield trees


def run(mutants: list[Mutant], jobs: int, *, baseline: bool) -> int:
    """Try each change and print those that survive; return the exit status: 1 if they are more than 3 %."""
    survivors: list[Mutant] = []
    with copies(jobs) as trees, ThreadPoolExecutor(jobs) as pool:
        if baseline:
            tree = trees.get()
            for spec, tests in sorted({(each.spec or "", each.tests) for each in mutants}):
                if not passes(tests, spec or None, tree):
                    sys.exit(f"These tests fail without any change: {spec} {' '.join(tests)}")
            trees.put(tree)

        def attempt(mutant: Mutant) -> bool:
            tree = trees.get()
            try:
                return noticed(mutant, tree)
            finally:
                trees.put(tree)

        for number, (mutant, caught) in enumerate(
            zip(mutants, pool.map(attempt, mutants), strict=True), 1
        ):
            mark = "caught" if caught else "equivalent" if mutant.equivalent else "SURVIVED"
            print(f"{number}/{len(mutants)} {mark}: {mutant}", flush=True)
            if not caught and not mutant.equivalent:
                survivors.append(mutant)
    print("\n" + "\n".join(f"survived: {each}" for each in survivors))
    rules = Counter(each.rule.split("-")[0] for each in mutants)
    tried = len(mutants) - sum(each.equivalent is not None for each in mutants)
    share = len(survivors) / max(1, tried)
    print(f"{len(mutants)} changes ({', '.join(f'{n} {name}' for name, n in rules.items())})")
    print(f"{len(survivors)} of {tried} that are not equivalent survived: {share:.1%}")
    return 1 if share > MOST_SURVIVING else 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="how many changes to try side by side (default 1)"
    )
    parser.add_argument(
        "--baseline", action="store_true", help="first check that the tests pass without a change"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    by_hand = commands.add_parser(
        "planted", help="changes written by hand, each against a requirement"
    )
    by_hand.add_argument(
        "specs", nargs="*", help="requirements or documents, such as IMP-36 or MIL (default: all)"
    )
    commands.add_parser("replant", help="write down where the planted changes stand now")
    by_rule = commands.add_parser("generated", help="changes made by rule")
    for each, usual in ((by_hand, 2000), (by_rule, 300)):
        each.add_argument("--count", type=int, default=usual, help="size of the sample")
        each.add_argument("--seed", type=int, default=1)
        each.add_argument("--only", default="", help="only files whose path begins so")
        each.add_argument("--list", action="store_true", help="print the changes and run nothing")
    recorded = commands.add_parser("map", help="record which test runs which line")
    recorded.add_argument(
        "tests", nargs=argparse.REMAINDER, help="arguments for pytest (default: all tests)"
    )
    given = parser.parse_args()
    if given.command == "map":
        record(given.tests, given.jobs)
        return 0
    if given.command == "replant":
        return replant()
    stale: list[str] = []
    if given.command == "planted":
        found, stale = planted(given.specs)
        found = [each for each in found if each.path.startswith(given.only)]
        random.Random(given.seed).shuffle(found)
        mutants = one_of_each_first(found)[: given.count]
    else:
        mutants = generated(given.count, given.seed, given.only)
    if given.list:
        print("\n".join(f"{each} ({len(each.tests)} tests)" for each in mutants))
    status = 0 if given.list else run(mutants, given.jobs, baseline=given.baseline)
    if stale:
        print("Stale, plant them again where the behavior is now:\n" + "\n".join(stale))
        print(f"{len(stale)} planted changes are stale")
    return status


# This module is also the pytest plugin of its own runs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--claiming", default="", help="run only tests that claim this requirement")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--claiming")
    if wanted:
        items[:] = [
            item for item in items if any(wanted in mark.args for mark in item.iter_markers("spec"))
        ]


_seconds: dict[str, float] = {}
_switch: Callable[[str], object] | None = None
_stop: Callable[[], None] | None = None


def pytest_configure() -> None:
    global _switch, _stop
    if place := os.environ.get("MUTATE_COVERAGE"):
        import coverage

        measuring = coverage.Coverage(data_file=place, source=[str(PACKAGE)], config_file=False)
        measuring.start()
        _switch = measuring.switch_context

        def stop() -> None:
            measuring.stop()
            measuring.save()

        _stop = stop


def pytest_runtest_logstart(nodeid: str) -> None:
    if _switch is not None:
        _switch(nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration


def pytest_unconfigure() -> None:
    if _stop is not None:
        _stop()
    if place := os.environ.get("MUTATE_SECONDS"):
        Path(place).write_text(json.dumps(_seconds), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
