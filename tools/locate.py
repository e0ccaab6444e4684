"""Find a text patch in a tree that has changed: by its tokens, wherever the code stands now.

A patch is an old text and a new one. It is searched in steps, each of which has to find exactly one place:

1. the old text, in the file that the patch names;
2. the same tokens anywhere: other line breaks, trailing commas and split strings make no difference, and names are
   replaced by their successors (tools/mutants/renames.toml);
3. the tokens that the patch changes, with as much of their surroundings as still stands unchanged, in the same part
   of the package;
4. there, the tokens that the patch changes where the surroundings are the most similar, clearly more so than elsewhere.

What is found must still be Python and must not use a name that does not exist: such a change would always be noticed.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from keyword import iskeyword
from pathlib import Path

SUFFIXES = (".py", ".sql", ".html", ".js", ".css", ".toml", ".json")
_TOKEN = re.compile(r"(?:^|(?<=\s))\#\s[^\n]*|[A-Za-z_]\w*|\d[\d_]*(?:\.\d+)?|\S", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_CLOSING = (")", "]", "}")
_COMMON = frozenset("self scope ctx memory str int len list dict tuple now id text".split())
_LEAST = 6  # tokens of the change and its surroundings that have to be unchanged
_FEW = 5  # places of a name that tells where a short change belongs
_WINDOW = 20  # tokens on each side that are compared
_SIMILAR = 0.65  # share of equal tokens in the surroundings
_CLEARLY = 0.12  # by which the best place is better than the second


@dataclass(frozen=True)
class Token:
    """A word, a number or a sign, and where it stands."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Place:
    """Where a patch applies, and what the file looks like afterwards."""

    path: str
    start: int
    end: int
    new: str
    text: str  # of the whole file, changed
    step: str  # by which it was found


def tokens(text: str) -> list[Token]:
    """Split a text, without comments, commas before a closing bracket and the seams of split strings."""
    found = [
        Token(m[0], m.start(), m.end())
        for m in _TOKEN.finditer(text)
        if m[0][0] != "#" or len(m[0]) == 1
    ]
    kept: list[Token] = []
    position = 0
    while position < len(found):
        token = found[position]
        after = found[position + 1].text if position + 1 < len(found) else ""
        if token.text == "," and after in _CLOSING:
            position += 1
            continue
        if token.text == '"' and kept and after == '"':
            position += 2
            continue
        if token.text == '"' and after == "f" and position + 2 < len(found):
            follows = found[position + 2]
            if follows.text == '"' and follows.start == found[position + 1].end:
                position += 3
                continue
        kept.append(token)
        position += 1
    return kept


@lru_cache(1000)
def _cached_tokens(text: str) -> list[Token]:
    return tokens(text)


