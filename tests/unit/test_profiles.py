"""The seeds' formulas, to the number: §2.3 of the requirements as literal values."""

import math
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from memorist import aio
from memorist.dialects import (
    CLANKER,
    CLANKER_STRICT,
    MILTON,
    POLICIES,
    PROFILES,
    SUPERVISOR,
    THEORIA,
    milton_profile,
)
from memorist.errors import InvalidInput
from memorist.index import Snapshot
from memorist.ingest import analyze
from memorist.ingest.policies import Policy
from memorist.ports import IndexRow
from memorist.retrieve import optional, profiles, score
from memorist.retrieve.features import COMPUTED, SnapshotSearch
from memorist.retrieve.question import understand
from memorist.retrieve.score import Candidate, Candidates, lexical, reciprocal_rank
from memorist.storage import load
from memorist.text import clock
from memorist.types import Memory, Scope

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NONE = frozenset[str]()
VAULT = PROFILES["mls.recall"]


def columns(**features: list[float]) -> Candidates:
    n = len(next(iter(features.values())))
    return Candidates(
        positions=np.arange(n),
        relevance=np.zeros(n),
        features={name: np.array(column, np.float64) for name, column in features.items()},
    )


def scores(profile: profiles.Profile, **features: list[float]) -> list[float]:
    return score.score_all(profile, columns(**features))[1].tolist()


def fact(text: str, **fields: object) -> Memory:
    made = Memory(
        id="m1", scope=Scope(user="ana"), text=text, kind="semantic", created_at=NOW, updated_at=NOW
    )
    return replace(made, **fields)


def test_what_does_not_resemble_the_question_stays_unless_meaning_alone_counts() -> None:
    found = columns(semantic=[0.5, -0.1])
    found = replace(found, memories=[fact("tea"), fact("milk", id="m2")])
    usual = profiles.Profile(name="mine", weights={"semantic": 1.0})
    assert [each.memory.text for each in score.rank(usual, found)] == ["tea", "milk"]
    alone = replace(usual, only_semantic=True)
    assert [each.memory.text for each in score.rank(alone, found)] == ["tea"]


# The formulas


@pytest.mark.spec("MIL-14", "MIL-15")
def test_milton_adds_words_age_and_importance() -> None:
    ranking = milton_profile(recency_bias=0.3, mode="deterministic")
    found = scores(
        ranking, lexical=[1, 1, 0], recency=[1 / 6, 1 / 2, 1 / 2], importance=[0.2, 0.9, 0.1]
    )
    assert found == pytest.approx([0.780, 0.985, 0.165])


@pytest.mark.spec("MIL-14")
def test_milton_gives_an_important_item_fifteen_hundredths() -> None:
    assert scores(MILTON, lexical=[0], recency=[0], importance=[1]) == pytest.approx([0.15])


@pytest.mark.spec("MIL-28", "MIL-29", "MIL-30")
def test_milton_mixes_both_halves_after_scaling_each_to_its_best() -> None:
    ranking = milton_profile(recency_bias=0.0)
    found = scores(
        ranking, lexical=[1.0, 0.8], recency=[0, 0], importance=[0, 0], semantic=[0.5, 0.3]
    )
    assert found == pytest.approx([1.0, 0.70])  # 0.8 and 0.6 of the best, half each


@pytest.mark.spec("MIL-29")
def test_the_semantic_weight_moves_a_score_from_one_half_to_the_other() -> None:
    columns = {
        "lexical": [1.0, 0.8],
        "recency": [0.0, 0.0],
        "importance": [0.0, 0.0],
        "semantic": [0.5, 0.3],
    }
    mixed = [scores(milton_profile(0.0, weight), **columns)[1] for weight in (0.0, 0.25, 1.0)]
    assert mixed == pytest.approx([0.8, 0.75, 0.6])


