"""The two re-rankers: token states of the packaged model, and a cross-encoder from the user's folder."""

from pathlib import Path

import numpy as np
import pytest

from memorist import aio
from memorist.embedders.local import MiniLM
from memorist.errors import BadModelAnswer, ProviderFailed
from memorist.rerankers import CrossEncoder, MaxSim

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "tea", "milk", "is", "good", "?"]
TEA = WORDS.index("tea")


def cross_encoder(folder: Path, *, kinds: bool = True, outputs: int = 1) -> Path:
    """A model whose logit is how often the text says "tea", less a half."""
    onnx = pytest.importorskip("onnx")
    h, types = onnx.helper, onnx.TensorProto
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if kinds else [])]
    nodes = [
        h.make_node("Equal", ["input_ids", "tea"], ["same"]),
        h.make_node("Cast", ["same"], ["hit"], to=types.INT64),
        h.make_node("Mul", ["hit", names[-1]], ["counted"]),
        h.make_node("Cast", ["counted"], ["number"], to=types.FLOAT),
        h.make_node("ReduceSum", ["number", "axes"], ["sum"], keepdims=1),
        h.make_node("Sub", ["sum", "half"], ["logits"]),
    ]
    constants = [
        h.make_tensor("tea", types.INT64, [1], [TEA]),
        h.make_tensor("axes", types.INT64, [1], [1]),
        h.make_tensor("half", types.FLOAT, [outputs], [0.5] * outputs),
    ]
    inputs = [h.make_tensor_value_info(name, types.INT64, ["n", "length"]) for name in names]
    output = h.make_tensor_value_info("logits", types.FLOAT, ["n", outputs])
    graph = h.make_graph(nodes, "tea", inputs, [output], constants)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    folder.mkdir(exist_ok=True)
    onnx.save(model, str(folder / "model.onnx"))
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    return folder


def logistic(value: float) -> float:
    return 1 / (1 + np.exp(-value))


@pytest.mark.spec("MLS-47")
async def test_a_cross_encoder_scores_each_text_against_the_question(tmp_path: Path) -> None:
    reranker = CrossEncoder(cross_encoder(tmp_path / "tea-model"))
    found = await reranker.score("is tea good?", ["milk", "tea is good", "tea tea", ""])
    assert found.tolist() == pytest.approx(
        [logistic(-0.5), logistic(0.5), logistic(1.5), logistic(-0.5)]
    )
    assert reranker.name == "cross-encoder:tea-model"
    await reranker.close()


async def test_a_model_without_token_types_is_not_given_any(tmp_path: Path) -> None:
    reranker = CrossEncoder(cross_encoder(tmp_path, kinds=False))
    assert (await reranker.score("milk?", ["tea", "milk"])).tolist() == pytest.approx(
        [logistic(0.5), logistic(-0.5)]
    )
    await reranker.close()


async def test_many_texts_of_any_length_keep_their_places(tmp_path: Path) -> None:
    reranker = CrossEncoder(cross_encoder(tmp_path), longest=64)
    texts = [" ".join(["tea"] * (i % 7) + ["milk"] * (i * 13 % 50)) for i in range(200)]
    found = await reranker.score("good?", texts)
    assert found.tolist() == pytest.approx([logistic(i % 7 - 0.5) for i in range(200)])
    await reranker.close()


async def test_a_pair_that_is_too_long_is_cut_and_the_longer_one_gives_way(tmp_path: Path) -> None:
    reranker = CrossEncoder(cross_encoder(tmp_path), longest=13)  # room for ten pieces
    found = await reranker.score("is good ?", ["milk " * 6 + "tea", "milk " * 7 + "tea"])
    assert found.tolist() == pytest.approx([logistic(0.5), logistic(-0.5)])
    await reranker.close()


async def test_a_long_question_leaves_half_of_the_room_to_the_text(tmp_path: Path) -> None:
    reranker = CrossEncoder(cross_encoder(tmp_path), longest=13)  # room for ten pieces
    found = await reranker.score("is good ? " * 5, ["milk " * 4 + "tea", "milk " * 5 + "tea"])
    assert found.tolist() == pytest.approx([logistic(0.5), logistic(-0.5)])
    await reranker.close()


