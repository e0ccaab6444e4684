"""What is current: histories in which a fact changes, or only seems to.

    python -m bench.changes [FILE …] [--all-at-once] [--notes] [--jobs]
    python -m bench.changes [FILE …] --fit [--plain FILE …]
    python -m bench.changes [FILE …] --fit-repeats [--plain FILE …]

Each history is stored message by message and asked one question. "Current first" is the share of the
updates and negations in which a current message comes before every outdated one; "outdated gone" the
share in which no outdated message is returned as current, "ended" the share in which all of them are
marked as replaced. "Wrong" counts the other histories in which
what is still true was marked as replaced. "One memory" counts the repetitions after which one memory
has all the messages as evidence, "wrongly merged" the other histories in which messages became one.
Both need `--jobs`: then background jobs run before the question.
Files have the form of `bench/own/changes/histories.jsonl`, which is used by default. `--fit` prints
weights of `ingest/current.py` fitted on the files (each history alone, all of them mixed, and
statements of different ones put together), on whole lives with an assistant (`lives.jsonl`), and on
conversations as `bench.data` reads them; `changed.json` lists what changes in ours. `--fit-repeats` does the same
for `extraction/repeats.py`, and prints the figures of a five-fold cross-validation by history.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import memorist
from bench import data, report
from memorist.extraction import repeats
from memorist.ingest import current, pipeline, validation
from memorist.ingest.candidates import load
from memorist.ingest.doubt import estimate_doubt
from memorist.ingest.guard import Item
from memorist.ingest.policies import DEFAULT
from memorist.text.clock import new_id
from memorist.text.repeats import WEIGHTS
from memorist.types import Draft, Memory

FOLDER = Path(__file__).parent / "own" / "changes"
OWN = FOLDER / "histories.jsonl"
LIVES = FOLDER / "lives.jsonl"
CHANGED_ON_THE_WAY = FOLDER / "changed.json"  # ids of messages, with those that they replace
CHANGED = ("update", "negation")
MIXED = 12  # persons to whom all histories are given
SCATTERED = 400  # persons who get statements of different histories
FEW_STORIES = (2, 3, 4, 6, 8, 12)
STEPS = 60
FOLDS = 5
LEAST = (0.2, 0.3, 0.4, 0.5, 0.6)  # probabilities from which on a pair is taken as the same
LONGEST = 1_000_000  # characters of a message
Step = tuple[dict[str, Any], set[str]]  # a message, and the ids of those that it replaces
Pair = tuple[dict[str, float], bool]  # measures of two messages, and whether one replaces the other
Array = NDArray[np.float64]


class Compared(NamedTuple):
    """The measures of two messages, and whether they say the same."""

    id: str  # of the newer message
    measures: dict[str, float]
    is_same: bool

    @property
    def history(self) -> str:
        return self.id.split("/")[0]


def to_message(message: dict[str, Any], *, as_note: bool = False) -> dict[str, Any]:
    """Return a message, or a note with its text, as `remember` takes it."""
    if as_note:
        return {"id": message["id"], "content": message["text"], "at": message["at"]}
    given = {
        "id": message["id"],
        "role": message.get("role") or "user",
        "content": message["text"],
        "session": message["session"],
        "at": message["at"],
        "name": message.get("name"),
    }
    return {key: value for key, value in given.items() if value is not None}


async def ask(
    memory: memorist.aio.Client,
    history: dict[str, Any],
    options: argparse.Namespace,
) -> Counter[str]:
    """Store a history, ask its question, and return what can be counted."""
    scope = memory.scope(user=history["id"])
    said = history["messages"]
    if options.notes:
        said = [each for each in said if (each.get("role") or "user") == "user"]
    messages = [to_message(each, as_note=options.notes) for each in said]
    for batch in [messages] if options.all_at_once else [[each] for each in messages]:
        await scope.remember(batch)
    if options.jobs:
        await memory.run_jobs()
    found = (await scope.recall(history["question"])).hits if history["question"] else ()
    stored = (await scope.list(limit=100)).memories
    outdated = {each.source_message_id for each in stored if each.valid_to is not None}
    ranks: dict[str, int] = {}
    for rank, hit in enumerate(found):
        for id in sources(hit.memory):
            ranks.setdefault(id, rank)
    wanted = set(history["current"])
    first = min((ranks[id] for id in wanted & ranks.keys()), default=None)
    stale = set(history["stale"]) & ranks.keys()
    kind = history["kind"]
    counts = Counter({kind: 1})
    if kind in CHANGED:
        counts["ended"] += set(history["stale"]) <= outdated
    if kind in CHANGED and first is not None:
        counts["current first"] += first < min((ranks[id] for id in stale), default=len(found))
        counts["outdated gone"] += stale <= outdated
    elif kind == "repeat":
        counts["one memory"] += is_one(stored, wanted)
    elif kind not in CHANGED:
        counts["wrong"] += not outdated.isdisjoint(wanted)
    if kind != "repeat":
        counts["wrongly merged"] += any(len(each.evidence_ids) > 1 for each in stored)
    return counts


def sources(memory: Memory) -> set[str]:
    """Return the ids of the messages that a memory is based on."""
    return {id for id in (memory.source_message_id, *memory.source_ids) if id}


def is_one(stored: Sequence[Memory], wanted: set[str]) -> bool:
    """Return whether one memory has all these messages as evidence, and counts the repetitions."""
    turns = {each.id: each for each in stored}
    for memory in stored:
        based_on = sources(memory)
        count = memory.repeat_count
        for turn in filter(None, map(turns.get, memory.evidence_ids)):
            based_on |= sources(turn)
            count += turn.repeat_count
        if wanted <= based_on and count == len(wanted) - 1:
            return True
    return False


async def collect(stories: list[list[Step]]) -> list[Pair]:
    """Store each story as one person's, and return the measures of each pair and its label."""
    found: list[Pair] = []
    with tempfile.TemporaryDirectory() as folder:
        async with memorist.aio.open(f"{folder}/m.db", state_dir=folder) as memory:
            for number, story in enumerate(stories):
                scope = memory.scope(user=str(number))
                ctx, place, labels = scope.parts
                for message, replaced in story:
                    drafts = validation.drafts(message, labels, None, {}, LONGEST)
                    items = [
                        Item(replace(each, id=new_id()))
                        for each in drafts
                        if isinstance(each, Draft)
                    ]
                    batch = await pipeline.prepare(ctx, place, items, DEFAULT, ctx.clock())
                    async with ctx.store.transaction(place) as tx:
                        batch.snapshot = await ctx.index.current(place, tx)
                        await load(tx, batch)
                        for chunk in batch.chunks:
                            for old, measures in current.measure_all(chunk, batch):
                                similar = measures["similar"]
                                measures |= current.measure_values(chunk, old, similar)
                                measures["doubt"] = estimate_doubt(chunk, old, batch)
                                found.append((measures, old.source_message_id in replaced))
                        await pipeline.write(tx, batch)
    return found