@pytest.mark.spec("MIL-33")
def test_miltons_semantic_mode_looks_at_meaning_alone() -> None:
    ranking = milton_profile(mode="semantic")
    found = scores(ranking, lexical=[1, 0], recency=[1, 0], importance=[1, 0], semantic=[0.2, 0.4])
    assert found == pytest.approx([0.5, 1.0])


@pytest.mark.spec("MIL-34")
def test_without_a_semantic_score_every_mode_of_milton_is_the_deterministic_one() -> None:
    columns = {"lexical": [0.5], "recency": [0.5], "importance": [0.5], "semantic": [0.0]}
    modes = {
        mode: scores(milton_profile(mode=mode), **columns)
        for mode in ("deterministic", "hybrid", "semantic")
    }
    assert modes["hybrid"] == modes["semantic"] == modes["deterministic"] == pytest.approx([0.575])


def test_miltons_weights_stay_within_their_bounds() -> None:
    assert milton_profile(recency_bias=7).weights["recency"] == 1
    assert milton_profile(semantic_weight=-2).semantic_weight == 0


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'magic' is not one of hybrid, deterministic, semantic"):
        milton_profile(mode="magic")


@pytest.mark.spec("MLS-50")
def test_vault_takes_the_cosine_as_it_is() -> None:
    assert scores(VAULT, semantic=[0.9, 0.25], sparse=[0, 1]) == [0.9, 0.25]
    assert not VAULT.rerank


@pytest.mark.spec("MLS-21")
def test_vault_weighs_novelty_and_salience() -> None:
    assert analyze.novelty_importance(0.5, 0.9) == pytest.approx(0.66)


@pytest.mark.spec("THE-62")
def test_theoria_adds_relevance_recency_and_importance() -> None:
    found = scores(THEORIA, relevance=[0.6], recency=[math.exp(-1)], importance=[0.5])
    assert found == pytest.approx([1.4679], abs=1e-4)


@pytest.mark.spec("THE-62", "THE-112")
def test_theorias_weights_can_be_tuned() -> None:
    tuned = replace(THEORIA, weights={"relevance": 2.0, "recency": 0.0, "importance": 0.5})
    assert scores(tuned, relevance=[0.6], recency=[0.9], importance=[0.5]) == pytest.approx([1.45])


@pytest.mark.spec("IMP-19")
def test_the_supervisors_bullets_weigh_similarity_level_age_and_pin() -> None:
    ages = [1 / (1 + 2), 1 / (1 + 2)]
    found = scores(
        SUPERVISOR,
        semantic=[0.7, 0.7],
        level=[3 / 5, 3 / 5],
        recency=ages,
        pinned=[0, 1],
        related=[0, 1],
    )
    assert found == pytest.approx([0.555, 0.705])


@pytest.mark.spec("CLK-68")
def test_clanker_weighs_five_parts_where_meaning_is_known() -> None:
    found = scores(
        CLANKER, semantic=[0.8], lexical=[0.5], confidence=[0.7], recency=[0.5], channel=[1]
    )
    assert found == pytest.approx([0.695])


@pytest.mark.spec("CLK-69")
def test_clanker_weighs_four_parts_where_it_is_not() -> None:
    found = scores(
        CLANKER, semantic=[0.0], lexical=[0.5], confidence=[0.7], recency=[0.5], channel=[1]
    )
    assert found == pytest.approx([0.545])


def test_a_score_is_the_sum_of_its_parts() -> None:
    found = columns(semantic=[0.8], lexical=[0.5], confidence=[0.7], recency=[0.5], channel=[1])
    (candidate,) = score.rank(CLANKER, replace(found, memories=[fact("tea")]))
    assert candidate.score == pytest.approx(sum(candidate.parts.values()))
    assert candidate.parts == pytest.approx(
        {"semantic": 0.4, "lexical": 0.14, "confidence": 0.07, "recency": 0.035, "channel": 0.05}
    )


# Fading


