"""`memorist eval` through the door people use, with the packaged model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from llm_server import Request, Server
from memorist import dialects, evals
from memorist.errors import ModelUnavailable
from memorist.evals.tasks import filled_memory
from memorist.ingest import policies
from memorist.interfaces.cli import app
from memorist.manage.chat_commands import parse

GATE: dict[str, Any] = {
    "sessions": [
        {
            "at": "2026-05-04T09:00:00Z",
            "messages": [
                {"role": "user", "content": "The garden gate was painted green by Ms Adeyemi."},
                {"role": "assistant", "content": "It must look nice."},
            ],
        }
    ],
    "question": "Which colour has the garden gate?",
    "asked_at": "2026-05-20T09:00:00Z",
    "must": ["green"],
}
LEAK = {**GATE, "must_not": ["Adeyemi"]}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home where everything that could be written to is configured."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MEMORIST_")]:
            patch.delenv(name)
        for name in (
            "HOME",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
        ):
            patch.setenv(name, str(home))
        patch.setenv("MEMORIST_DB", str(home / "memory.db"))
        patch.setenv("MEMORIST_JOURNAL_DIR", str(home / "journal"))
        patch.setenv("MEMORIST_VECTOR_INDEX", f"chroma:{home / 'chroma'}")
        patch.setenv("COLUMNS", "80")
        yield home


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["eval", *map(str, words)])


@pytest.fixture(scope="module")
def report() -> dict[str, dict[str, Any]]:
    """What the packaged tasks gave, by the name of the run."""
    done = run("--json")
    assert done.exit_code == 0, done.output
    return {each["name"]: each for each in json.loads(done.stdout)["runs"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two tasks of the user's own, and the quick embedder."""
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")
    (tmp_path / "gate.json").write_text(json.dumps(GATE), "utf-8")
    (tmp_path / "leak.json").write_text(json.dumps(LEAK), "utf-8")
    return tmp_path


@pytest.mark.spec("THE-103", "THE-104")
def test_what_cannot_be_answered_without_memory_is_answered_with_it(
    report: dict[str, dict[str, Any]],
) -> None:
    assert report["no memory"]["passed"] == 0
    assert report["memory"]["passed"] >= 0.7
    assert report["memory"]["found"] >= 0.95
    assert 0 < report["memory"]["tokens"] < 400


def test_nothing_comes_back_that_was_not_to_be_remembered(
    report: dict[str, dict[str, Any]],
) -> None:
    private = [
        task for each in report.values() for task in each["tasks"] if task["kind"] == "private"
    ]
    assert len(private) >= 12
    assert [task for task in private if task["forbidden"]] == []


@pytest.mark.spec("THE-106")
def test_with_the_vectors_switched_off_words_still_find_most(
    report: dict[str, dict[str, Any]],
) -> None:
    assert report["memory, no vectors"]["found"] >= 0.6
    assert report["memory, no vectors"]["passed"] > report["no memory"]["passed"]
    assert report["memory, no vectors"]["tasks"] != report["memory"]["tasks"], (
        "the vectors made a difference"
    )


@pytest.mark.spec("THE-106")
def test_with_the_vectors_switched_off_fused_rankings_still_answer(folder: Path) -> None:
    done = run("--tasks", folder, "--own", "--profile", "theoria.triscore", "--json")
    assert done.exit_code == 0, done.output
    found = {each["name"]: each["found"] for each in json.loads(done.stdout)["runs"]}
    assert found == {"no memory": 0.0, "memory": 1.0, "memory, no vectors": 1.0}


async def test_a_memory_without_its_guards_would_fail_every_private_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        dialects.POLICIES, "open", replace(policies.DEFAULT, name="open", guard="none")
    )
    open_ones = [_unprotected(task) for task in evals.packaged() if task.kind == "private"]
    report = await evals.evaluate(open_ones, policy="open")
    assert [result.task for result in report.run("memory").results if not result.forbidden] == []