async def collect_repeats(stories: list[list[Step]]) -> list[Compared]:
    """Store each story as one person's, and compare its messages as `extraction/repeats.py` does."""
    found: list[Compared] = []
    with tempfile.TemporaryDirectory() as folder:
        client = memorist.aio.open(f"{folder}/m.db", state_dir=folder, extract="off")
        async with client as memory:
            for number, story in enumerate(stories):
                scope = memory.scope(user=str(number))
                same = {message["id"]: ids for message, ids in story}
                await scope.remember([message for message, _ in story])
                turns = (await scope.list(limit=10_000)).memories
                ctx, place, _ = scope.parts
                for turn, old, measures in await repeats.compare(ctx, place, turns):
                    id = turn.source_message_id or ""
                    is_same = old.source_message_id in same.get(id, ())
                    found.append(Compared(id, measures, is_same))
    return found


def fit(pairs: list[Pair], importance: Array, names: list[str]) -> dict[str, float]:
    """Return the weights under which the labels are most likely, kept small, by Newton's method."""
    measures = np.array([[measures[name] for name in names] for measures, _ in pairs])
    labels = np.array([label for _, label in pairs], float)
    held = np.ones(len(names))
    held[0] = 0.01  # the constant is free
    weights = np.zeros(len(names))
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-measures @ weights))
        slope = measures.T @ (importance * (chances - labels)) + held * weights
        bend = (measures * (importance * chances * (1 - chances))[:, None]).T @ measures
        weights -= np.linalg.solve(bend + np.diag(held), slope)
    return {name: round(float(each), 2) for name, each in zip(names, weights, strict=True)}


