"""Fit the confidence of the default profile: how likely an answer, and each hit, has what was asked for.

    python -m bench.fit [--data FOLDER] [--cache FOLDER] [--keep] [--measure SET …]

It is fitted only on data that may be shipped: our own conversations in `bench/own`, and from the
folder with further data personas, languages and iKAT. Sets given with `--measure` are only measured.
Each set is also measured with weights that were fitted without it. Databases and measures are kept
in `--cache`.

The confidence after verification is fitted on what the verifier was not trained on: personas,
languages, and every second conversation of the other sets.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import pickle
import random
from collections.abc import Callable, Collection, Iterator, Sequence
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
from memorist.rerankers import VERIFIER
from memorist.retrieve import confidence, pipeline, profiles, score, verification
from memorist.retrieve.confidence import to_log_odds
from memorist.text.cues import IS_FOREIGN

OWN = Path(__file__).parent / "own"
SHIPPED = ("personas", "languages", "ikat")
UNREAD = ("personas-dev", "languages-dev")  # the verifier was not trained on them
FOREIGN = 12  # questions of the next conversation that each conversation is asked
ALIKE = (
    "languages",
    "multilingual",
    "ikat",
    "preferences",
    "profiles",
)  # whose people are asked the same things
FOREIGN_MEASURES = ["always", "shared", "meaning", "estimate"]
FEWEST = 20  # questions of a set in a language
VARIED = ("friends", "weeks", "projects", "personas", "events")
FEW_MESSAGES = (1, 2, 4, 7)
FORGOTTEN = 0.3  # share of the other questions that are asked
HITS = 10
RARE = 0.5
Array = NDArray[np.float64]
Models = dict[str, dict[str, float]]  # weights of the measures, by the name in `Confidence`
WEIGHT = profiles.DEFAULT.weights["verdict"]
assert profiles.DEFAULT.confidence is not None
OF_DEFAULT = profiles.DEFAULT.confidence


@dataclass(slots=True)
class Asked:
    """One question: the measures of its answer and of its candidates, and which are evidence."""

    answerable: bool
    foreign: bool
    measures: dict[str, float]
    hits: list[dict[str, float]]
    useful: list[bool]
    odds: list[float | None]  # by the verifier; None for what is not verified
    is_request: bool
    is_english: bool  # the question and its best memory
    is_trained: bool = False  # whether the verifier was trained on its conversation

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
            source = number // (len(FEW_MESSAGES) if variant == "few" else 1)
            for question, foreign in asked:
                if question.category != WRONG_PERSON:
                    for each in await ask(scope, question, texts, foreign=foreign):
                        each.is_trained = path.stem not in UNREAD and source % 2 == 0
                        found.append(each)
    return found


async def ask(scope: Any, question: Any, texts: dict[str, str], *, foreign: bool) -> list[Asked]:
    """Return the measures of one question, if anything matches it at all."""
    ctx = scope.ctx
    query, profile = build_query(scope, question.text, {"limit": HITS})
    search, legs = await pipeline.prepare(ctx, query, profile, ctx.clock())
    chosen = score.select(search, query.limit)
    found = await pipeline.read(chosen, search, query, ctx.store, legs)
    ranked = score.rank(profile, found)[:HITS]
    if not ranked:
        return []
    evidence = set() if foreign else set(question.evidence)
    odds: dict[str, float] = {}
    is_known = search.question.is_english and not search.question.is_long
    is_foreign = search.snapshot.marked[IS_FOREIGN]
    can_verify = is_known and not is_foreign[ranked[0].position]
    if ctx.verifier is not None and can_verify:
        odds = await verification.find_odds(ctx.verifier, search, ranked, ctx.store)
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
            odds=[odds.get(each.memory.id) for each in ranked],
            is_request=not search.question.is_direct,
            is_english=not confidence.uses_foreign_weights(search, ranked),
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
            no_answer: dict[str, float] = {}
            known = {"answer": no_answer, "hit": hits}
            _, judged = judge(each, known | {f"{name}_foreign": known[name] for name in known})
            labels.append(float(any(returned(each, judged, cut))))
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
    parser.add_argument(
        "--at-verified",
        type=float,
        default=OF_DEFAULT.least_verified,
        help="threshold of an answer that was verified",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the shipped confidence before verification"
    )
    parser.add_argument("--cut", type=float, default=0.033, help="threshold of a hit")
    options = parser.parse_args()
    paths, shipped = find_sets(options.data, options.measure)
    digest = hashlib.sha256((VERIFIER / "model.onnx").read_bytes()).hexdigest()[:8]
    with data.open_cache(options.cache) as cache:
        found: dict[str, list[Asked]] = {}
        for name, path in paths.items():
            for variant in VARIANTS if name in shipped and name in VARIED else ("",):
                kept = cache / f"{name}{variant}-{digest}.measures"
                if not kept.exists():
                    kept.write_bytes(pickle.dumps(asyncio.run(collect(path, cache, variant))))
                found[f"{name} {variant}".strip()] = pickle.loads(kept.read_bytes())
    rows = []
    everything: list[tuple[float, bool]] = []
    for name, asked in found.items():
        models = fit(without(found, shipped, name.split()[0]), options)
        rows.append(evaluate(name, asked, models, options, everything))
    report.table("Confidence, fitted without the set that is measured", rows)
    print(f"calibration error of all: {calibration_error(everything):.3f}")
    models = fit(without(found, shipped, ""), options)
    for title, weights in models.items():
        print(title, {name: round(weight, 2) for name, weight in weights.items()})


def without(found: dict[str, list[Asked]], shipped: list[str], left_out: str) -> list[list[Asked]]:
    """Return the sets to fit on, without one and its variants."""
    chosen = []
    for name, asked in found.items():
        source = name.split()[0]
        if source in shipped and source != left_out:
            chosen.append(asked)
    return chosen


def judge(asked: Asked, models: Models) -> tuple[float, list[tuple[float, bool]]]:
    """Return the confidence of an answer, and that of each hit with whether it is evidence.

    If the models after verification are given, the best candidates are verified, as recall does.
    """
    sure = judge_answer(asked, models)
    hit_weights = models["hit" if asked.is_english else "hit_foreign"]
    weighed = [confidence.weigh(hit_weights, hit) for hit in asked.hits]
    likely = list(map(confidence.to_probability, weighed))
    odds = [each for each in asked.odds if each is not None]
    judged = list(zip(likely, asked.useful, strict=True))
    if "answer_verified" not in models or not odds or not is_verified(asked, sure):
        return sure, judged
    totals = []
    for place, (hit, each) in enumerate(zip(asked.hits, asked.odds, strict=True)):
        verdict = min(odds) if each is None else each
        if each is not None:
            again = confidence.judge_again(
                models["hit_verified"], likely[place], each, asked.is_request
            )
            judged[place] = again, asked.useful[place]
        totals.append(WEIGHT * confidence.scale_verdict(verdict) - hit["behind"])
    order = sorted(range(len(totals)), key=lambda place: -totals[place])
    if not asked.is_request:
        sure = confidence.judge_again(models["answer_verified"], sure, max(odds))
    return sure, [judged[place] for place in order]


def judge_answer(asked: Asked, models: Models) -> float:
    """Return the confidence of an answer before verification."""
    weights = models["answer" if asked.is_english else "answer_foreign"]
    return confidence.to_probability(confidence.weigh(weights, asked.measures))


def is_verified(asked: Asked, sure: float) -> bool:
    """Return whether an answer of this confidence is verified."""
    share = confidence.scale_answer_threshold(round(10 ** asked.measures["size"]))
    return asked.odds[0] is not None and OF_DEFAULT.least * share <= sure < OF_DEFAULT.certain


def returned(asked: Asked, judged: list[tuple[float, bool]], cut: float) -> list[bool]:
    """Return for each hit that is returned whether it is evidence.

    The first is always returned, the others if they reach the threshold.
    """
    cut *= confidence.scale_hit_threshold(round(10 ** asked.measures["size"]))
    if not asked.is_english:
        cut *= OF_DEFAULT.least_hit_foreign / OF_DEFAULT.least_hit
    if asked.odds[0] is not None and not asked.is_request:
        count = max(confidence.TINY, round(10 ** asked.measures["size"]))
        share = OF_DEFAULT.share_verified / confidence.scale_answer_threshold(count) ** 2
        cut = max(cut, share * max(sure for sure, _ in judged))
    found: list[bool] = []
    for sure, useful in judged:
        if not found or sure >= cut:
            found.append(useful)
    return found


def fit(sets: list[list[Asked]], options: argparse.Namespace) -> Models:
    """Fit all models, or only those after verification; the answer counts what is returned."""
    cut = options.cut
    names = ("answer", "hit", "answer_foreign", "hit_foreign")
    models: Models = {name: dict(getattr(OF_DEFAULT, name)) for name in names}
    if not options.keep:
        english, others = split(sets)
        models["hit"] = fit_hits(english, in_english(profiles.OF_HIT))
        models["hit_foreign"] = fit_hits(others, list(profiles.OF_HIT))
        measures = in_english(profiles.OF_ANSWER)
        models["answer"] = fit_answers(english, measures, models["hit"], cut)
        models["answer_foreign"] = fit_answers(others, FOREIGN_MEASURES, models["hit_foreign"], cut)
    known = dict(models)
    models["hit_verified"] = fit_verified_hits(sets, known)
    models["answer_verified"] = fit_verified_answers(sets, known, models["hit_verified"], cut)
    return models


def in_english(measures: Collection[str]) -> list[str]:
    """Return the measures without the estimate, which gains nothing where the verifier reads."""
    return [name for name in measures if name != "estimate"]


def split(sets: list[list[Asked]]) -> tuple[list[list[Asked]], list[list[Asked]]]:
    """Return the questions in English and the others, without sets of which hardly any are left."""
    english = [[asked for asked in some if asked.is_english] for some in sets]
    others = [[asked for asked in some if not asked.is_english] for some in sets]
    enough = [[some for some in each if len(some) >= FEWEST] for each in (english, others)]
    return enough[0], enough[1]


def find_verified(sets: list[list[Asked]], models: Models) -> Iterator[tuple[Asked, float, float]]:
    """Yield what is verified and unknown to the verifier, its confidence before, and its importance."""
    for some in sets:
        found = []
        for asked in some:
            sure, _ = judge(asked, models)
            if is_verified(asked, sure) and not asked.is_trained and asked.odds[0] is not None:
                found.append((asked, sure))
        for asked, sure in found:
            yield asked, sure, asked.importance / len(found) / len(sets)


def fit_verified_hits(sets: list[list[Asked]], models: Models) -> dict[str, float]:
    """Fit the confidence of a hit after verification."""
    rows, labels, importance = [], [], []
    for asked, _, share in find_verified(sets, models):
        _, judged = judge(asked, models)
        for (likely, useful), each in zip(judged, asked.odds, strict=True):
            if each is not None:
                rows.append([1.0, to_log_odds(likely), each, float(asked.is_request)])
                labels.append(float(useful))
                importance.append(share / len(judged))
    return regress_verified(rows, labels, importance)


def fit_verified_answers(
    sets: list[list[Asked]], models: Models, hits: dict[str, float], cut: float
) -> dict[str, float]:
    """Fit the confidence of an answer after verification, given that of its hits. That of an answer to
    a request stays.
    """
    rows, labels, importance = [], [], []
    after = {**models, "hit_verified": hits, "answer_verified": {}}
    for asked, sure, share in find_verified(sets, models):
        if asked.is_request:
            continue
        _, judged = judge(asked, after)
        best = max(each for each in asked.odds if each is not None)
        rows.append([1.0, to_log_odds(sure), best])
        labels.append(float(any(returned(asked, judged, cut))))
        importance.append(share)
    return regress_verified(rows, labels, importance)


def regress_verified(
    rows: list[list[float]], labels: list[float], importance: list[float]
) -> dict[str, float]:
    """Return the weights of the measures after verification."""
    weights = regress(np.array(rows), np.array(labels), np.array(importance))
    return dict(zip(profiles.AFTER_VERDICT, weights.tolist(), strict=False))


def evaluate(
    name: str,
    asked: list[Asked],
    models: Models,
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
        sure, judged = judge(each, models)
        found = returned(each, judged, options.cut)
        if not each.foreign:
            guesses.append(sure)
            labels.append(any(found))
        share = confidence.scale_answer_threshold(round(10 ** each.measures["size"]))
        before = judge_answer(each, models)
        needed = share * (OF_DEFAULT.least if each.is_english else OF_DEFAULT.least_foreign)
        if is_verified(each, before) and not each.is_request:
            needed = options.at_verified * min(1.0, share)
        is_empty = sure < needed
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
