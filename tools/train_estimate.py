"""Train the estimate: how likely a message has what a question asks for, judged by their two vectors.

    python tools/train_estimate.py [--seed 1] [--held-out]

It needs `torch`, reads the messages and dialogs in `bench/own/verifier` and writes the packaged weights,
see ADR-021. It takes two minutes. With --held-out, a tenth of the examples is kept aside, the area
under the curve for these is printed, and nothing is written.
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

from memorist.embedders.local import MULTILINGUAL, Multilingual

EXAMPLES = Path(__file__).parents[1] / "bench" / "own" / "verifier"
UNRELATED = 2  # questions about other messages for each, and turns of a dialog for each question
WIDTH = 256  # of a vector
COMPARED, HIDDEN = 64, 32  # rows of each comparison, and of the layer after it
EPOCHS, BATCH, RATE, DECAY = 7, 256, 4e-3, 0.01
DROPOUT = 0.3
NOISE = 0.6 / 16  # added to the vectors: a sixteenth is the usual size of a number in them
HELD_OUT = 10  # one group in this many


class Example(NamedTuple):
    """A question and a message; the group is the message or the dialog that they are from."""

    group: int
    question: str
    text: str
    has_answer: bool


class Network(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    """The network of `memorist.retrieve.estimate`."""

    def __init__(self) -> None:
        """Begin with random weights."""
        super().__init__()
        self.question = nn.Linear(WIDTH, 2 * COMPARED)
        self.memory = nn.Linear(WIDTH, 2 * COMPARED, bias=False)
        self.hidden = nn.Linear(2 * COMPARED + 1, HIDDEN)
        self.out = nn.Linear(HIDDEN, 1)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, questions: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        """Return the log odds of pairs."""
        asked, stated = self.question(questions), self.memory(texts)
        added = torch.relu(asked[:, :COMPARED] + stated[:, :COMPARED])
        multiplied = torch.tanh(asked[:, COMPARED:]) * torch.tanh(stated[:, COMPARED:])
        cosine = (questions * texts).sum(1, keepdim=True)
        compared = torch.cat([cosine, added, multiplied], 1)
        hidden = torch.relu(self.hidden(self.dropout(compared)))
        odds: torch.Tensor = self.out(self.dropout(hidden)).squeeze(1)
        return odds

    def to_arrays(self) -> dict[str, Any]:
        """Return the weights as they are packaged, in half precision."""
        named = {
            "question": self.question.weight,
            "question_bias": self.question.bias,
            "memory": self.memory.weight,
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


def take_examples(choose: random.Random) -> Iterator[Example]:
    """Yield all written examples, and some with questions about other messages."""
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


async def embed(texts: list[str]) -> torch.Tensor:
    """Return the vectors of texts."""
    model = Multilingual()
    batches = [await model.encode_batch(texts[at : at + 512]) for at in range(0, len(texts), 512)]
    await model.close()
    return torch.tensor(np.concatenate(batches))


def train(
    network: Network, questions: torch.Tensor, texts: torch.Tensor, labels: torch.Tensor
) -> None:
    """Fit the weights to pairs of vectors."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    steps = EPOCHS * (len(labels) // BATCH + 1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    network.train()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(labels)).split(BATCH):
            pair = [each[batch] for each in (questions, texts)]
            odds = network(*(each + NOISE * torch.randn_like(each) for each in pair))
            loss = nn.functional.binary_cross_entropy_with_logits(odds, labels[batch])
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
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    examples = list(take_examples(random.Random(options.seed)))
    texts = sorted({text for each in examples for text in (each.question, each.text)})
    print(f"{len(examples)} examples, {len(texts)} texts")
    at = {text: number for number, text in enumerate(texts)}
    vectors = asyncio.run(embed(texts))
    questions = vectors[[at[each.question] for each in examples]]
    messages = vectors[[at[each.text] for each in examples]]
    labels = torch.tensor([float(each.has_answer) for each in examples])
    group = torch.tensor([each.group for each in examples])
    is_aside = (group % HELD_OUT == 0) & options.held_out
    network = Network()
    train(network, questions[~is_aside], messages[~is_aside], labels[~is_aside])
    if options.held_out:
        with torch.no_grad():
            odds = network(questions[is_aside], messages[is_aside]).numpy()
        print(f"area under the curve {area(odds, labels[is_aside].numpy() > 0):.3f}")
    else:
        np.savez_compressed(MULTILINGUAL / "estimate.npz", **network.to_arrays())


if __name__ == "__main__":
    main()