def row(**fields: object) -> IndexRow:
    nothing = dict.fromkeys(IndexRow._fields)
    made = {
        "row": 1, "state": "active", "channel": None, "kind": "semantic", "created": clock.micros(NOW),
        "updated": clock.micros(NOW), "importance": 0.5, "confidence": 1.0, "pinned": False, "simhash": 1, "flags": 0,
        "terms": b"", "vector": None,
    }  # fmt: skip
    return IndexRow(**{**nothing, **made, **fields})


def features(
    profile: profiles.Profile, *rows: IndexRow, channel: str | None = None
) -> dict[str, list[float]]:
    snapshot = Snapshot.empty("none", 1).extend(rows, [], 1)
    search = SnapshotSearch(
        profile=replace(profile, candidates="all"), snapshot=snapshot, question=understand("?"), vector=None,
        usable=snapshot.alive, channel=snapshot.code("channel", channel), now=NOW,
    )  # fmt: skip
    found = score.select_by_legs(search, limit=9, pool=9)
    return {name: column.tolist() for name, column in found.features.items()}


@pytest.mark.spec("MIL-13", "THE-60", "CLK-66")
@pytest.mark.parametrize(
    ("profile", "expected"),
    [(MILTON, 1 / 169), (THEORIA, math.exp(-1)), (CLANKER, 45 / 52), (SUPERVISOR, 1 / 8)],
)
def test_each_specification_fades_at_its_own_pace(
    profile: profiles.Profile, expected: float
) -> None:
    week_old = row(created=clock.micros(NOW - timedelta(days=7)))
    assert features(profile, week_old)["recency"] == pytest.approx([expected])


@pytest.mark.spec("MIL-13")
def test_milton_halves_after_an_hour_and_quarters_after_three() -> None:
    ages = [
        row(row=i, created=clock.micros(NOW - timedelta(hours=hours)))
        for i, hours in enumerate((0, 1, 3))
    ]
    assert features(MILTON, *ages)["recency"] == pytest.approx([1.0, 0.5, 0.25])


def test_a_memory_from_the_future_is_as_fresh_as_one_from_now() -> None:
    assert features(THEORIA, row(created=clock.micros(NOW + timedelta(days=3))))["recency"] == [1.0]


@pytest.mark.spec("CLK-67")
def test_the_channel_of_the_question_counts_whole_no_channel_a_quarter_another_nothing() -> None:
    rows = [row(row=1, channel="general"), row(row=2, channel=None), row(row=3, channel="random")]
    assert features(CLANKER, *rows, channel="general")["channel"] == [1.0, 0.25, 0.0]
    assert features(CLANKER, *rows, channel=None)["channel"] == [0.0, 0.0, 0.0]


def test_an_importance_is_seen_as_one_of_five_levels() -> None:
    rows = [row(row=i, importance=x) for i, x in enumerate((0.0, 0.2, 0.6, 0.61, 1.0))]
    assert features(SUPERVISOR, *rows)["level"] == pytest.approx([0.2, 0.2, 0.6, 0.8, 1.0])


@pytest.mark.spec("THE-59")
def test_relevance_is_the_share_of_the_best_sparse_score_where_there_is_no_vector() -> None:
    assert features(THEORIA, row())["relevance"] == [0.0]


# Fusing


@pytest.mark.spec("THE-58")
def test_reciprocal_ranks_add_up() -> None:
    fused = reciprocal_rank([["a", "x", "y"], ["b", "z", "a"]], k=60)
    assert fused["a"] == pytest.approx(0.032266, abs=1e-6)  # first here, third there
    assert fused["b"] == pytest.approx(0.016393, abs=1e-6)  # first in one, absent in the other
    assert next(iter(fused)) == "a"
    assert THEORIA.rrf_k == 60