def _unprotected(task: evals.EvalTask) -> evals.EvalTask:
    """The same task without what the user says to the memory itself."""
    kept = [
        tuple(turn for turn in each.messages if not parse(turn.content)) for each in task.sessions
    ]
    return replace(
        task,
        sessions=tuple(map(lambda each, said: replace(each, messages=said), task.sessions, kept)),
    )


def test_nothing_of_the_users_own_is_touched(report: dict[str, dict[str, Any]], home: Path) -> None:
    assert CliRunner().invoke(app, ["demo"]).exit_code == 0
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_the_report_can_be_read_and_says_how_it_was_judged(folder: Path) -> None:
    done = run("--tasks", folder, "--own")
    assert done.exit_code == 0
    assert "leak: says Adeyemi" in done.stdout
    assert "Without a language model the recalled block itself is judged" in done.stdout
    assert "50%" in done.stdout
    assert re.search(r"own\W+0 of 2\W+1 of 2\W+1 of 2", done.stdout), (
        "passed, by kind: without and with memory"
    )


def test_tasks_of_ones_own_are_added_to_ours(folder: Path) -> None:
    own = json.loads(run("--tasks", folder, "--own", "--json").stdout)["runs"][1]["tasks"]
    assert {task["task"]: task["passed"] for task in own} == {"gate": True, "leak": False}
    assert run("--own").exit_code == 2


def test_too_few_passed_is_a_failure_only_if_a_share_was_asked_for(folder: Path) -> None:
    done = run("--tasks", folder, "--own", "--min", "0.9", "--limit", 3)
    assert done.exit_code == 1
    assert "50% of the tasks passed; 90% are required" in done.stderr
    assert run("--tasks", folder, "--own", "--min", "0.5").exit_code == 0


def test_a_broken_task_is_named_with_its_file_and_field(folder: Path) -> None:
    (folder / "broken.json").write_text(
        json.dumps({**GATE, "sessions": [{"at": "today"}]}), "utf-8"
    )
    done = run("--tasks", folder)
    assert done.exit_code == 2
    assert "broken.json: sessions.0.at" in done.stderr
    assert run("--tasks", folder / "nowhere").exit_code == 3


@pytest.mark.spec("THE-105")
def test_a_sweep_varies_the_ranking_and_draws_accuracy_against_tokens(folder: Path) -> None:
    picture = folder / "sweep.svg"
    done = run("--tasks", folder, "--own", "--sweep", "--plot", picture, "--json")
    assert done.exit_code == 0, done.output
    swept = json.loads(done.stdout)["sweep"]
    few, many = (
        point
        for point in swept["points"]
        if point["ranking"] == "default" and point["values"]["N"] in (1, 10)
    )
    assert few["tokens"] < many["tokens"]
    assert swept["best"]["accuracy"] >= swept["usual"]["accuracy"]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


async def test_what_the_settings_leave_to_a_worker_is_done_before_the_questions(
    folder: Path,
) -> None:
    async with filled_memory(
        evals.from_folder(folder), policy="theoria", extract="rules"
    ) as memory:
        assert not any(
            each.waiting for each in await memory.backlog() if each.name in ("embed", "extract")
        )
        found = await memory.scope("sam", "gate").recall("garden gate")
    assert found.legs["dense"] == "ok"


@pytest.mark.spec("THE-104")
async def test_the_answers_of_a_model_are_judged_with_and_without_memory(folder: Path) -> None:
    async def model(question: str, block: str, at: datetime) -> str:
        assert question == GATE["question"]
        if "Adeyemi" in block:
            return "The gate is green."
        raise ModelUnavailable("it does not answer")

    report = await evals.evaluate(evals.from_folder(folder), answerer=model)
    assert report.run("model, memory").accuracy == 1.0
    assert report.run("model, no memory").accuracy == 0.0
    assert report.run("model, no memory").results[0].problem == "it does not answer"
    assert report.best_equipped.name == "model, memory"


