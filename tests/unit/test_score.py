"""The default ranking over a scope of a few turns."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from memorist.index.arrays import Neighbors
from memorist.retrieve.confidence import scale_answer_threshold, scale_hit_threshold
from memorist.retrieve.features import SnapshotSearch
from memorist.retrieve.profiles import DEFAULT
from memorist.retrieve.question import understand
from memorist.retrieve.score import reciprocal_rank, score_all, select_best
from memorist.text import clock, cues, tokens

MAY, JUNE = datetime(2023, 5, 8, tzinfo=UTC), datetime(2023, 6, 8, tzinfo=UTC)
NOW = datetime(2023, 9, 1, tzinfo=UTC)


class TinySnapshot:
    """Turns (session, speaker, time, text) as a snapshot; a vector is one number per word of a small vocabulary."""

    def __init__(
        self, said: Sequence[tuple[str | None, str, datetime | None, str]], dead: Sequence[int] = ()
    ) -> None:
        self.n = len(said)
        self.row = np.arange(self.n, dtype=np.int64)
        sessions = [session for session, *_ in said]
        self.session = np.array(
            [-1 if s is None else sorted(filter(None, sessions)).index(s) for s in sessions],
            np.int32,
        )
        self.sequence = np.arange(self.n, dtype=np.int32)
        self.speakers = tuple(dict.fromkeys(speaker for _, speaker, _, _ in said))
        self.speaker = np.array(
            [self.speakers.index(speaker) for _, speaker, _, _ in said], np.int32
        )
        self.occurred = np.array([clock.micros(at) for _, _, at, _ in said], np.int64)
        self.alive = np.array([position not in dead for position in range(self.n)], np.bool_)
        self.kind = np.zeros(self.n, np.uint8)
        self.flags = np.array([_flags(text, speaker) for _, speaker, _, text in said], np.uint32)
        self.terms = [
            Counter(map(tokens.term_id, tokens.analyze(tokens.sparse_text(t, s, a))))
            for _, s, a, t in said
        ]
        self.length = np.array([terms.total() for terms in self.terms], np.float32)
        self.count, self.mean_length = (
            int(self.alive.sum()),
            float(self.length[self.alive].mean()) if said else 0.0,
        )
        self.vectors = np.zeros((self.n, 2), np.float32)
        self.message_length = self.length

    def postings(
        self, terms: Sequence[int]
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        for term in terms:
            where = [p for p in range(self.n) if self.alive[p] and term in self.terms[p]]
            counts = [self.terms[p][term] for p in where]
            yield np.array(where, np.int32), np.array(counts, np.float32)

    def similarity(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.vectors @ vector

    @property
    def embedded(self) -> NDArray[np.bool_]:
        return self.vectors.any(axis=1)

    @property
    def unembedded(self) -> int:
        return int((self.alive & ~self.embedded).sum())

    @property
    def neighbors(self) -> Neighbors:
        alive = np.flatnonzero(self.alive)
        order = alive[np.lexsort((alive, self.sequence[alive], self.session[alive]))].astype(
            np.int32
        )
        return Neighbors.of(order, self.session)

    @property
    def marked(self) -> dict[int, NDArray[np.bool_]]:
        return {flag: self.flags & flag != 0 for flag in cues.FLAGS}


def _flags(text: str, speaker: str) -> int:
    marks = 2 * clock.has_time(text) | 16 * cues.ends_asking(text)
    marks |= round(cues.asking_share(text) * cues.MOST_ASKING) << cues.ASKING
    return marks | {"user": 4, "assistant": 8}.get(speaker, 0)


class Ranked(NamedTuple):
    """The best positions, best first, and what each part of their scores is."""

    positions: NDArray[np.intp]
    parts: dict[str, NDArray[np.float64]]
    score: NDArray[np.float64]
    evidence: float  # of the best match by its own words alone


def search_for(snapshot: Any, text: str, **more: Any) -> SnapshotSearch:
    given = {"profile": DEFAULT, "usable": snapshot.alive} | more
    question = understand(text, snapshot.speakers, NOW)
    return SnapshotSearch(snapshot=snapshot, question=question, now=NOW, **given)


def ask(
    snapshot: Any,
    text: str,
    vector: NDArray[np.float32] | None = None,
    *,
    allowed: NDArray[np.bool_] | None = None,
    weights: dict[str, float] | None = None,
    pool: int = 100,
) -> Ranked:
    search = search_for(
        snapshot,
        text,
        vector=vector,
        profile=DEFAULT if weights is None else replace(DEFAULT, weights=weights),
        usable=snapshot.alive if allowed is None else snapshot.alive & allowed,
    )
    found = select_best(search, pool=pool)
    parts, score = score_all(search.profile, found)
    own = parts["sparse"] + parts["semantic"]
    return Ranked(found.positions, parts, score, float(np.max(own, initial=0.0)))


CHAT = (
    ("1", "Caroline", MAY, "I went to the beach yesterday."),
    ("1", "Melanie", MAY, "Nice! Which ice cream did you have?"),
    ("1", "Caroline", MAY, "Pistachio."),
    ("2", "Melanie", JUNE, "I went to the beach too."),
    ("2", "Caroline", JUNE, "Good for you."),
    (None, "Melanie", None, "My dog is called Rex."),
)


def test_the_parts_of_a_score_add_up() -> None:
    found = ask(
        TinySnapshot(CHAT),
        "When did Caroline go to the beach in May?",
        np.array([1, 0], np.float32),
    )
    # a leg that is missing counts 0; an estimate needs the second model; the verdict is added later
    assert set(found.parts) == set(DEFAULT.weights) - {"estimate", "verdict"}
    np.testing.assert_allclose(found.score, sum(found.parts.values()), rtol=0, atol=1e-12)
    assert list(found.score) == sorted(found.score, reverse=True)


@pytest.mark.spec("THE-73")
def test_without_vectors_the_words_still_find() -> None:
    assert ask(TinySnapshot(CHAT), "What is the name of Rex the dog?").positions[0] == 5


@pytest.mark.spec("THE-57")
def test_without_a_shared_word_the_meaning_finds_and_a_memory_without_vector_is_passed_over() -> (
    None
):
    snapshot = TinySnapshot(
        [("1", "user", None, "I cannot eat nuts."), ("2", "user", None, "My car is red.")]
    )
    snapshot.vectors[0] = (0.6, 0.8)
    assert ask(snapshot, "allergies", np.array([1, 0], np.float32)).positions.tolist() == [0]


def test_a_word_said_twice_counts_more_than_once_and_less_than_double() -> None:
    snapshot = TinySnapshot(
        [
            ("1", "user", None, "Pistachio ice cream, pistachio cake."),
            ("2", "user", None, "Pistachio ice cream, chocolate cake."),
            ("3", "user", None, "My car is red."),
        ]
    )
    scores, _ = search_for(snapshot, "pistachio").bm25
    assert 2 * scores[1] > scores[0] > scores[1] > scores[2] == 0


def test_nothing_matching_returns_nothing() -> None:
    assert ask(TinySnapshot(CHAT), "quantum chromodynamics").positions.tolist() == []


def test_an_empty_scope_returns_nothing() -> None:
    found = ask(TinySnapshot([]), "beach", np.array([1, 0], np.float32))
    assert (found.positions.tolist(), found.evidence) == ([], 0.0)


def test_the_speaker_asked_about_comes_first() -> None:
    assert ask(TinySnapshot(CHAT), "Did Melanie see the beach?").positions[0] == 3
    assert ask(TinySnapshot(CHAT), "Did Caroline see the beach?").positions[0] == 0


def test_the_month_asked_about_comes_first() -> None:
    assert ask(TinySnapshot(CHAT), "Who was at the beach in June?").positions[0] == 3
    assert ask(TinySnapshot(CHAT), "Who was at the beach in May?").positions[0] == 0


def test_the_reply_to_a_question_is_found_by_the_question() -> None:
    found = ask(TinySnapshot(CHAT), "Which ice cream?")
    reply = found.positions.tolist().index(2)
    assert found.parts["sparse"][reply] == 0
    assert found.parts["answers"][reply] > 0
    assert found.parts["question"][found.positions.tolist().index(1)] < 0


def test_what_the_assistant_says_stands_back_unless_it_is_asked_about() -> None:
    snapshot = TinySnapshot(
        [
            ("1", "assistant", MAY, "Paris has good hotels."),
            ("1", "user", MAY, "Paris has good hotels."),
        ]
    )
    assert ask(snapshot, "Paris hotels").positions.tolist() == [1, 0]
    assert ask(snapshot, "Which Paris hotels did you recommend?").positions.tolist() == [0, 1]


def test_the_dead_are_neither_returned_nor_counted() -> None:
    snapshot = TinySnapshot(CHAT, dead=[0])
    found = ask(snapshot, "beach")
    assert 0 not in found.positions
    assert search_for(snapshot, "beach").bm25[0][0] == 0


def test_what_is_not_allowed_is_not_returned_and_supports_nothing() -> None:
    allowed = np.array([False, True, True, True, True, True])
    found = ask(TinySnapshot(CHAT), "beach", allowed=allowed)
    assert found.positions.tolist() == [3, 4]


def test_equal_scores_are_ordered_by_position() -> None:
    snapshot = TinySnapshot([(None, "user", None, "tea")] * 20)
    assert ask(snapshot, "tea", pool=5).positions.tolist() == [0, 1, 2, 3, 4]


def test_of_two_equal_memories_the_newer_comes_first() -> None:
    snapshot = TinySnapshot([(None, "user", MAY, "tea time"), (None, "user", JUNE, "tea time")])
    assert ask(snapshot, "tea").positions.tolist() == [1, 0]


def test_the_pool_holds_the_best() -> None:
    snapshot = TinySnapshot(CHAT)
    assert (
        ask(snapshot, "beach", pool=2).positions.tolist()
        == ask(snapshot, "beach").positions.tolist()[:2]
    )


def test_a_part_that_has_no_weight_is_left_out() -> None:
    found = ask(TinySnapshot(CHAT), "Caroline beach", weights={"sparse": 1.0, "semantic": 1.0})
    assert set(found.parts) == {"sparse", "semantic"}


def test_a_turn_gains_by_the_better_match_of_the_turns_beside_it_and_by_its_session() -> None:
    snapshot = TinySnapshot([("5", "user", None, "")] * 2 + [("6", "user", None, "")])
    search = SnapshotSearch(
        profile=DEFAULT,
        snapshot=snapshot,  # type: ignore[arg-type]
        question=understand("?"),
        vector=None,
        usable=snapshot.alive,
        now=NOW,
    )
    search.__dict__["own"] = np.array([0.5, 0.0, 0.25], np.float32)
    assert search.around.tolist() == [0.0, 0.5, 0.0]
    assert search.session.tolist() == [0.5, 0.5, 0.25]


@pytest.mark.spec("THE-58", "THE-73")
def test_rank_fusion_takes_an_empty_ranking() -> None:
    assert reciprocal_rank([["a", "b"], []]) == {"a": 1 / 61, "b": 1 / 62}


def test_a_larger_scope_asks_for_more_confidence() -> None:
    answers = [scale_answer_threshold(count) for count in (5, 50, 500, 10**6)]
    assert answers == sorted(answers)
    assert (answers[0], answers[-1]) == (1.0, 1.8)
    hits = [scale_hit_threshold(count) for count in (5, 30, 300, 3000)]
    assert hits == [0.55, 1.0, 1.0, 1.5]