@pytest.mark.spec("THE-58")
@pytest.mark.parametrize("k", [1, 60])
async def test_fusion_can_rank_alone_with_a_k_of_ones_own(k: int) -> None:
    ranking = replace(THEORIA, weights={"fused": 1.0}, rrf_k=k)
    async with aio.open(":memory:", embedder="hashing") as memory:
        ana = memory.scope("ana")
        await ana.remember("The tea is green.")
        (hit,) = await ana.recall("green tea", profile=ranking)
    assert hit.parts == {"fused": pytest.approx(2 / (k + 1))}  # first in both legs


@pytest.mark.spec("THE-58", "THE-73")
def test_an_empty_ranking_changes_nothing() -> None:
    assert reciprocal_rank([["a", "b"], []]) == reciprocal_rank([["a", "b"]])
    assert reciprocal_rank([[], []]) == {}


# Gates


def passing(
    gate_of: profiles.Gate | None, scores: list[float], **features: list[float]
) -> list[bool]:
    assert gate_of is not None
    return [score.passes(gate_of, each) for each in candidates_of(scores, **features)]


def candidates_of(scores: list[float], **features: list[float]) -> list[Candidate]:
    return [
        Candidate(
            memory=fact("tea"),
            score=scores[i],
            features={name: column[i] for name, column in features.items()},
        )
        for i in range(len(scores))
    ]


CLANKERS = ("clanker.hybrid", "clanker.strict")


@pytest.mark.spec("CLK-70")
@pytest.mark.parametrize("name", CLANKERS)
def test_a_candidate_passes_with_enough_meaning_or_enough_words(name: str) -> None:
    found = passing(
        PROFILES[name].gate,
        [0, 0, 0, 0],
        semantic=[0.20, 0.199, 0, 0],
        lexical=[0, 0, 0.22, 0.219],
    )
    assert found == [True, False, True, False]


@pytest.mark.spec("CLK-70")
@pytest.mark.parametrize("name", CLANKERS)
def test_a_strong_candidate_still_needs_a_signal(name: str) -> None:
    scores = [0.52, 0.519, 0.52, 0.9]
    found = passing(
        PROFILES[name].gate,
        scores,
        semantic=[0.08, 0.08, 0.0, 0.079],
        lexical=[0, 0, 0.10, 0.099],
    )
    assert found == [True, False, True, False]


@pytest.mark.spec("CLK-71")
@pytest.mark.parametrize("name", CLANKERS)
def test_without_meaning_words_or_a_strong_score_pass(name: str) -> None:
    found = passing(
        PROFILES[name].gate_without_semantic,
        [0, 0, 0.62, 0.619],
        lexical=[0.24, 0.239, 0, 0],
    )
    assert found == [True, False, True, False]


@pytest.mark.spec("CLK-72")
def test_where_nothing_passes_the_strict_gate_returns_nothing_and_the_lenient_one_everything() -> (
    None
):
    found = candidates_of([0.1], semantic=[0.01], lexical=[0.0])
    assert score.keep(CLANKER_STRICT, found, semantic=True)[0] == []
    assert score.keep(CLANKER, found, semantic=True)[0] == found


@pytest.mark.spec("MLS-44")
def test_slight_memories_are_cut_unless_they_are_pinned() -> None:
    memories = [
        fact("a", importance=0.2),
        fact("b", importance=0.19),
        fact("c", importance=0.0, pinned=True),
    ]
    found = [Candidate(memory=each, score=1.0, features={"semantic": 1.0}) for each in memories]
    kept, cut = score.keep(VAULT, found, semantic=True)
    assert [each.memory.text for each in kept] == ["a", "c"]
    assert [each.reason for each in cut] == ["its importance is below 0.2"]


@pytest.mark.parametrize(
    "name", ["milton.hybrid", "mls.recall", "theoria.triscore", "imp.bullets", "clanker.strict"]
)
def test_only_the_default_ranking_judges_how_likely_an_answer_is(name: str) -> None:
    assert PROFILES["default"].confidence is not None
    assert PROFILES[name].confidence is None


# Words