class Tree:
    """The files of a package, as tokens."""

    def __init__(self, sources: Mapping[str, str], renames: Mapping[str, str]) -> None:
        self.sources, self.renames = sources, renames
        self._tokens = {path: _cached_tokens(text) for path, text in sources.items()}
        self._words = {
            path: [token.text for token in found] for path, found in self._tokens.items()
        }
        self._index: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for path, words in self._words.items():
            for at, word in enumerate(words):
                self._index[word].append((path, at))

    @classmethod
    def read(cls, root: Path, renames: Mapping[str, str]) -> Tree:
        """Read the files in a folder."""
        files = [file for file in sorted(root.rglob("*")) if file.suffix in SUFFIXES]
        texts = {file.relative_to(root).as_posix(): file.read_text("utf-8") for file in files}
        return cls(texts, renames)

    def find(self, path: str, old: str, new: str) -> Place | None:
        """Return the one place where a patch applies, None if there is none or more than one."""
        source = self.sources.get(path, "")
        if source.count(old) == 1:
            start = source.index(old)
            return self._place(path, start, start + len(old), new, "text")
        for renames in ({}, self.renames):
            if place := self._find(path, _renamed(old, renames), _renamed(new, renames)):
                return place
        return None

    def _find(self, path: str, old: str, new: str) -> Place | None:
        before, after = tokens(old), tokens(new)
        first = _common([t.text for t in before], [t.text for t in after])
        rest = min(len(before), len(after)) - first
        last = min(rest, _common([t.text for t in before[::-1]], [t.text for t in after[::-1]]))
        end = len(before) - last
        left, right = [t.text for t in before[:first]], [t.text for t in before[end:]]
        changed = [t.text for t in before[first:end]]
        made = after[first : len(after) - last]
        text = new[made[0].start : made[-1].end] if made else ""
        for size in range(max(len(left), len(right)), -1, -1):
            around = left[len(left) - min(size, len(left)) :]
            words = around + changed + right[:size]
            if len(words) < _LEAST and not self._is_telling(words):
                break
            hits = list(self._occurrences(words))
            if len(hits) == 1:
                file, at = hits[0]
                start = at + len(around)
                step = "tokens" if len(words) == len(before) else "part"
                if step == "part" and not _is_same_part(file, path):
                    break
                return self._replace(file, start, start + len(changed), text, step)
            if len(hits) > 1:
                break
        if not any(_is_word(word) for word in changed):  # signs and numbers stand everywhere
            first, end = max(0, first - 3), min(len(before), end + 3)
            left, right = [t.text for t in before[:first]], [t.text for t in before[end:]]
            changed = [t.text for t in before[first:end]]
            made = after[first : len(after) - (len(before) - end)]
            text = new[made[0].start : made[-1].end] if made else ""
        return self._find_similar(path, left, changed, right, text)

    def _find_similar(
        self, path: str, left: Sequence[str], changed: Sequence[str], right: Sequence[str], new: str
    ) -> Place | None:
        if not any(_is_word(word) for word in changed) or len(left) + len(right) < _LEAST:
            return None
        scored: list[tuple[float, str, int]] = []
        for file, at in self._occurrences(changed):
            words = self._words[file]
            end = at + len(changed)
            score = _similar(left[-_WINDOW:], words[max(0, at - _WINDOW) : at])
            score += _similar(right[:_WINDOW], words[end : end + _WINDOW])
            scored.append((score / 2, file, at))
        scored.sort(reverse=True)
        if not scored or scored[0][0] < _SIMILAR:
            return None
        if len(scored) > 1 and scored[0][0] - scored[1][0] < _CLEARLY:
            return None
        _, file, at = scored[0]
        if not _is_same_part(file, path):
            return None
        return self._replace(file, at, at + len(changed), new, "similar")

    def _is_telling(self, words: Sequence[str]) -> bool:
        """Whether there is a name among these tokens that stands in few places."""
        return any(_is_word(word) and len(self._index.get(word, ())) <= _FEW for word in words)

    def _occurrences(self, words: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Yield the files and token numbers where these tokens stand."""
        rarest = min(range(len(words)), key=lambda n: len(self._index.get(words[n], ())))
        for path, found in self._index.get(words[rarest], ()):
            at = found - rarest
            if at >= 0 and self._words[path][at : at + len(words)] == words:
                yield path, at

    def _replace(self, path: str, first: int, end: int, new: str, step: str) -> Place | None:
        """Replace the tokens from `first` to before `end`."""
        every = self._tokens[path]
        if first < end:
            return self._place(path, every[first].start, every[end - 1].end, new, step)
        if first == 0:
            return None
        at = every[first - 1].end  # an insertion
        return self._place(path, at, at, f" {new}", step)

    def _place(self, path: str, start: int, end: int, new: str, step: str) -> Place | None:
        source = self.sources[path]
        is_exact = step == "text"
        for shift in (0, 4, -4, 8, -8, 12):
            text = _shifted(new, shift)
            changed = source[:start] + text + source[end:]
            if not path.endswith(".py") or compiles(changed):
                if is_exact or self._has_names(path, source[start:end], text, changed):
                    return Place(path, start, end, text, changed, step)
                return None
        return None

    def _has_names(self, path: str, old: str, new: str, changed: str) -> bool:
        """Whether a change that was found elsewhere uses only names that exist, and is one of the code."""
        if not path.endswith(".py"):
            return True
        if code_of(self.sources[path]) == code_of(changed):
            return False
        quoted = re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", "", new)
        if not set(_NAME.findall(quoted)) <= self._index.keys() | set(_NAME.findall(old)):
            return False
        command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", "-q", "-"]
        done = subprocess.run(command, input=changed, capture_output=True, text=True, check=False)
        return done.returncode == 0


def compiles(source: str) -> bool:
    try:
        compile(source, "changed", "exec")
    except SyntaxError:
        return False
    return True


def code_of(source: str) -> str:
    """Return the code of a file without its docstrings and comments."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant("")
    return ast.dump(tree)


def _is_same_part(path: str, other: str) -> bool:
    """Whether two files stand in the same part of the package: elsewhere only the whole text counts."""
    return path.split("/")[0] == other.split("/")[0]


def _is_word(token: str) -> bool:
    """Whether a token is a name, and none that stands everywhere."""
    return bool(_NAME.fullmatch(token)) and token not in _COMMON and not iskeyword(token)


def _renamed(text: str, renames: Mapping[str, str]) -> str:
    return _NAME.sub(lambda name: renames.get(name[0], name[0]), text) if renames else text


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Return how many tokens both begin with."""
    count = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        count += 1
    return count


def _similar(a: Sequence[str], b: Sequence[str]) -> float:
    """Return the share of the tokens of `a` that stand in `b` in the same order."""
    if not a:
        return 0.5
    matching = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return sum(block.size for block in matching) / len(a)


def _shifted(text: str, columns: int) -> str:
    """Indent all lines but the first by so many columns more, or less."""
    first, *rest = text.split("\n")
    moved = [
        " " * columns + line if columns > 0 else line.removeprefix(" " * -columns) for line in rest
    ]
    return "\n".join([first, *moved])
