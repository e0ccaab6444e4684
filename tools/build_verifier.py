"""Build the packaged verifier from trained weights.

    python tools/build_verifier.py WEIGHTS.npz [--format rows8] [--out FOLDER]

`tools/train_verifier.py` trains the weights. The graph is that of `build_model.py` with 8-bit products; the
rows of the word table come in from outside, so that the table of MiniLM is not shipped twice.
Needs `onnx`.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
from build_model import FORMATS, WIDTH, Graph, Weights, encoder_layer
from onnx import ModelProto, TensorProto, helper

from memorist.ports import Verdicts

PACKAGED = Path(__file__).resolve().parent.parent / "src/memorist/rerankers/verifier_model"
EPSILON = 1e-12


def build(weights: Weights, format: str = "rows8") -> ModelProto:
    """Return the model: rows of words, mask and types in, the log odds of each judgment out."""
    graph = Graph()
    form = FORMATS[format]
    graph.node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
    x = embed(graph, weights)
    layers = {int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer.")}
    for layer in sorted(layers):
        x = encoder_layer(graph, weights, form, f"encoder.layer.{layer}", x)
    answer(graph, weights, x)
    value = helper.make_tensor_value_info
    inputs = [
        value("words", TensorProto.FLOAT, ["batch", "length", WIDTH]),
        value("attention_mask", TensorProto.INT64, ["batch", "length"]),
        value("token_type_ids", TensorProto.INT64, ["batch", "length"]),
    ]
    outputs = [value("odds", TensorProto.FLOAT, ["batch", len(Verdicts._fields)])]
    proto = helper.make_graph(graph.nodes, "verifier", inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(proto, opset_imports=opsets, ir_version=10, producer_name="memorist")


def embed(graph: Graph, weights: Weights) -> str:
    """Add positions and types to the words, and normalize."""
    prefix = "embeddings"
    table = graph.constant("kinds.table", weights[f"{prefix}.token_type_embeddings.weight"])
    kinds = graph.node("Gather", [table, "token_type_ids"], "kinds")
    rows = graph.constant("positions.table", weights[f"{prefix}.position_embeddings.weight"])
    length = graph.node("Shape", ["attention_mask"], "length", start=1, end=2)
    zero = graph.constant("zero", np.array([0], dtype=np.int64))
    positions = graph.node("Slice", [rows, zero, length, zero], "positions")
    total = graph.node("Sum", ["words", positions, kinds], "embeddings.sum")
    scale = graph.constant("embeddings.scale", weights[f"{prefix}.LayerNorm.weight"])
    shift = graph.constant("embeddings.shift", weights[f"{prefix}.LayerNorm.bias"])
    return graph.node(
        "LayerNormalization", [total, scale, shift], "embeddings.out", axis=-1, epsilon=EPSILON
    )


def answer(graph: Graph, weights: Weights, x: str) -> None:
    """Compare the means of both texts, with the first state, and return log odds."""
    one = graph.constant("one", np.array([1], dtype=np.int64))
    mask = graph.node("Cast", ["attention_mask"], "mask.float", to=TensorProto.FLOAT)
    kinds = graph.node("Cast", ["token_type_ids"], "kinds.float", to=TensorProto.FLOAT)
    second = graph.node("Mul", [mask, kinds], "mask.second")
    first = graph.node("Sub", [mask, second], "mask.first")
    means = []
    for name, chosen in (("asked", first), ("text", second)):
        row = graph.node("Unsqueeze", [chosen, one], f"{name}.row")
        total = graph.node("Squeeze", [graph.node("MatMul", [row, x], f"{name}.sums"), one], name)
        count = graph.node("ReduceSum", [chosen, one], f"{name}.count", keepdims=1)
        means.append(graph.node("Div", [total, count], f"{name}.mean"))
    start = graph.node("Gather", [x, graph.constant("at", np.array(0))], "start", axis=1)
    product = graph.node("Mul", means, "both")
    eight = graph.constant("eight", np.array(8, dtype=np.float32))
    scaled = graph.node("Mul", [product, eight], "both.scaled")
    apart = graph.node("Abs", [graph.node("Sub", means, "difference")], "apart")
    joined = graph.node("Concat", [start, *means, scaled, apart], "joined", axis=-1)
    odds = [add_head(graph, weights, head, joined) for head in Verdicts._fields]
    graph.node("Concat", odds, "odds", axis=-1)


def add_head(graph: Graph, weights: Weights, head: str, joined: str) -> str:
    """Add the two products of one judgment."""
    half = graph.constant(f"{head}.w1.half", weights[f"{head}.w1"].astype(np.float16))
    wide = graph.node("Cast", [half], f"{head}.w1", to=TensorProto.FLOAT)
    product = graph.node("MatMul", [joined, wide], f"{head}.product")
    bias = graph.constant(f"{head}.b1", weights[f"{head}.b1"])
    hidden = graph.node("Add", [product, bias], f"{head}.hidden")
    active = graph.node("Gelu", [hidden], f"{head}.active", approximate="tanh")
    last = graph.constant(f"{head}.w2", weights[f"{head}.w2"])
    total = graph.node("MatMul", [active, last], f"{head}.total")
    return graph.node("Add", [total, graph.constant(f"{head}.b2", weights[f"{head}.b2"])], head)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path)
    parser.add_argument("--format", choices=FORMATS, default="rows8")
    parser.add_argument("--out", type=Path, default=PACKAGED)
    options = parser.parse_args()
    weights = dict(np.load(options.weights))
    content = build(weights, options.format).SerializeToString(deterministic=True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "model.onnx"
    path.write_bytes(content)
    print(f"{path}: {len(content):,} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
