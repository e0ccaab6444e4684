"""Categories and allowlists: read from a file with clear errors, and held by the engine whatever is asked."""

from __future__ import annotations

import builtins
import json
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import memorist
from memorist import aio
from memorist.client import Client
from memorist.errors import (
    EmbedderUnavailable,
    InvalidInput,
    MemoristError,
    Misconfigured,
    NotAllowed,
)
from memorist.interfaces.cli import app
from memorist.ports import Vectors
from memorist.scoped import ScopedClient
from memorist.settings import allowlists
from memorist.types import Draft, Labels

SEED = """
categories:
  system:
    - name: profile
      context: all
    - name: event
      context: rag
      rag_length: 30
    - name: activity
      context: rag
      rag_length: 50
  custom: []
allowlists:
  supervisor: [profile, goals, preferences, event, activity, relationships, tasks]
  planner:    [goals, tasks, projects]
  stylist:    [preferences, tone, style]
  researcher: [knowledge, interests, history]
  executor:   [tasks, recent_activity, constraints]
"""
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
async def engine(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(place, state_dir=tmp_path, embedder="hashing") as opened:
        opened.ctx.clock = lambda: NOW
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope(user="ana")


@pytest.fixture
async def plans(ana: ScopedClient) -> ScopedClient:
    """A memory with a plan in each of three categories."""
    for category in ("tasks", "goals", "profile"):
        await ana.remember(f"The deployment plan as one of the {category}.", category=category)
    return ana


def written(folder: Path, text: str, name: str = "memory_cat_config.yaml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def ids(found: list[dict[str, Any]]) -> set[str]:
    return {item["id"] for item in found}


# The file


@pytest.mark.spec("IMP-44", "IMP-45", "IMP-46", "IMP-47", "IMP-48")
def test_the_categories_of_the_specification_are_read(tmp_path: Path) -> None:
    for access in (allowlists.load(written(tmp_path, SEED)), allowlists.load(None)):
        system = {name: access.categories[name] for name in ("profile", "event", "activity")}
        assert system["profile"].context == "all"
        assert (system["event"].context, system["event"].rag_length) == ("rag", 30)
        assert (system["activity"].context, system["activity"].rag_length) == ("rag", 50)
        assert access.custom == ()


@pytest.mark.spec("IMP-49", "IMP-50", "IMP-51", "IMP-52", "IMP-53")
@pytest.mark.parametrize(
    ("agent", "names"),
    [
        (
            "supervisor",
            ("profile", "goals", "preferences", "event", "activity", "relationships", "tasks"),
        ),
        ("planner", ("goals", "tasks", "projects")),
        ("stylist", ("preferences", "tone", "style")),
        ("researcher", ("knowledge", "interests", "history")),
        ("executor", ("tasks", "recent_activity", "constraints")),
    ],
)
def test_the_allowlists_of_the_specification_are_read(
    tmp_path: Path, agent: str, names: tuple[str, ...]
) -> None:
    assert allowlists.load(written(tmp_path, SEED)).allowlists[agent] == names
    assert set(allowlists.load(None).allowlists[agent]) - {"procedural"} == set(names)


def test_a_category_that_is_only_allowed_is_declared_by_that(tmp_path: Path) -> None:
    goals = allowlists.load(written(tmp_path, SEED)).categories["goals"]
    assert (goals.context, goals.rag_length) == ("rag", 30)


@pytest.mark.spec("IMP-44")
def test_the_same_can_be_written_as_toml(tmp_path: Path) -> None:
    text = """
    allowlists.stylist = ["tone", "Preference"]
    [[categories.custom]]
    name = "tone"
    rag_length = 3
    """
    access = allowlists.load(written(tmp_path, text, "categories.toml"))
    assert access.allowlists == {"stylist": ("tone", "preferences")}
    assert (access.categories["tone"].rag_length, access.custom) == (3, ("tone",))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("categories: [", "is not YAML"),
        ("- a\n- b", "categories and allowlists: Must be an object"),
        ("kategories: {}", "kategories: Is not known here: check the name"),
        ("categories: {system: {profile: all}}", "categories.system: Must be a list"),
        ("categories: {system: [{context: all}]}", "categories.system.0.name: Is required"),
        (
            "categories: {custom: [{name: a}, {name: b, context: some}]}",
            "categories.custom.1.context: Must be 'all' or 'rag'",
        ),
        (
            "categories: {system: [{name: a, rag_length: 0}]}",
            "categories.system.0.rag_length: At least 1, or -1 for all",
        ),
        (
            "categories: {system: [{name: a, length: 3}]}",
            "categories.system.0.length: Is not known here: check the name",
        ),
        ("categories: {system: [{name: a}], custom: [{name: A}]}", "'a' is declared twice"),
        ("allowlists: [a]", "allowlists: Must be an object"),
        ("allowlists: {planner: tasks}", "allowlists.planner: Must be a list"),
        (
            "allowlists: {planner: [tasks, 3]}",
            "allowlists.planner.1: Must be text",
        ),
    ],
)
def test_a_wrong_file_is_refused_where_it_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(Misconfigured) as raised:
        memorist.open(":memory:", categories=path, state_dir=tmp_path, embedder="hashing")
    assert told in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_missing_file_or_parser_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Misconfigured, match=r"nothing\.yaml cannot be read"):
        allowlists.load(tmp_path / "nothing.yaml")
    real = builtins.__import__

    def without_yaml(name: str, *rest: Any, **more: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    with pytest.raises(Misconfigured, match=r'pip install "memorist\[supervisor\]"'):
        allowlists.load(written(tmp_path, SEED))


# The wall between agents


@pytest.mark.spec("IMP-54", "IMP-55")
async def test_a_category_that_is_not_allowed_is_refused_and_not_left_out(
    plans: ScopedClient,
) -> None:
    with pytest.raises(
        NotAllowed, match="'planner' may not read profile: only goals, tasks, projects"
    ):
        await plans.query("deployment plan", agent="planner", categories=["tasks", "profile"])
    with pytest.raises(NotAllowed, match="Agent 'stranger' has no"):
        await plans.query("deployment plan", agent="stranger")


@pytest.mark.spec("IMP-54", "IMP-63")
async def test_without_categories_an_agent_gets_only_its_own(plans: ScopedClient) -> None:
    found = await plans.query("deployment plan", agent="planner", top_k=10)
    assert {item["category"] for item in found} == {"tasks", "goals"}


@pytest.mark.spec("IMP-63")
@pytest.mark.parametrize(
    "filters",
    [
        {"category": "profile"},
        {"category": "PROFILE", "pinned": False},
        {"user_id": "bo"},
        {"user_id": ""},
    ],
    ids=str,
)
async def test_no_filter_opens_the_wall(plans: ScopedClient, filters: dict[str, Any]) -> None:
    with pytest.raises(NotAllowed):
        await plans.query("deployment plan", agent="planner", categories=["tasks"], filters=filters)


async def test_a_category_filter_narrows(plans: ScopedClient) -> None:
    found = await plans.query(
        "deployment plan", agent="planner", filters={"category": "goals"}, top_k=10
    )
    assert [item["category"] for item in found] == ["goals"]
    both = {"categories": ["tasks"], "filters": {"category": "goals"}}
    assert await plans.query("deployment plan", agent="planner", **both) == []


async def test_a_category_goes_by_all_its_names(ana: ScopedClient) -> None:
    await ana.remember("Ana prefers a warm tone.", category="preference")
    (found,) = await ana.query("which tone?", agent="stylist", categories=["Preferences"])
    assert (found["category"], found["text"]) == (
        "preferences",
        "[preferences] Ana prefers a warm tone.",
    )


# Filters, in the store


@pytest.mark.spec("IMP-59", "IMP-67", "IMP-68")
@pytest.mark.parametrize(
    "filters",
    [
        {"user_id": "ana"},
        {"agent_id": "a1"},
        {"run_id": "r1"},
        {"actor_id": "x1"},
        {"role": "user"},
        {"pinned": True},
        {"category": "tasks"},
        {"importance_min": 5},
        {"updated_after": "2026-02-01"},
        dict.fromkeys(
            ["agent_id", "run_id", "actor_id", "role", "pinned", "category", "updated_before"]
        )
        | {"importance_min": 5, "importance_max": None, "updated_after": None, "user_id": None},
    ],
    ids=str,
)
async def test_each_filter_lets_through_what_it_names(
    engine: Client, ana: ScopedClient, filters: dict[str, Any]
) -> None:
    marked = Labels(agent="a1", run="r1", actor="x1", role="user")
    wanted = Draft(
        text="Deploy the blue plan.", category="tasks", labels=marked, importance=0.9, pinned=True
    )
    engine.ctx.clock = lambda: datetime(2026, 1, 1, tzinfo=UTC)
    await ana.remember_drafts(
        [Draft(text="Deploy the red plan.", category="goals", importance=0.1)], policy="supervisor"
    )
    engine.ctx.clock = lambda: NOW
    (id,) = (await ana.remember_drafts([wanted], policy="supervisor")).ids
    found = await ana.query("deploy the plan", agent="planner", filters=filters)
    assert len(found) == (2 if filters.get("user_id") else 1)
    assert id in ids(found)


@pytest.mark.spec("IMP-59", "IMP-68")
@pytest.mark.parametrize(
    "filters", [{"pinned": False}, {"importance_max": 1}, {"updated_before": "2026-02-01"}], ids=str
)
async def test_each_filter_keeps_out_what_it_excludes(
    engine: Client, ana: ScopedClient, filters: dict[str, Any]
) -> None:
    engine.ctx.clock = lambda: datetime(2026, 1, 1, tzinfo=UTC)
    (old,) = (
        await ana.remember(
            "Deploy the red plan.", category="goals", importance=0.1, policy="milton"
        )
    ).ids
    engine.ctx.clock = lambda: NOW
    await ana.remember(
        "Deploy the blue plan.", category="tasks", importance=0.9, pinned=True, policy="milton"
    )
    assert ids(await ana.query("deploy the plan", agent="planner", filters=filters)) == {old}


@pytest.mark.spec("IMP-59", "IMP-60")
async def test_levels_bound_the_importance_from_both_sides(ana: ScopedClient) -> None:
    levels = {level / 5: f"Deploy plan number {level}." for level in range(1, 6)}
    drafts = [
        Draft(text=text, category="tasks", importance=value) for value, text in levels.items()
    ]
    await ana.remember_drafts(drafts, policy="milton")
    for least, most in ((1, 5), (3, 5), (1, 2), (3, 3), (2, 4)):
        filters = {"importance_min": least, "importance_max": most}
        found = await ana.query("deploy plan", agent="planner", filters=filters, top_k=9)
        assert {item["text"] for item in found} == {
            f"[tasks] {levels[n / 5]}" for n in range(least, most + 1)
        }


@pytest.mark.parametrize(
    "wrong",
    [
        {"filters": {"colour": "red"}},
        {"filters": {"importance_min": 0.5}},
        {"filters": {"pinned": "yes"}},
        {"filters": {"run_id": 3}},
        {"filters": {"updated_after": "soon"}},
        {"categories": "tasks"},
        {"top_k": 0},
        {"return_": "poem"},
        {"budget_tokens": -1},
        {"threshold": 2},
    ],
    ids=str,
)
async def test_a_wrong_question_is_told_what_is_wrong(
    ana: ScopedClient, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        await ana.query("deploy", agent="planner", **wrong)


# The answer


@pytest.mark.spec("IMP-61")
async def test_bullets_have_three_fields(plans: ScopedClient) -> None:
    (found,) = await plans.query("deployment plan", agent="planner", categories=["tasks"])
    assert set(found) == {"id", "category", "text"}
    assert (found["category"], found["text"]) == (
        "tasks",
        "[tasks] The deployment plan as one of the tasks.",
    )


@pytest.mark.spec("IMP-62")
async def test_full_answers_carry_summary_and_metadata(plans: ScopedClient) -> None:
    (found,) = await plans.query(
        "deployment plan", agent="planner", categories=["tasks"], return_="full"
    )
    assert found["summary"] == found["text"] == "The deployment plan as one of the tasks."
    assert found.keys() >= {
        "id",
        "category",
        "kind",
        "tags",
        "importance",
        "confidence",
        "pinned",
        "updated_at",
    }
    json.dumps(found)


@pytest.mark.spec("IMP-62")
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_full_answer_has_the_summary_that_was_written(ana: ScopedClient) -> None:
    (id,) = (
        await ana.remember(
            "The deployment plan in all its detail.", category="tasks", kind="semantic"
        )
    ).ids
    await ana.edit(id, summary="The plan.", importance=0.6)
    (found,) = await ana.query("deployment plan", agent="planner", return_="full")
    assert (found["summary"], found["text"]) == (
        "The plan.",
        "The deployment plan in all its detail.",
    )
    assert (found["importance"], found["pinned"], found["kind"]) == (3, False, "semantic")


@pytest.mark.spec("IMP-64")
async def test_what_is_less_similar_than_the_threshold_is_dropped(
    engine: Client, ana: ScopedClient
) -> None:
    texts = ["deploy the blue plan tonight", "buy bread and the blue paint"]
    for text in texts:
        await ana.remember(text, category="tasks")
    assert engine.ctx.embedder is not None
    vectors = await engine.ctx.embedder.encode_batch(["deploy the blue plan", *texts])
    near, far = (float(vectors[0] @ vector) for vector in vectors[1:])
    for threshold, expected in ((near - 0.01, 1), (near + 0.01, 0), (max(0.0, far - 0.01), 2)):
        found = await ana.query("deploy the blue plan", agent="planner", threshold=threshold)
        assert len(found) == expected


@pytest.mark.spec("IMP-64")
async def test_a_threshold_without_vectors_is_an_error_and_not_an_empty_answer(
    tmp_path: Path,
) -> None:
    refused = ""
    async with aio.open(tmp_path / "plain.db", state_dir=tmp_path, embedder="none") as plain:
        await plain.scope(user="ana").remember("deploy the blue plan", category="tasks")
        try:
            await plain.scope(user="ana").query(
                "deploy the blue plan", agent="planner", threshold=0.65
            )
        except MemoristError as error:
            refused = str(error)
    assert "threshold" in refused


@pytest.mark.spec("IMP-64")
async def test_a_threshold_while_the_embedder_is_down_is_an_error(
    engine: Client, ana: ScopedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ana.remember("deploy the blue plan", category="tasks")

    async def fail(texts: Sequence[str]) -> Vectors:
        raise EmbedderUnavailable

    monkeypatch.setattr(engine.ctx.embedder, "encode_batch", fail)
    with pytest.raises(EmbedderUnavailable, match="The threshold cannot be applied"):
        await ana.query("deploy the blue plan", agent="planner", threshold=0.65)
    assert len(await ana.query("deploy the blue plan", agent="planner")) == 1


@pytest.mark.spec("IMP-65")
@pytest.mark.parametrize("shape", ["bullets", "full"])
@pytest.mark.parametrize("budget", [1, 60, 200, 700])
async def test_the_answer_stays_within_its_budget(
    engine: Client, ana: ScopedClient, shape: str, budget: int
) -> None:
    for n in range(12):
        await ana.remember(
            f"Deploy plan {n} " + "and then rest a little " * n, category="tasks", policy="milton"
        )
    found = await ana.query(
        "deploy plan", agent="planner", top_k=12, return_=shape, budget_tokens=budget
    )
    assert (
        sum(engine.ctx.count_tokens(json.dumps(item, ensure_ascii=False)) for item in found)
        <= budget
    )
    assert bool(found) == (budget >= (200 if shape == "full" else 60))


@pytest.mark.spec("IMP-56")
async def test_a_category_gives_no_more_than_its_length(tmp_path: Path) -> None:
    config = (
        "categories: {custom: [{name: tasks, rag_length: 2}, {name: goals}, "
        "{name: projects, context: all, rag_length: 1}]}\nallowlists: {planner: [tasks, goals, projects]}"
    )
    place = {"state_dir": tmp_path, "embedder": "hashing", "categories": written(tmp_path, config)}
    async with aio.open(tmp_path / "memory.db", **place) as opened:
        ana = opened.scope(user="ana")
        for n in range(5):
            await ana.remember(f"Deploy plan number {n}.", category="tasks", policy="milton")
            await ana.remember(f"Deploy goal number {n}.", category="goals", policy="milton")
            await ana.remember(f"Deploy project number {n}.", category="projects", policy="milton")
        found = await ana.query("deploy number", agent="planner", top_k=15, budget_tokens=2000)
    assert [item["category"] for item in found].count("tasks") == 2
    assert [item["category"] for item in found].count("goals") == 5
    assert [item["category"] for item in found].count("projects") == 5, (
        "all of it, whatever the length says"
    )


@pytest.mark.slow
@pytest.mark.spec("IMP-66", "IMP-92")
async def test_bullets_come_within_150_milliseconds(ana: ScopedClient) -> None:
    drafts = [
        Draft(text=f"Deploy plan {n} for room {n * 7}.", category="tasks") for n in range(2000)
    ]
    await ana.remember_drafts(drafts, policy="milton")
    await ana.query("warm up", agent="planner")
    spent = []
    for n in range(10):
        start = time.perf_counter()
        assert len(await ana.query(f"deploy plan {n}", agent="planner", categories=["tasks"])) == 3
        spent.append(time.perf_counter() - start)
    assert statistics.median(spent) < 0.150, spent


@pytest.mark.spec("IMP-66", "IMP-92")
async def test_bullets_of_a_small_memory_come_within_150_milliseconds(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "small.db", state_dir=tmp_path, embedder="hashing") as small:
        ana, spent = small.scope(user="ana"), []
        drafts = [
            Draft(text=f"Deploy plan {n} for room {n * 7}.", category="tasks") for n in range(100)
        ]
        await ana.remember_drafts(drafts, policy="milton")
        for n in range(6):
            start = time.perf_counter()
            assert (
                len(await ana.query(f"deploy plan {n}", agent="planner", categories=["tasks"])) == 3
            )
            spent.append(time.perf_counter() - start)
    assert min(spent) < 0.150, spent


def test_the_blocking_door_and_the_command_line_ask_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path))
    place = str(tmp_path / "memory.db")
    with memorist.open(place) as memory:
        ana = memory.scope("ana")
        ana.remember("Deploy the plan.", category="tasks", importance=0.9)
        found = ana.query("plan", agent="planner")
    words = ["agent", "query", "plan", "--db", place, "--user", "ana", "--agent"]
    asked = CliRunner().invoke(
        app, [*words, "planner", "--category", "tasks", "--filter", "importance_min=1", "--json"]
    )
    assert json.loads(asked.stdout) == found
    assert "[tasks] Deploy the plan." in CliRunner().invoke(app, [*words, "planner"]).stdout
    refused = CliRunner().invoke(app, [*words, "stylist", "--category", "tasks"])
    assert (refused.exit_code, "may not read tasks" in refused.stderr) == (4, True)
    assert CliRunner().invoke(app, [*words, "planner", "--filter", "pinned"]).exit_code == 2