def read_stories(paths: list[Path], kind: str = "") -> list[list[Step]]:
    """Return the messages of all histories, each with the ids that it replaces.

    If the kind is "repeat": with the ids of those that say the same.
    """
    stories = []
    for path in paths:
        for line in path.read_text("utf-8").splitlines():
            history = json.loads(line)
            prefix = history["id"]
            related = history["stale"] if history["kind"] in CHANGED else []
            if kind:
                related = history["current"] if history["kind"] == kind else []
            ids = {f"{prefix}/{id}" for id in related}
            story = []
            for each in history["messages"]:
                message = to_message(each)
                replaced = ids if each["id"] in history["current"] else set()
                named = {key: f"{prefix}/{message[key]}" for key in ("id", "session")}
                story.append((message | named, replaced))
            stories.append(story)
    return stories


def mix(stories: list[list[Step]]) -> list[list[Step]]:
    """Return all stories as those of a few persons, ordered by time."""
    mixed = []
    for i in range(MIXED):
        merged = [step for story in stories[i::MIXED] for step in story]
        mixed.append(sorted(merged, key=lambda step: step[0]["at"]))
    return mixed


def scatter(stories: list[list[Step]]) -> list[list[Step]]:
    """Return statements of different stories as those of one person, which replace nothing.

    Many say that something changed, but what it was is not there.
    """
    choose = random.Random(5)
    scattered = []
    for number in range(SCATTERED):
        story: list[Step] = []
        for place, some in enumerate(choose.sample(stories, choose.choice(FEW_STORIES))):
            told = [step for step in some if is_statement(step[0])]
            changed = [step for step in told if step[1]]
            if not told:
                continue
            message, _ = choose.choice(changed if changed and choose.random() < 0.6 else told)
            day = date(2025, 1, 1) + timedelta(days=10 * place)
            name = f"scattered-{number}/{place}"
            story.append((message | {"id": name, "session": name, "at": str(day)}, set()))
        scattered.append(story)
    return scattered


def is_statement(message: dict[str, Any]) -> bool:
    """Return whether a message is one of the user's, and not only a question or a reaction."""
    text = message["content"]
    return message["role"] == "user" and text.count(" ") > 2 and not text.endswith("?")


def read_lives(path: Path) -> list[list[Step]]:
    """Return long histories of single persons, with what each message replaces."""
    lives = []
    for line in path.read_text("utf-8").splitlines():
        life = json.loads(line)
        replaced = life["replaced"]
        steps = [(to_message(each), set(replaced.get(each["id"], ()))) for each in life["messages"]]
        lives.append(steps)
    return lives


def read_plain(paths: list[Path], changed: dict[str, list[str]]) -> list[list[Step]]:
    """Return the messages of conversations, with the few that are known to replace another."""
    plain: list[list[Step]] = []
    for path in paths:
        for conversation in data.read(path):
            name = f"{path.stem}-{conversation.name}"
            named = [
                message | {"id": f"{name}/{message['id']}"} for message in conversation.messages
            ]
            plain.append([(message, set(changed.get(message["id"], ()))) for message in named])
    return plain