@pytest.mark.spec("MIL-11", "MIL-12")
@pytest.mark.parametrize(
    ("question", "text", "tags", "expected"),
    [
        ("green tea", "I drink green tea", (), 1.0),
        ("green tea", "I drink tea", (), 0.5),
        ("green tea", "I drink", ("tea",), 0.5),
        ("tea tea tea", "tea", (), 1.0),
        ("tea with milk and honey", "Tea!", (), 0.2),
        ("чай", "Я пью чай", (), 1.0),
        ("...", "tea", (), 0.0),
    ],
)
def test_miltons_overlap_is_a_share_of_the_questions_words(
    question: str, text: str, tags: tuple[str, ...], expected: float
) -> None:
    assert lexical(MILTON, question, [fact(text, tags=tags)]).tolist() == pytest.approx([expected])


@pytest.mark.spec("CLK-63")
@pytest.mark.parametrize(
    ("question", "text", "evidence", "expected"),
    [
        ("Green tea", "I like green tea.", None, 1.0),  # the whole question stands in it
        ("is a", "this apple", None, 1.0),  # even across words
        ("tea green", "I like green tea.", None, 1.0),  # both tokens
        ("tea coffee", "I like green tea.", None, 0.5),
        ("tea coffee", "I like green tea.", "said: coffee too", 1.0),
        ("I go to tea", "tea is good", None, 1.0),  # words below three letters do not count
        ("go to", "tea is good", None, 0.0),
        ("https://tea.example <:tea:42> tea", "tea", None, 1.0),  # links and emoji are no words
        ("茶を飲む", "毎朝 茶を飲む", None, 1.0),
        ("", "tea", None, 0.0),
        (
            " ".join(f"asked{n}" for n in range(33)),
            "asked0 asked31",
            None,
            2 / 32,
        ),  # of the first 32 words
        (" ".join(f"asked{n}" for n in range(33)), "asked0 asked32", None, 1 / 32),
        (
            "word0 asked",
            " ".join(f"fact{n}" for n in range(95)) + " word0",
            None,
            0.5,
        ),  # among the first 96 words
        ("word0 asked", " ".join(f"fact{n}" for n in range(96)) + " word0", None, 0.0),
    ],
)
def test_clankers_overlap_is_the_whole_question_or_shared_tokens(
    question: str, text: str, evidence: str | None, expected: float
) -> None:
    assert lexical(CLANKER, question, [fact(text, evidence_text=evidence)]).tolist() == [expected]


# Choosing different things

VECTORS = np.array([[1, 0], [1, 0], [0, 1], [0.6, 0.8]], np.float32)
VALUES = np.array([1.0, 0.9, 0.5, 0.4])


@pytest.mark.spec("THE-72")
def test_with_lambda_one_value_alone_decides() -> None:
    assert optional.order(VALUES, VECTORS, [NONE] * 4, trade=1.0, k=4) == [0, 1, 2, 3]


@pytest.mark.spec("THE-63", "THE-72")
def test_with_lambda_zero_difference_alone_decides() -> None:
    assert optional.order(VALUES, VECTORS, [NONE] * 4, trade=0.0, k=4) == [0, 2, 3, 1]


@pytest.mark.spec("THE-63", "THE-70")
def test_a_repetition_gives_way_to_something_else_of_less_value() -> None:
    assert optional.order(VALUES, VECTORS, [NONE] * 4, trade=0.5, k=2) == [0, 2]


@pytest.mark.spec("THE-64")
def test_of_equals_the_one_that_shares_the_fewest_tags_comes_first() -> None:
    vectors = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    tags = [frozenset({"tea", "home"}), frozenset({"tea"}), frozenset({"work"})]
    assert optional.order(np.array([1.0, 0.5, 0.5]), vectors, tags, trade=0.7, k=3) == [0, 2, 1]


