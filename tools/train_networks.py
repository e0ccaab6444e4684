"""Train a network over the vectors of two texts, see `memorist/embedders/network.py`.

    python tools/train_networks.py answers|changes|changes_english [--seed 1] [--held-out]

`answers` tells whether a message has what a question asks for, from the messages and dialogs in
`bench/own/verifier`; `changes` whether a statement replaces an older one, from `bench/own/relations`,
and `changes_english` the same over vectors of MiniLM, from those in English.
It needs `torch`, takes a minute or two and writes the packaged weights. With --held-out, a tenth of the
examples is kept aside, the area under the curve for these is printed, and nothing is written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from memorist.embedders.local import MiniLM, Multilingual
from memorist.embedders.network import FILES
from memorist.text.cues import is_english

OWN = Path(__file__).parents[1] / "bench" / "own"
EXAMPLES = OWN / "verifier"
UNRELATED = 2  # questions about other messages for each, and turns of a dialog for each question
UNRELATED_CHANGES = 3  # newer statements about something else
LABELS = ("", "replaces", "same", "adds", "apart")
TERSE = 5  # words of a statement that says nothing without the turn before it
COMPARED, HIDDEN = 64, 32  # rows of each comparison, and of the layer after it
BATCH = 256
# Passes over the examples, the highest learning rate, and how weights decay.
STEPS = {
    "answers": (7, 4e-3, 0.01),
    "changes": (12, 3e-3, 0.02),
    "changes_english": (12, 3e-3, 0.02),
}
DROPOUT = 0.3
NOISE = 0.6 / 16  # added to the vectors: a sixteenth is the usual size of a number in them
HELD_OUT = 10  # one group in this many


class Example(NamedTuple):
    """A question and a message, or a newer and an older statement, and whether the network is to say
    yes. The group is the message, the dialog or the older statement that they are from.
    """

    group: int
    first: str
    second: str
    holds: bool
    label: str = ""  # of a statement


class Network(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    """The network of `memorist.embedders.network`."""

    def __init__(self, width: int) -> None:
        """Begin with random weights. The width is that of the vectors."""
        super().__init__()
        self.first = nn.Linear(width, 2 * COMPARED)
        self.second = nn.Linear(width, 2 * COMPARED, bias=False)
        self.hidden = nn.Linear(2 * COMPARED + 1, HIDDEN)
        self.out = nn.Linear(HIDDEN, 1)
        self.labels = nn.Linear(HIDDEN, len(LABELS))  # learned in addition, and not packaged
        self.dropout = nn.Dropout(DROPOUT)

    def forward(
        self, firsts: torch.Tensor, seconds: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log odds of pairs, and those of each label."""
        one, two = self.first(firsts), self.second(seconds)
        added = torch.relu(one[:, :COMPARED] + two[:, :COMPARED])
        multiplied = torch.tanh(one[:, COMPARED:]) * torch.tanh(two[:, COMPARED:])
        cosine = (firsts * seconds).sum(1, keepdim=True)
        compared = torch.cat([cosine, added, multiplied], 1)
        hidden = torch.relu(self.hidden(self.dropout(compared)))
        kept = self.dropout(hidden)
        return self.out(kept).squeeze(1), self.labels(kept)

    def to_arrays(self) -> dict[str, Any]:
        """Return the weights as they are packaged, in half precision."""
        named = {
            "first": self.first.weight,
            "first_bias": self.first.bias,
            "second": self.second.weight,
            "hidden": self.hidden.weight,
            "hidden_bias": self.hidden.bias,
            "out": self.out.weight[0],
            "out_bias": self.out.bias[0],
        }
        return {name: value.detach().numpy().astype(np.float16) for name, value in named.items()}


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return what is written in the files of a folder."""
    lines = []
    for path in sorted(folder.glob("*.jsonl")):
        lines += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return lines


def take_answers(choose: random.Random) -> Iterator[Example]:
    """Yield all written messages and dialogs, and some with questions about other messages."""
    messages = read_lines(EXAMPLES)
    for group, line in enumerate(messages):
        for has_answer, name in enumerate(("no", "yes")):
            for question in line[name]:
                yield Example(group, question, line["text"], bool(has_answer))
        for other in choose.sample(messages, UNRELATED):
            if other is not line:
                question = choose.choice(other["yes"] + other["no"])
                yield Example(group, question, line["text"], False)
    for group, dialog in enumerate(read_lines(EXAMPLES / "dialogs"), len(messages)):
        for question, answers in dialog["ask"]:
            others = []
            for number, (_, text) in enumerate(dialog["turns"], 1):
                if number in answers:
                    yield Example(group, question, text, True)
                else:
                    others.append(text)
            for text in choose.sample(others, min(UNRELATED, len(others))):
                yield Example(group, question, text, False)


def take_changes(choose: random.Random, *, in_english: bool) -> Iterator[Example]:
    """Yield all written pairs of statements, and some of statements about something else."""
    lines = read_lines(OWN / "relations")
    if in_english:
        lines = [line for line in lines if is_english(line["old"])]
    for group, line in enumerate(lines):
        others = [choose.choice(each["new"]) for each in choose.sample(lines, UNRELATED_CHANGES)]
        for is_other, newer in ((False, line["new"]), (True, others)):
            for label, text, *before in newer:
                if not before or len(text.split()) > TERSE:
                    kind = "apart" if is_other else label
                    yield Example(group, text, line["old"], kind == "replaces", kind)


async def embed(texts: list[str], model: MiniLM | Multilingual) -> torch.Tensor:
    """Return the vectors of texts."""
    batches = [await model.encode_batch(texts[at : at + 512]) for at in range(0, len(texts), 512)]
    await model.close()
    return torch.tensor(np.concatenate(batches))


def train(
    network: Network,
    firsts: torch.Tensor,
    seconds: torch.Tensor,
    holds: torch.Tensor,
    labels: torch.Tensor,
    *,
    epochs: int,
    rate: float,
    decay: float,
) -> None:
    """Fit the weights to pairs of vectors."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=decay)
    steps = epochs * (len(labels) // BATCH + 1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    network.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(BATCH):
            pair = [each[batch] for each in (firsts, seconds)]
            odds, others = network(*(each + NOISE * torch.randn_like(each) for each in pair))
            loss = nn.functional.binary_cross_entropy_with_logits(odds, holds[batch])
            loss = loss + nn.functional.cross_entropy(others, labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()


def area(values: Any, labels: Any) -> float:
    """Return the area under the curve."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(1, len(values) + 1)
    right = labels.sum()
    return float((ranks[labels].sum() - right * (right + 1) / 2) / (right * (~labels).sum()))


def main() -> None:
    """Train, and measure or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=sorted(FILES), help="what the network tells")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    choose = random.Random(options.seed)
    in_english = options.name == "changes_english"
    if options.name == "answers":
        examples = list(take_answers(choose))
    else:
        examples = list(take_changes(choose, in_english=in_english))
    texts = sorted({text for each in examples for text in (each.first, each.second)})
    print(f"{len(examples)} examples, {len(texts)} texts")
    at = {text: number for number, text in enumerate(texts)}
    vectors = asyncio.run(embed(texts, MiniLM() if in_english else Multilingual()))
    firsts = vectors[[at[each.first] for each in examples]]
    seconds = vectors[[at[each.second] for each in examples]]
    holds = torch.tensor([float(each.holds) for each in examples])
    labels = torch.tensor([LABELS.index(each.label) for each in examples])
    group = torch.tensor([each.group for each in examples])
    is_aside = (group % HELD_OUT == 0) & options.held_out
    network = Network(vectors.shape[1])
    epochs, rate, decay = STEPS[options.name]
    kept = [each[~is_aside] for each in (firsts, seconds, holds, labels)]
    train(network, *kept, epochs=epochs, rate=rate, decay=decay)
    if options.held_out:
        with torch.no_grad():
            odds, _ = network(firsts[is_aside], seconds[is_aside])
        print(f"area under the curve {area(odds.numpy(), holds[is_aside].numpy() > 0):.3f}")
    else:
        np.savez_compressed(FILES[options.name], **network.to_arrays())


if __name__ == "__main__":
    main()
