"""Fit the confidence of the default profile: how likely an answer, and each hit, has what was asked for.

    python -m bench.fit [--data FOLDER] [--cache FOLDER] [--measure SET …]

It is fitted only on data that may be shipped: our own conversations in `bench/own`, and from the
folder with further data personas, languages and iKAT. Sets given with `--measure` are only measured.
Each set is also measured with weights that were fitted without it. Databases and measures are kept
in `--cache`.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import memorist
from bench import data, report
from bench.data import Conversation
from bench.quality import WRONG_PERSON
from memorist.evals.questions import calibration_error, credited, mean
from memorist.manage.recall import build_query
from memorist.retrieve import confidence, pipeline, profiles, score

OWN = Path(__file__).parent / "own"
SHIPPED = ("personas", "languages", "ikat")
FOREIGN = 12  # questions of the next conversation that each conversation is asked
ALIKE = ("languages", "ikat", "preferences", "profiles")  # whose people are asked the same things
VARIED = ("friends", "weeks", "projects", "personas", "events")
FEW_MESSAGES = (1, 2, 4, 7)
FORGOTTEN = 0.3  # share of the other questions that are asked
HITS = 10
RARE = 0.5
Array = NDArray[np.float64]


@dataclass(slots=True)
class Asked:
    """One question: the measures of its answer and of its candidates, and which are evidence."""

    answerable: bool
    foreign: bool
    measures: dict[str, float]
    hits: list[dict[str, float]]
    useful: list[bool]

    @property
    def importance(self) -> float:
        """How much it counts: people seldom ask what belongs to another conversation."""
        return RARE if self.foreign else 1.0


def join(conversations: list[Conversation]) -> list[Conversation]:
    """Return all conversations as two large ones."""
    halves = []
    for half in (conversations[::2], conversations[1::2]):
        messages = []
        questions = []
        for each in half:
            for message in each.messages:
                ends = {"id": f"{each.name}/{message['id']}"}
                ends["session"] = f"{each.name}/{message['session']}"
                messages.append({**message, **ends})
            for question in each.questions:
                evidence = tuple(f"{each.name}/{id}" for id in question.evidence)
                questions.append(replace(question, evidence=evidence))
        halves.append(Conversation(name=half[0].name, messages=messages, questions=questions))
    return halves


def thin_out(conversations: list[Conversation]) -> list[Conversation]:
    """Return people of whom only one to seven messages are stored, and what else they were asked."""
    choose = random.Random(3)
    few = []
    for each in conversations:
        wanted = {id for question in each.questions for id in question.evidence}
        telling = [message for message in each.messages if message["id"] in wanted]
        for size in FEW_MESSAGES:
            messages = choose.sample(telling, min(size, len(telling)))
            known = {message["id"] for message in messages}
            questions = []
            for question in each.questions:
                evidence = tuple(id for id in question.evidence if id in known)
                if evidence or choose.random() < FORGOTTEN:
                    questions.append(replace(question, evidence=evidence))
            name = f"{each.name}-{size}"
            few.append(Conversation(name=name, messages=messages, questions=questions))
    return few


VARIANTS: dict[str, Callable[[list[Conversation]], list[Conversation]]] = {
    "": list,
    "joined": join,
    "few": thin_out,
}


async def collect(path: Path, cache: Path, variant: str = "") -> list[Asked]:
    """Ask all questions of a set, and those of the next conversation as unanswerable ones."""
    conversations = VARIANTS[variant](data.read(path))
    choose = random.Random(7)
    found = []
    place = cache / f"{path.stem}{variant}.db"
    async with memorist.aio.open(place, state_dir=cache) as memory:
        for number, conversation in enumerate(conversations):
            scope = memory.scope(user=conversation.name)
            if not (await scope.list(limit=1)).memories:
                await scope.remember(conversation.messages)
            texts = {each["id"]: each["content"] for each in conversation.messages}
            following = conversations[(number + 1) % len(conversations)]
            others = [each for each in following.questions if each.evidence]
            asked = [(each, False) for each in conversation.questions]
            if following is not conversation and others and path.stem.split("-")[0] not in ALIKE:
                few = choose.sample(others, min(FOREIGN, len(others)))
                asked += [(each, True) for each in few]
            for question, foreign in asked:
                if question.category != WRONG_PERSON:
                    found += await ask(scope, question, texts, foreign=foreign)
    return found


async def ask(scope: Any, question: Any, texts: dict[str, str], *, foreign: bool) -> list[Asked]:
    """Return the measures of one question, if anything matches it at all."""
    ctx = scope.ctx
    query, profile = build_query(scope, question.text, limit=HITS)
    search, legs = await pipeline.prepare(ctx, query, profile, ctx.clock())
    found = await pipeline.read(pipeline.select(search, query), search, query, ctx.store, legs)
    ranked = score.rank(profile, found)[:HITS]
    if not ranked:
        return []
    evidence = set() if foreign else set(question.evidence)
    best = ranked[0].score
    hits = []
    for rank, each in enumerate(ranked, 1):
        hits.append(confidence.measure_hit(search, each, best=best, rank=rank))
    return [
        Asked(
            answerable=bool(evidence),
            foreign=foreign,
            measures=confidence.measure(search, ranked),
            hits=hits,
            useful=[bool(evidence & {*credited(each.memory, texts)}) for each in ranked],
        )
    ]


def regress(rows: Array, labels: Array, importance: Array, *, l2: float = 0.01) -> Array:
    """Return the weights of a logistic regression; the first column is always 1."""
    scale = rows.std(axis=0)
    scale[scale == 0] = 1.0
    shift = rows.mean(axis=0)
    shift[0], scale[0] = 0.0, 1.0
    scaled = (rows - shift) / scale
    weights = np.zeros(rows.shape[1])
    for _ in range(30):  # Newton's method
        guess = 1 / (1 + np.exp(-scaled @ weights))
        penalty = np.full(len(weights), l2)
        penalty[0] = 0.0
        slope = scaled.T @ (importance * (guess - labels)) + penalty * weights
        curve = (scaled * (importance * guess * (1 - guess))[:, None]).T @ scaled
        weights = weights - np.linalg.solve(curve + np.diag(penalty + 1e-9), slope)
    plain = weights / scale
    plain[0] = weights[0] - (plain[1:] * shift[1:]).sum()
    return np.asarray(plain)


def fit_answers(
    sets: list[list[Asked]], names: list[str], hits: dict[str, float], cut: float
) -> dict[str, float]:
    """Fit the model of an answer, given that of a hit."""
    rows, labels, importance = [], [], []
    for some in sets:
        for each in some:
            rows.append([each.measures[name] for name in names])
            labels.append(float(any(returned(each, hits, cut))))
            importance.append(each.importance / len(some))
    weights = regress(np.array(rows), np.array(labels), np.array(importance) / len(sets))
    return dict(zip(names, weights.tolist(), strict=True))


def fit_hits(sets: list[list[Asked]], names: list[str]) -> dict[str, float]:
    """Fit the model of one hit."""
    rows, labels, importance = [], [], []
    for some in sets:
        for each in some:
            for hit, useful in zip(each.hits, each.useful, strict=True):
                rows.append([hit[name] for name in names])
                labels.append(float(useful))
                importance.append(each.importance / len(some) / HITS)
    weights = regress(np.array(rows), np.array(labels), np.array(importance) / len(sets))
    return dict(zip(names, weights.tolist(), strict=True))


def find_sets(folder: Path, measured: Sequence[str]) -> tuple[dict[str, Path], list[str]]:
    """Return the files of all sets by name, and the names of those that may be fitted."""
    paths = {path.stem: path for path in sorted(OWN.glob("*.jsonl"))}
    shipped = list(paths)
    for name in (*SHIPPED, *measured):
        path = folder / f"{name}-dev.jsonl"
        if path.exists():
            paths[name] = path
            if name in SHIPPED:
                shipped.append(name)
    return paths, shipped


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data.add_fit_options(parser)
    parser.add_argument("--at", type=float, default=0.24, help="threshold of an answer")
    parser.add_argument("--cut", type=float, default=0.033, help="threshold of a hit")
    options = parser.parse_args()
    paths, shipped = find_sets(options.data, options.measure)
    with data.open_cache(options.cache) as cache:
        found: dict[str, list[Asked]] = {}
        for name, path in paths.items():
            for variant in VARIANTS if name in shipped and name in VARIED else ("",):
                kept = cache / f"{name}{variant}.measures"
                if not kept.exists():
                    kept.write_bytes(pickle.dumps(asyncio.run(collect(path, cache, variant))))
                found[f"{name} {variant}".strip()] = pickle.loads(kept.read_bytes())
    rows = []
    everything: list[tuple[float, bool]] = []
    for name, asked in found.items():
        models = fit(without(found, shipped, name.split()[0]), options.cut)
        rows.append(evaluate(name, asked, *models, options, everything))
    report.table("Confidence, fitted without the set that is measured", rows)
    print(f"calibration error of all: {calibration_error(everything):.3f}")
    models = fit(without(found, shipped, ""), options.cut)
    for title, weights in zip(("answer", "hit"), models, strict=True):
        print(title, {name: round(weight, 2) for name, weight in weights.items()})


def without(found: dict[str, list[Asked]], shipped: list[str], left_out: str) -> list[list[Asked]]:
    """Return the sets to fit on, without one and its variants."""
    chosen = []
    for name, asked in found.items():
        source = name.split()[0]
        if source in shipped and source != left_out:
            chosen.append(asked)
    return chosen


def returned(asked: Asked, hits: dict[str, float], cut: float) -> list[bool]:
    """Return for each hit that is returned whether it is evidence.

    The first is always returned, the others if they reach the threshold.
    """
    cut *= confidence.scale_hit_threshold(round(10 ** asked.measures["size"]))
    found: list[bool] = []
    for hit, useful in zip(asked.hits, asked.useful, strict=True):
        sure = confidence.to_probability(confidence.weigh(hits, hit))
        if not found or sure >= cut:
            found.append(useful)
    return found


def fit(sets: list[list[Asked]], cut: float) -> tuple[dict[str, float], dict[str, float]]:
    """Fit both models; the answer counts what is returned after the cut."""
    hits = fit_hits(sets, list(profiles.OF_HIT))
    answers = fit_answers(sets, list(profiles.OF_ANSWER), hits, cut)
    return answers, hits


def evaluate(
    name: str,
    asked: list[Asked],
    answers: dict[str, float],
    hits: dict[str, float],
    options: argparse.Namespace,
    everything: list[tuple[float, bool]],
) -> dict[str, Any]:
    """Return the line of the table for one set."""
    guesses: list[float] = []
    labels: list[bool] = []
    empty: list[bool] = []
    silent: list[bool] = []
    foreign: list[bool] = []
    count = useful = wanted = 0
    for each in asked:
        sure = confidence.to_probability(confidence.weigh(answers, each.measures))
        found = returned(each, hits, options.cut)
        if not each.foreign:
            guesses.append(sure)
            labels.append(any(found))
        share = confidence.scale_answer_threshold(round(10 ** each.measures["size"]))
        is_empty = sure < options.at * share
        if not each.answerable:
            (foreign if each.foreign else silent).append(is_empty)
            continue
        empty.append(is_empty)
        wanted += sum(each.useful)
        if not is_empty:
            count += len(found)
            useful += sum(found)
    pairs = list(zip(guesses, labels, strict=True))
    everything += pairs
    return {
        "set": name,
        "questions": len(asked),
        "error": calibration_error(pairs),
        "empty": mean(empty),
        "silent": mean(silent),
        "foreign": mean(foreign),
        "precision": useful / max(count, 1),
        "hits": count / max(len(empty), 1),
        "kept": useful / max(wanted, 1),
    }


if __name__ == "__main__":
    main()