@pytest.mark.spec("THE-64", "THE-71")
def test_memories_without_vectors_are_compared_by_their_tags() -> None:
    vectors = np.zeros((3, 2), np.float32)
    tags = [frozenset({"tea", "cup"}), frozenset({"tea", "cup"}), frozenset({"work"})]
    assert optional.order(np.array([1.0, 0.9, 0.5]), vectors, tags, trade=0.5, k=3) == [0, 2, 1]
    assert optional.tag_overlap(tags[0], tags[1]) == 1.0


def test_nothing_to_choose_from_gives_nothing() -> None:
    assert optional.order(np.empty(0), np.empty((0, 2), np.float32), [], trade=0.7, k=3) == []


def test_theoria_looks_for_difference_and_the_others_do_not() -> None:
    assert THEORIA.diversity == 0.7
    assert all(profile.diversity is None for profile in (MILTON, VAULT, SUPERVISOR, CLANKER))


@pytest.mark.parametrize(
    "name",
    ["milton.deterministic", "milton.hybrid", "milton.semantic", "mls.recall", "theoria.triscore", "imp.bullets",
     "clanker.hybrid", "clanker.strict", "default"],
)  # fmt: skip
def test_every_ranking_is_known_by_its_name(name: str) -> None:
    assert PROFILES[name].name == name


def test_an_unknown_ranking_names_those_that_exist() -> None:
    with pytest.raises(
        InvalidInput, match=r"Unknown profile 'best'\. Choose one of: clanker.hybrid"
    ):
        PROFILES["best"]


# Names of features


@pytest.mark.parametrize("field", ["weights", "sparse_weights"])
def test_a_misspelt_weight_is_refused_with_the_name_that_was_meant(field: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"Unknown feature 'semantik' .*Did you mean 'semantic'\?"
    ) as e:
        replace(THEORIA, **{field: {"relevance": 1.0, "semantik": 1.0}})
    assert all(name in str(e.value) for name in profiles.FEATURES)


@pytest.mark.parametrize("field", ["enough", "signal"])
def test_a_misspelt_feature_of_a_gate_is_refused(field: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"Unknown feature 'lexcal' in gate\. Did you mean 'lexical'\?"
    ):
        replace(CLANKER.gate, **{field: {"lexcal": 0.2}})


def test_a_name_like_no_feature_is_refused_without_a_guess() -> None:
    with pytest.raises(
        InvalidInput, match=r"Unknown feature 'zzz' in profile 'mine'\. Features: sparse"
    ):
        profiles.Profile(name="mine", weights={"zzz": 1.0})


def test_every_feature_that_a_weight_may_name_is_computed() -> None:
    # from texts, links, rankings and a model
    elsewhere = {"lexical", "related", "fused", "passage", "estimate", "verdict"}
    assert set(COMPUTED) | elsewhere == set(profiles.FEATURES)


def test_any_profile_may_weigh_the_turns_around_a_memory() -> None:
    weighed = replace(THEORIA, weights={"semantic": 1.0, "neighbors": 0.5, "session": 0.25})
    vectors = [np.array(each, "<f4").tobytes() for each in ([1, 0], [0, 1], [0, 1])]
    sessions = ["one", "one", "two"]
    rows = [row(row=i, session=sessions[i], sequence=i, vector=vectors[i]) for i in range(3)]
    snapshot = Snapshot.empty("none", 2).extend(rows, [], 1)
    search = SnapshotSearch(
        profile=replace(weighed, candidates="all"), snapshot=snapshot, question=understand("?"),
        vector=np.array([1, 0], np.float32), usable=snapshot.alive, now=NOW,
    )  # fmt: skip
    _, total = score.score_all(weighed, score.select_by_legs(search, limit=9, pool=9))
    assert total.tolist() == pytest.approx([1.25, 0.75, 0.0])


@pytest.mark.parametrize(
    "value", [*PROFILES.values(), *POLICIES.values()], ids=lambda value: value.name
)
def test_a_row_of_the_catalog_has_the_declared_types(
    value: profiles.Profile | Policy,
) -> None:
    assert load(type(value), asdict(value)) == value