async def test_no_texts_have_no_scores(tmp_path: Path) -> None:
    reranker = CrossEncoder(cross_encoder(tmp_path))
    assert (await reranker.score("tea?", [])).shape == (0,)
    await reranker.close()


async def test_a_folder_without_a_model_says_what_it_needs(tmp_path: Path) -> None:
    reranker = CrossEncoder(tmp_path / "nothing")
    with pytest.raises(ProviderFailed, match=r"it needs a model\.onnx and a vocab\.txt"):
        await reranker.score("tea?", ["tea"])
    await reranker.close()


async def test_a_damaged_model_is_a_provider_that_failed(tmp_path: Path) -> None:
    (cross_encoder(tmp_path) / "model.onnx").write_bytes(b"not a model")
    reranker = CrossEncoder(tmp_path)
    with pytest.raises(ProviderFailed, match="did not work"):
        await reranker.score("tea?", ["tea"])
    await reranker.close()


async def test_a_model_with_several_logits_is_refused(tmp_path: Path) -> None:
    reranker = CrossEncoder(cross_encoder(tmp_path, outputs=2))
    with pytest.raises(BadModelAnswer, match="one number for each pair"):
        await reranker.score("tea?", ["tea", "milk"])
    await reranker.close()


async def test_a_closed_cross_encoder_says_so_and_can_be_closed_again(tmp_path: Path) -> None:
    reranker = CrossEncoder(cross_encoder(tmp_path))
    await reranker.close()
    await reranker.close()
    with pytest.raises(ProviderFailed, match="is closed"):
        await reranker.score("tea?", ["tea"])


@pytest.mark.spec("MLS-47", "MLS-48")
async def test_the_engine_orders_by_the_cross_encoder_of_its_settings(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "model")
    options = {
        "embedder": "hashing",
        "state_dir": tmp_path,
        "reranker": "cross-encoder",
        "cross_encoder": folder,
    }
    async with aio.open(tmp_path / "m.db", **options) as engine:
        ana = engine.scope(user="ana")
        await ana.remember("Milk is good in the morning.", policy="milton")
        await ana.remember("There was tea, tea and tea.", policy="milton")
        answer = await ana.recall("is milk good?", profile="mls.recall", rerank=True)
        assert [hit.memory.text[:5] for hit in answer.hits] == ["There", "Milk "]
        assert [hit.score for hit in answer.hits] == pytest.approx([logistic(2.5), logistic(-0.5)])
        assert answer.legs["rerank"] == "ok"


@pytest.mark.spec("MLS-49")
async def test_a_cross_encoder_that_is_not_there_does_not_stop_a_recall(tmp_path: Path) -> None:
    options = {
        "embedder": "hashing",
        "state_dir": tmp_path,
        "reranker": "cross-encoder",
        "cross_encoder": tmp_path,
    }
    async with aio.open(tmp_path / "m.db", **options) as engine:
        ana = engine.scope(user="ana")
        await ana.remember("Milk is good.", policy="milton", importance=1.0)
        answer = await ana.recall("milk", profile="mls.recall", rerank=True)
        assert answer.hits[0].parts["importance"] == pytest.approx(0.2)
        assert "it needs a model.onnx" in answer.legs["rerank"]


async def test_maxsim_finds_the_text_that_answers() -> None:
    reranker = MaxSim(MiniLM())
    texts = ["The train leaves at noon.", "Her favourite drink is green tea.", ""]
    found = await reranker.score("What does she like to drink?", texts)
    assert found[1] > found[0] > found[2] == 0.0
    assert found.max() <= 1.0
    await reranker.close()


async def test_a_text_answers_itself_completely() -> None:
    reranker = MaxSim(MiniLM())
    assert (await reranker.score("green tea", ["green tea"]))[0] == pytest.approx(1.0, abs=1e-3)
    assert (await reranker.score("", ["green tea"]))[0] == 0.0
    await reranker.close()


async def test_maxsim_and_the_embedder_share_one_model(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path, reranker="maxsim") as engine:
        ana = engine.scope(user="ana")
        await ana.remember("Her favourite drink is green tea.")
        answer = await ana.recall("What does she drink?", rerank=True)
        assert answer.hits[0].parts["rerank"] > 0.3
        assert engine.ctx.reranker._model is engine.ctx.embedder.inner