def fit_all(options: argparse.Namespace) -> dict[str, float]:
    """Fit the weights on histories, alone, mixed and scattered, on lives and on conversations."""
    stories = read_stories(options.files)
    changed = json.loads(CHANGED_ON_THE_WAY.read_text("utf-8"))
    groups = (
        (stories, 1.0),
        (mix(stories), 0.5),
        (scatter(stories), 0.6),
        (read_plain(options.plain, changed), 0.5),
        (read_lives(LIVES), 2.0),
    )
    pairs: list[Pair] = []
    importance: list[float] = []
    for each, weight in groups:
        found = asyncio.run(collect(each))
        pairs += found
        importance += [weight] * len(found)
    return fit(pairs, np.array(importance), list(current.WEIGHTS))


def fit_repeats(options: argparse.Namespace) -> dict[str, float]:
    """Fit the weights of repetitions likewise, and print how well they do on unseen histories."""
    stories = read_stories(options.files, "repeat")
    groups = [(stories, 1.0), (mix(stories), 0.5), (read_plain(options.plain, {}), 0.4)]
    compared: list[Compared] = []
    importance: list[float] = []
    for each, weight in groups:
        found = [pair for pair in asyncio.run(collect_repeats(each)) if pair.measures]
        compared += found
        importance += [weight] * len(found)
    weights = np.array(importance)
    names = list(WEIGHTS)
    folds = np.array([zlib.crc32(pair.history.encode()) % FOLDS for pair in compared])
    counts: Counter[tuple[float, bool]] = Counter()
    for fold in range(FOLDS):
        kept = np.flatnonzero(folds != fold)
        pairs = [(compared[i].measures, compared[i].is_same) for i in kept]
        fitted = fit(pairs, weights[kept], names)
        for i in np.flatnonzero((folds == fold) & (weights != 0.5)):
            odds = sum(fitted[name] * compared[i].measures[name] for name in names)
            for least in LEAST:
                is_found = 1 / (1 + np.exp(-odds)) >= least
                counts[least, compared[i].is_same] += is_found
            counts[0.0, compared[i].is_same] += 1
    for least in (0.0, *LEAST):
        print(f"from {least}: {counts[least, True]} right, {counts[least, False]} wrong")
    return fit([(pair.measures, pair.is_same) for pair in compared], weights, names)


async def measure(histories: list[str], name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return one line of the table."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        async with memorist.aio.open(f"{folder}/m.db", state_dir=folder) as memory:
            for line in histories:
                counts += await ask(memory, json.loads(line), options)
    changed = sum(counts[kind] for kind in CHANGED)
    return {
        "set": name,
        "changed": changed,
        "current first": counts["current first"] / max(1, changed),
        "outdated gone": counts["outdated gone"] / max(1, changed),
        "ended": counts["ended"] / max(1, changed),
        "look-alikes": len(histories) - changed - counts["repeat"],
        "wrong": counts["wrong"],
        "repeated": counts["repeat"],
        "one memory": counts["one memory"],
        "wrongly merged": counts["wrongly merged"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, default=[OWN])
    parser.add_argument("--all-at-once", action="store_true", help="store each history in one call")
    parser.add_argument("--notes", action="store_true", help="store what the user said as notes")
    parser.add_argument("--jobs", action="store_true", help="run background jobs before asking")
    parser.add_argument("--fit", action="store_true", help="fit the weights instead")
    parser.add_argument("--fit-repeats", action="store_true", help="fit those of repetitions")
    parser.add_argument("--plain", nargs="*", type=Path, default=[], metavar="FILE")
    options = parser.parse_args()
    if options.fit:
        print(fit_all(options))
        return
    if options.fit_repeats:
        print(fit_repeats(options))
        return
    rows = []
    for path in options.files:
        histories = path.read_text("utf-8").splitlines()
        rows.append(asyncio.run(measure(histories, path.stem, options)))
    report.table("What is current", rows)


if __name__ == "__main__":
    main()
