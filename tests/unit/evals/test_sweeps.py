"""Which settings a sweep tries, how they become profiles, and how they are drawn."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from memorist import evals
from memorist.dialects import THEORIA
from memorist.evals import FUSION, OURS, RANKINGS, TRISCORE, Point, SweepReport, plan, profile
from memorist.retrieve.profiles import DEFAULT, Recency

USUAL = {ranking: numbers["usual"] for ranking, numbers in RANKINGS.items()}


@pytest.mark.spec("THE-105")
def test_every_number_of_the_ranking_is_varied() -> None:
    for ranking, names in ((TRISCORE, "αβγτN"), (FUSION, "kN"), (OURS, "N")):
        tried = [values for each, values in plan() if each == ranking]
        assert all(len({values[name] for values in tried}) > 1 for name in names)
    assert len({(ranking, *values.items()) for ranking, values in plan()}) == len(plan())


@pytest.mark.spec("THE-105")
@pytest.mark.parametrize("name", "αβγτN")
def test_each_number_of_the_triscore_is_also_varied_alone(name: str) -> None:
    usual = {"α": 1.0, "β": 1.0, "γ": 1.0, "τ": 7.0, "N": 12}
    tried = [values for ranking, values in plan() if ranking == "theoria.triscore"]
    assert len([values for values in tried if {**values, name: usual[name]} == usual]) >= 4


@pytest.mark.spec("THE-105")
def test_the_numbers_of_a_setting_reach_the_ranking() -> None:
    tuned = profile("theoria.triscore", {"α": 0.5, "β": 0.25, "γ": 2.0, "τ": 30.0, "N": 4})
    assert tuned.weights == {"relevance": 0.5, "recency": 0.25, "importance": 2.0}
    assert tuned.recency == Recency(shape="exponential", scale=30 * 86400)
    assert profile("RRF alone", {"k": 10, "N": 4}).rrf_k == 10


def test_the_usual_numbers_are_those_of_the_profiles() -> None:
    usual = profile(TRISCORE, USUAL[TRISCORE])
    assert (usual.weights, usual.recency) == (THEORIA.weights, THEORIA.recency)
    assert USUAL[TRISCORE]["N"] == THEORIA.limit
    assert USUAL[FUSION]["k"] == THEORIA.rrf_k
    assert USUAL[OURS]["N"] == DEFAULT.limit


def swept() -> SweepReport:
    def at(ranking: str, accuracy: float, tokens: float, **values: float) -> Point:
        return Point(
            ranking=ranking, values={**USUAL[ranking], **values}, accuracy=accuracy, tokens=tokens
        )

    return SweepReport(
        points=(
            at(TRISCORE, 0.7, 140),
            at(TRISCORE, 0.8, 90, β=0.1, N=8),
            at(TRISCORE, 0.8, 60, β=0.0),
            at(TRISCORE, 0.6, 20, N=2),
            at(FUSION, 0.5, 30, k=1),
            at(FUSION, 0.6, 50),
            at(OURS, 0.8, 80, N=4),
        )
    )


@pytest.mark.spec("THE-105")
def test_of_equally_accurate_settings_the_shortest_is_best() -> None:
    assert swept().best.values["β"] == 0.0
    assert swept().usual.accuracy == 0.7
    assert swept().ours.tokens == 80


def test_along_one_number_all_others_are_as_usual() -> None:
    assert [point.values["β"] for point in swept().along("β")] == [0.0, 1.0]
    assert [point.values["k"] for point in swept().along("k")] == [1, 60]
    assert [point.values["N"] for point in swept().along("N") if point.ranking == TRISCORE] == [
        2,
        12,
    ]


def test_the_picture_has_a_dot_for_each_setting_inside_its_frame() -> None:
    drawn = ElementTree.fromstring(evals.svg(swept()))
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    dots = [dot for dot in drawn.iter("{http://www.w3.org/2000/svg}circle") if len(dot)]
    assert len(dots) == len(swept().points)
    assert all(
        0 < float(dot.attrib["cx"]) < width and 0 < float(dot.attrib["cy"]) < height for dot in dots
    )
    highest = min(dots, key=lambda dot: float(dot.attrib["cy"]))
    assert "80%" in (highest[0].text or "")
    assert [point.tokens for point in evals.front(swept().points)] == [20, 60]