@pytest.mark.spec("THE-104")
def test_a_configured_model_answers_from_what_is_remembered(
    folder: Path, llm_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reader(request: Request) -> dict[str, str]:
        return {"answer": "It is green." if "painted green" in request.user else "I do not know."}

    llm_server.answer = reader
    for name, value in (
        ("LLM", "openai:test-model"),
        ("LLM_URL", f"{llm_server.url}/v1"),
        ("LLM_KEY", "none"),
    ):
        monkeypatch.setenv(f"MEMORIST_{name}", value)
    done = run("--tasks", folder, "--own", "--json")
    assert done.exit_code == 0, done.output
    passed = {each["name"]: each["passed"] for each in json.loads(done.stdout)["runs"]}
    assert passed["model, memory"] == 1.0
    assert passed["model, no memory"] == 0.0
    assert passed["memory"] == 0.5, "the rules are judged as if there were no model"
    assert sum(GATE["question"] in request.user for request in llm_server.requests) == 4


TALK: dict[str, Any] = {
    "name": "ana",
    "speakers": ["user", "assistant"],
    "messages": [
        {"id": "m1", "speaker": "user", "text": "My sister Marta keeps bees in Braga."},
        {"id": "m2", "speaker": "assistant", "text": "That sounds lovely."},
        {"id": "m3", "speaker": "user", "text": "I drink green tea every morning."},
        {"id": "m4", "speaker": "user", "text": "The invoice for March is 420 euros."},
    ],
    "questions": [
        {"question": "Where does Marta keep bees?", "evidence": ["m1"], "category": "fact"},
        {"question": "What do I drink in the morning?", "evidence": ["m3"], "category": "fact"},
        {"question": "Who won the World Cup in 1998?", "evidence": [], "category": "unknown"},
    ],
}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps(TALK), "utf-8")
    return file


def test_questions_of_my_own_are_asked_and_what_comes_back_is_measured(questions: Path) -> None:
    done = run(questions, "--json")
    assert done.exit_code == 0, done.output
    parts = json.loads(done.stdout)["parts"]
    assert list(parts) == ["all", "fact", "unknown"]
    found = parts["all"]
    assert (found["questions"], found["@1"], found["default"], found["empty"]) == (3, 1, 1, 0)
    assert 0 < found["precision"] <= 1
    assert found["tokens"] > 10
    assert (parts["fact"]["silent"], parts["unknown"]["default"]) == (None, None)
    assert found["silent"] == parts["unknown"]["silent"]


def test_the_table_of_questions_fits_the_terminal(questions: Path) -> None:
    done = run(questions)
    assert done.exit_code == 0, done.output
    titles = ["asked", "@1", "@5", "@10", "recall", "precision", "tokens", "empty", "silent"]
    assert any(line.split() == titles for line in done.stdout.splitlines())
    assert any(line.split()[:3] == ["all", "3", "1.00"] for line in done.stdout.splitlines())
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_higher_confidence_gives_fewer_answers_and_may_fail(questions: Path) -> None:
    done = run(questions, "--min-confidence", 1, "--min", 0.5, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)["parts"]["all"]
    assert (found["@1"], found["default"], found["empty"], found["silent"]) == (1, 0, 1, 1)
    assert "0% of the evidence is recalled; 50% are required" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["{file}", "--sweep"], 2, "FILE cannot be combined with --tasks, --own, --sweep"),
        (["{file}", "--min-confidence", "1.5"], 2, "must be between 0 and 1"),
        (["{file}", "--profile", "nobody"], 2, "Unknown profile 'nobody'"),
        (["--min-confidence", "0.5"], 2, "--min-confidence requires a FILE"),
        (["."], 2, "'.' is not a .jsonl file"),
        (["none.jsonl"], 3, "No file 'none.jsonl'"),
    ],
)
def test_wrong_calls_about_questions_are_refused(
    questions: Path, words: list[str], code: int, why: str
) -> None:
    done = run(*(word.format(file=questions) for word in words))
    assert done.exit_code == code, done.output
    assert why in " ".join(done.stderr.replace("│", " ").split())


def test_a_bad_line_is_named(questions: Path) -> None:
    questions.write_text(f"{json.dumps(TALK)}\n{{\n", "utf-8")
    done = run(questions)
    assert done.exit_code == 2
    assert done.stderr.startswith("memorist: questions.jsonl, line 2: not valid JSON: ")
