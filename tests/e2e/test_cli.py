"""The command line, through the door people use: a few commands in a process of their own, the rest in this one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import memorist
from e2e.imports.formats import chatgpt_chat, chatgpt_message
from memorist.interfaces.cli import app, files
from memorist.manage import import_export
from memorist.ports import LlmUsage
from memorist.sync import BlockingScope

ROOT = Path(__file__).parents[2]
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for every test, and the quick embedder."""
    for name in [name for name in os.environ if name.startswith("MEMORIST_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("MEMORIST_DB", str(tmp_path / "memory.db"))
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")
    monkeypatch.setenv("MEMORIST_EXTRACT", "off")
    monkeypatch.setenv("MEMORIST_USER", "ana")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run() -> Run:
    return lambda *words, **more: CliRunner().invoke(app, [str(word) for word in words], **more)


@pytest.fixture
def tea(run: Run) -> str:
    """The id of a memory."""
    answer = run("remember", "I drink green tea.", "--json")
    return str(json.loads(answer.stdout)["outcomes"][0]["ids"][0])


def process(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memorist", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)


def lines(path: Path, *records: Any) -> Path:
    path.write_text(
        "".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in records),
        encoding="utf-8",
    )
    return path


# In a process of their own


def test_help_lists_every_command_and_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from memorist.interfaces.cli import app\n"
        "try: app(['--help'])\n"
        "finally: print([m for m in ('numpy', 'onnxruntime', 'pydantic', 'apsw') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    for name in (
        "demo",
        "remember",
        "recall",
        "list",
        "show",
        "why",
        "why-not",
        "forget",
        "pin",
        "unpin",
        "edit",
    ):
        assert f" {name} " in done.stdout
    for name in (
        "restore",
        "history",
        "export",
        "import",
        "index",
        "stats",
        "doctor",
        "db",
        "jobs",
        "privacy",
        "consent",
        "keys",
        "conflicts",
    ):
        assert f" {name} " in done.stdout
    assert "--install-completion" in done.stdout


def test_the_help_of_a_group_lists_its_commands(run: Run) -> None:
    for group, names in {
        "db": ("migrate", "copy", "backup", "vacuum", "replay"),
        "jobs": ("run", "worker", "backlog", "purge", "compress", "roll-up", "extract"),
        "index": ("update", "rebuild", "reembed"),
        "keys": ("create", "list", "revoke"),
    }.items():
        shown = run(group, "--help").stdout
        for name in names:
            assert f" {name} " in shown


def test_the_demo_answers_its_questions_and_leaves_nothing_behind(place: Path) -> None:
    temporary = place / "tmp"
    temporary.mkdir()
    before = sorted(place.rglob("*"))
    done = process("demo", env={**os.environ, "TMPDIR": str(temporary)})
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "hazelnuts" in done.stdout
    assert "█" in done.stdout
    assert sorted(place.rglob("*")) == before


def test_the_demo_finds_what_each_question_is_about() -> None:
    done = process("demo", "--json")
    best = [question["answers"][0]["text"] for question in json.loads(done.stdout)["questions"]]
    for text, word in zip(
        best, ("Trieste", "hazelnuts", "13 March", "Quince", "accordions"), strict=True
    ):
        assert word in text


def test_a_closed_pipe_ends_quietly(run: Run, place: Path) -> None:
    run(
        "import",
        lines(place / "chat.jsonl", *({"content": f"thing {n} " + "x" * 900} for n in range(200))),
    )
    command = [sys.executable, "-m", "memorist", "export"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141


def test_ctrl_c_ends_with_130_and_no_traceback(place: Path) -> None:
    command = [sys.executable, "-m", "memorist", "import", "-"]  # waits for a file that never ends
    heard = partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # a job in the background would not hear it
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heard
    ) as running:
        wait_for(place / "memory.db")
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        assert running.stderr.read() == b""
    assert running.returncode == 130


def wait_for(path: Path) -> None:
    for _ in range(500):
        if path.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def test_any_text_can_be_printed_where_only_ascii_can() -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for words in (
        ["remember", "Čaj – 東京 🎉"],
        ["list"],
        ["recall", "東京", "--explain"],
        ["list", "--json"],
        ["--help"],
    ):
        done = process(*words, env=ascii_only)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.isascii()


def test_an_unexpected_failure_shows_no_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("memorist.sync.Blocking.open", broken)
    answer = run("remember", "tea")
    assert answer.exit_code == 1
    assert "a bug" in answer.stderr
    assert "Traceback" not in answer.output


# Remembering and recalling


def test_what_is_remembered_is_recalled(run: Run) -> None:
    assert run("remember", "I moved to Lisbon in May.").stdout.startswith("created")
    answer = run("recall", "Lisbon", "--explain")
    assert answer.exit_code == 0
    assert "I moved to Lisbon in May." in answer.stdout
    assert "sparse" in answer.stdout


def test_text_comes_from_stdin_too(run: Run) -> None:
    assert run("remember", "-", input="Ünïcode from a pipe").exit_code == 0
    assert "Ünïcode from a pipe" in run("list").stdout


def test_json_is_taken_before_and_after_the_command(run: Run, tea: str) -> None:
    after, before = run("show", tea, "--json"), run("--json", "show", tea)
    assert json.loads(after.stdout) == json.loads(before.stdout)


@pytest.mark.parametrize(
    "words", [["recall", "tea"], ["stats"], ["stats", "--all"], ["doctor"], ["index", "--stats"]]
)
def test_json_is_one_document(run: Run, tea: str, words: list[str]) -> None:
    answer = run(*words, "--json")
    assert answer.exit_code == 0
    assert isinstance(json.loads(answer.stdout), dict)


def test_lists_are_one_memory_a_line(run: Run) -> None:
    for text in ("one apple", "two bananas", "three cherries"):
        run("remember", text)
    answer = run("list", "--json", "--limit", 2)
    assert [json.loads(line)["text"] for line in answer.stdout.splitlines()] == [
        "three cherries",
        "two bananas",
    ]
    assert "--cursor" in answer.stderr


def test_users_do_not_see_each_other(run: Run, tea: str) -> None:
    assert run("list", "--user", "ben").stdout == ""
    assert run("show", tea, "--user", "ben").exit_code == 3


def test_without_a_user_the_login_name_is_taken(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMORIST_USER")
    monkeypatch.setenv("LOGNAME", "carla")
    run("remember", "I drink coffee.")
    assert "coffee" in run("list", "--user", "carla").stdout


def test_a_budget_smaller_than_any_memory_gives_an_empty_answer(run: Run, tea: str) -> None:
    answer = run("recall", "tea", "--budget", 1)
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert "budget" in answer.stderr


def test_a_memory_cannot_command_the_terminal(run: Run) -> None:
    run("remember", "red \x1b[31m and [bold]not bold[/bold]")
    shown = run("list").stdout
    assert "\x1b" not in shown
    assert "[bold]not bold[/bold]" in shown


def test_prompt_prints_the_block_alone(run: Run, tea: str) -> None:
    assert run("recall", "tea", "--prompt").stdout.startswith("<memory>\n")


def test_the_confidence_of_an_answer_is_printed(run: Run, tea: str) -> None:
    first, *_ = run("recall", "green tea").stdout.splitlines()
    found = json.loads(run("recall", "green tea", "--json").stdout)
    assert first == f"confidence {found['confidence']:.2f}"
    assert 0 < found["hits"][0]["confidence"] < 1


def test_an_answer_below_the_confidence_asked_for_is_empty_and_says_so(run: Run, tea: str) -> None:
    answer = run("recall", "green tea", "--min-confidence", 1)
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert answer.stderr.startswith("No stored memory answers this question. 1 left out")
    assert "below the required 1.00" in answer.stderr
    prompt = run("recall", "green tea", "--min-confidence", 1, "--prompt")
    assert prompt.stdout == "No stored memory answers this question.\n"
    found = json.loads(run("recall", "green tea", "--min-confidence", 1, "--json").stdout)
    assert (found["hits"], found["text"]) == ([], "")
    assert found["query"]["min_confidence"] == 1


def test_without_a_minimum_of_confidence_everything_is_returned(run: Run, tea: str) -> None:
    run("remember", "The bicycle in the shed behind the house is green.")
    found = json.loads(run("recall", "green tea", "--min-confidence", 0, "--json").stdout)
    assert len(found["hits"]) == 2


def test_an_explanation_of_an_empty_answer_shows_what_was_nearest(run: Run, tea: str) -> None:
    for text in ("Green tea is sold out.", "The tea shop closes at six.", "Tea in the evening."):
        run("remember", text)
    answer = run("recall", "green tea", "--min-confidence", 1, "--explain")
    assert answer.stdout.count("required 1.00") == 3
    assert "I drink green tea." in answer.stdout


def test_a_profile_without_confidence_says_that_it_has_none(run: Run, tea: str) -> None:
    answer = run("recall", "tea", "--profile", "mls.recall", "--min-confidence", 0.9)
    assert "I drink green tea." in answer.stdout
    assert "--min-confidence has no effect" in answer.stderr


def test_why_not_names_the_confidence_that_was_missing(run: Run, tea: str) -> None:
    answer = run("why-not", "green tea", tea, "--min-confidence", 1)
    assert "below the required 1.00" in " ".join(answer.stdout.split())


# Deciding


def test_a_memory_is_pinned_and_unpinned(run: Run, tea: str) -> None:
    assert "pinned" in run("pin", tea).stdout
    assert "pinned" not in run("unpin", tea).stdout


def test_an_edit_keeps_the_id_and_is_in_the_history(run: Run, tea: str) -> None:
    assert json.loads(run("edit", tea, "I drink black tea.", "--json").stdout)["id"] == tea
    assert "black" in run("show", tea).stdout
    assert "UPDATE" in run("history", tea).stdout


def test_what_is_only_hidden_for_a_day_needs_no_confirmation(run: Run, tea: str) -> None:
    run("edit", tea, "--tag", "drinks")
    assert run("forget", "--tag", "drinks").exit_code == 2
    assert run("forget", "--tag", "drinks", "--keep-days", 1).exit_code == 0
    assert run("list").stdout == ""
    assert "green tea" in run("restore", tea).stdout


def test_an_edit_of_nothing_is_wrong_use(run: Run, tea: str) -> None:
    assert run("edit", tea).exit_code == 2


def test_what_is_hidden_can_be_restored_and_what_is_forgotten_is_refused(
    run: Run, tea: str
) -> None:
    assert run("forget", tea, "--keep-days", 3).exit_code == 0
    assert run("list").stdout == ""
    assert "green tea" in run("restore", tea).stdout
    assert run("forget", tea, "--yes").exit_code == 0
    assert run("show", tea).exit_code == 3
    assert run("remember", "I drink green tea.").exit_code == 4
    assert run("remember", "I drink green tea.", "--on-purpose").exit_code == 0


def test_why_and_why_not(run: Run, place: Path) -> None:
    run(
        "import",
        lines(
            place / "chat.jsonl", {"content": "My cat is Pilot.", "name": "Jo", "at": "2026-05-01"}
        ),
    )
    found = json.loads(run("list", "--json").stdout)
    assert "by Jo: My cat is Pilot." in run("why", found["id"]).stdout
    assert "returned" in run("why-not", "cat", found["id"]).stdout.lower()


def test_a_part_that_adds_less_than_the_last_digit_to_a_score_is_not_shown(
    run: Run, place: Path
) -> None:
    shown = {}
    for name, days in (("Pilot", 0), ("Biscuit", 250)):  # recency is halved every thirty days
        said = {"content": f"My cat is {name}.", "at": str(date.today() - timedelta(days=days))}
        run("import", lines(place / f"{name}.jsonl", said))
        id = json.loads(run("list", "--json", "--limit", 1).stdout)["id"]
        shown[name] = run("why-not", "cat", id).stdout
    assert "recency" in shown["Pilot"]
    assert "semantic" in shown["Biscuit"]
    assert "recency" not in shown["Biscuit"]


def test_usage_of_the_language_model_is_shown_for_thirty_days(run: Run, place: Path) -> None:
    today = datetime.now(UTC).date()
    days = {back: str(today - timedelta(days=back)) for back in (0, 29, 31)}

    async def spend() -> None:
        async with memorist.aio.open(place / "memory.db") as memory:
            scope, store = memory.scope("ana").scope, memory.ctx.store
            for day in days.values():
                usage = LlmUsage(
                    scope=scope,
                    day=day,
                    task="extract",
                    model="tiny",
                    calls=1,
                    tokens_in=700,
                    tokens_out=150,
                )
                await store.llm_usage.reserve(usage, user_cap=0, tenant_cap=0)
                await store.llm_usage.settle(usage)

    asyncio.run(spend())
    shown = run("stats", "llm-usage").stdout
    assert [back for back, day in days.items() if day in shown] == [0, 29]
    assert days[31] in run("stats", "llm-usage", "--days", 32).stdout


# Files


def test_the_progress_of_an_export_is_shown_only_if_the_records_go_to_a_file(
    run: Run, tea: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    assert "Exporting" in run("export", place / "all.jsonl").stderr
    printed = run("export")
    assert "I drink green tea." in printed.stdout
    assert "Exporting" not in printed.stderr


def test_an_import_names_what_was_skipped_and_refused_and_succeeds(run: Run, place: Path) -> None:
    said = [
        chatgpt_message("m1", "user", "I own a boat."),
        chatgpt_message("m2", "user", "The password is hunter2-Xy77!"),
        chatgpt_message("m3", "user", "a", is_visually_hidden_from_conversation=True),
        chatgpt_message("m4", "user", "b", is_visually_hidden_from_conversation=True),
    ]
    path = place / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps([chatgpt_chat("c1", *said)]))
        archive.writestr("chat.html", "<html></html>")
    for _ in range(2):
        answer = run("import", path)
        assert answer.exit_code == 0
        assert answer.stderr.splitlines() == [
            "Skipped 2 hidden system messages",
            "Skipped 1 file without conversations: chat.html",
            "Refused 1: it seems to contain a password",
        ]
    (place / "one.json").write_text(json.dumps([chatgpt_chat("c1", said[1])]), "utf-8")
    assert run("import", place / "one.json").exit_code == 4


def test_an_import_of_which_nothing_can_be_read_fails(run: Run, place: Path) -> None:
    path = place / "export.zip"
    said = chatgpt_message("m1", "user", " ".join(map(str, range(20_000))))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([chatgpt_chat("c1", said)]))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    data[len(data) // 2 + 1] ^= 0xFF
    path.write_bytes(data)
    answer = run("import", path)
    assert answer.exit_code == 1
    assert "damaged from there on: conversations.json" in answer.stderr


def test_an_import_twice_changes_nothing(run: Run, place: Path) -> None:
    chat = lines(
        place / "chat.jsonl", {"content": "I like tea."}, "", {"content": "ok"}, {"content": "ok"}
    )
    assert (
        "3 new memories" in run("import", chat).stdout
    )  # "ok" may answer another question each time
    before = run("list", "--json").stdout
    assert "0 new memories" in run("import", chat).stdout
    assert run("list", "--json").stdout == before


def test_lines_with_the_same_made_up_id_are_different_messages(run: Run, place: Path) -> None:
    said = {"id": "__fake_id__", "type": "message", "role": "assistant"}
    replies = [{**said, "content": text} for text in ("Tea it is.", "Or cake?")]
    chat = lines(place / "items.jsonl", *replies)
    assert "2 new memories" in run("import", chat).stdout
    assert "0 new memories" in run("import", chat).stdout


@pytest.mark.parametrize(
    "bad", ["nope", "[1]", '{"content": 3}', '{"content": "x", "sesion": "s"}', '{"data": 1}']
)
def test_a_bad_line_is_named_and_what_stood_before_it_is_kept(
    run: Run, place: Path, bad: str
) -> None:
    answer = run(
        "import",
        lines(place / "chat.jsonl", {"content": "I like tea."}, bad, {"content": "I like cake."}),
    )
    assert answer.exit_code == 2
    assert "Line 2" in answer.stderr
    assert "Record" not in answer.stderr
    listed = run("list").stdout
    assert "tea" in listed
    assert "cake" not in listed


def test_an_export_comes_back_as_it_was(run: Run, place: Path, tea: str) -> None:
    assert "records in out.jsonl" in run("export", "out.jsonl").stdout
    assert run("--db", "other.db", "import", "out.jsonl").exit_code == 0
    assert (
        json.loads(run("--db", "other.db", "show", tea, "--json").stdout)["text"]
        == "I drink green tea."
    )
    assert "0 new memories" in run("--db", "other.db", "import", "out.jsonl").stdout


def test_an_export_goes_to_the_user_that_is_named(run: Run, tea: str) -> None:
    run("export", "out.jsonl")
    run("--db", "other.db", "import", "out.jsonl", "--user", "ben")
    assert "green tea" in run("--db", "other.db", "list", "--user", "ben").stdout


def test_an_export_to_stdout_is_jsonl(run: Run, tea: str) -> None:
    kinds = [json.loads(line)["record_type"] for line in run("export").stdout.splitlines()]
    assert kinds == ["memorist", "history", "memory"]


def test_a_receipt_says_how_to_decide_about_what_was_replaced(run: Run) -> None:
    run("remember", "The budget meeting is on Tuesday at ten.")
    said = run("remember", "The budget meeting is on Friday at four.").stdout
    id = said.split()[1]
    assert "confirm it, reject it, or keep both" in said
    why = run(
        "why-not",
        "When is the budget meeting?",
        json.loads(run("conflicts", "--json").stdout)["old_id"],
    ).stdout
    assert "superseded" in why
    assert run("conflicts", "both", id).exit_code == 0


def test_what_has_expired_already_says_so(run: Run) -> None:
    said = run("remember", "The voucher is BLUE.", "--expires-at", "2020-01-01").stdout
    assert said.startswith("created")
    assert "already expired" in said


def test_in_a_missing_folder_there_is_no_database_until_the_folder_is_created(
    run: Run, place: Path
) -> None:
    missing = place / "missing" / "m.db"
    answer = run("--db", missing, "list")
    assert answer.exit_code == 3
    assert "does not exist: create it, or use --db" in " ".join(answer.stderr.split())
    assert "memorist remember" not in answer.stderr
    assert "`memorist remember` creates one" in run("--db", place / "other.db", "list").stderr


def test_incognito_can_be_switched_on_and_off(run: Run, tea: str) -> None:
    for action, is_on in (("on", False), ("off", True)):
        shown = run("privacy", "incognito", action, "--session", "s1", "--json").stdout
        assert json.loads(shown)["on"] is is_on


def test_json_is_one_document_per_line(run: Run, tea: str) -> None:
    for words in (
        ["list"],
        ["show", tea],
        ["stats"],
        ["recall", "tea"],
        ["keys", "create", "phone"],
    ):
        (document,) = run(*words, "--json").stdout.splitlines()
        assert isinstance(json.loads(document), dict)


def test_an_import_counts_only_its_own_memories(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = memorist.open(place / "memory.db", state_dir=place / "state")
    store = BlockingScope.import_

    def import_while_another_writes(*given: Any, **more: Any) -> Any:
        other.scope("ana").remember("Another process stores this.")
        return store(*given, **more)

    monkeypatch.setattr(BlockingScope, "import_", import_while_another_writes)
    chat = lines(place / "chat.jsonl", {"content": "I like tea."}, {"content": "I like cake."})
    with other:
        assert run("import", chat).stdout == "2 records read, 2 new memories\n"
        assert "0 new memories" in run("import", chat).stdout


def test_an_import_reads_stdin(run: Run) -> None:
    assert "1 new memories" in run("import", "-", input='{"content": "from a pipe"}\n').stdout


def test_a_backup_is_a_memory(run: Run, tea: str) -> None:
    assert run("db", "backup", "copy.db").exit_code == 0
    assert run("--db", "copy.db", "show", tea).exit_code == 0
    assert run("db", "backup", "copy.db").exit_code == 2
    assert run("db", "vacuum").exit_code == 0


# Indexing


@pytest.fixture
def unembedded(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Five memories without a vector."""
    chat = lines(
        place / "chat.jsonl",
        *({"content": f"The {word} is mine."} for word in ("cup", "hat", "car", "dog", "pen")),
    )
    with monkeypatch.context() as without:
        without.setenv("MEMORIST_EMBEDDER", "none")
        run("import", chat)
    return run


def counts(run: Run) -> tuple[int, int]:
    known = json.loads(run("index", "--stats", "--json").stdout)
    return known["with_embeddings"], known["without_embeddings"]


@pytest.mark.spec("MIL-38", "MIL-40")
def test_the_indexer_embeds_in_batches(unembedded: Run) -> None:
    done = json.loads(unembedded("index", "--batch-size", 2, "--json").stdout)
    assert (done["embedded"], done["batches"]) == (5, 3)
    assert counts(unembedded) == (5, 0)


@pytest.mark.spec("MIL-40")
def test_a_batch_has_32_memories_unless_told_otherwise(unembedded: Run) -> None:
    assert "at most 32" in unembedded("index").stdout
    assert unembedded("index", "--batch-size", 0).exit_code == 2


@pytest.mark.spec("MIL-39")
def test_a_dry_run_says_what_it_would_do_and_changes_nothing(unembedded: Run) -> None:
    assert "5 would be embedded" in unembedded("index", "--dry-run").stdout
    assert counts(unembedded) == (0, 5)


@pytest.mark.spec("MIL-41")
def test_only_force_embeds_again(unembedded: Run) -> None:
    unembedded("index")
    assert json.loads(unembedded("index", "--json").stdout)["embedded"] == 0
    assert json.loads(unembedded("index", "--force", "--json").stdout)["embedded"] == 5


@pytest.mark.spec("MIL-42")
def test_the_indexer_prints_statistics(unembedded: Run) -> None:
    shown = unembedded("index", "--stats").stdout
    for name in ("memories", "with embeddings", "without embeddings"):
        assert name in shown
    unembedded("remember", "The boat is mine.")
    known = json.loads(unembedded("index", "--stats", "--json").stdout)
    assert (known["memories"], known["with_embeddings"], known["without_embeddings"]) == (6, 1, 5)


@pytest.mark.spec("MIL-43")
def test_the_indexer_works_as_a_script(unembedded: Run) -> None:
    script = [sys.executable, str(ROOT / "memory" / "index_embeddings.py")]
    dry = subprocess.run([*script, "--dry-run"], capture_output=True, text=True, timeout=60)
    assert "5 would be embedded" in dry.stdout
    assert counts(unembedded) == (0, 5)
    done = subprocess.run(
        [*script, "--batch-size", "2"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert counts(unembedded) == (5, 0)


@pytest.mark.spec("MIL-43")
def test_the_indexer_is_in_the_source_distribution_and_needs_only_the_package(
    unembedded: Run, tmp_path: Path
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "/memory" in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    script = shutil.copy(ROOT / "memory" / "index_embeddings.py", tmp_path)
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert counts(unembedded) == (5, 0)


# What goes wrong


def test_an_unknown_id_is_not_found_and_json_errors_are_json(run: Run) -> None:
    answer = run("show", "nobody", "--json")
    error = json.loads(answer.stderr)["error"]
    assert (answer.exit_code, error["type"], error["exit_code"]) == (3, "NotFound", 3)
    assert answer.stdout == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["remember", "  \n "], 2),
        (["recall", "tea", "--limit", "-1"], 2),
        (["recall", "tea", "--profile", "nobody's"], 2),
        (["recall", "tea", "--kind", "nonsense"], 2),
        (["recall", "tea", "--as-of", "yesterday-ish"], 2),
        (["recall", "tea", "--min-confidence", "1.5"], 2),
        (["recall", "tea", "--min-confidence", "x"], 2),
        (["recall", "tea", "--min-confidence", "true"], 2),
        (["recall", "tea", "--min-confidence", "nan"], 2),
        (["remember", "tea", "--importance", "7"], 2),
        (["list", "--cursor", "x"], 2),
        (["list", "--user", ""], 2),
        (["nonsense"], 2),
        (["--json"], 2),
        (["import", "missing.jsonl"], 3),
        (["import", "."], 2),
        (["pin", "nobody"], 3),
        (["forget", "nobody"], 3),
        (["why-not", "tea", "nobody"], 3),
        (["export", "no/such/folder/out.jsonl"], 5),
    ],
)
def test_what_cannot_be_done_is_said_with_its_exit_code(
    run: Run, tea: str, words: list[str], code: int
) -> None:
    answer = run(*words)
    assert answer.exit_code == code, answer.output
    assert answer.stderr
    assert "Traceback" not in answer.output


def test_a_memory_that_is_not_there_is_not_made_by_looking(run: Run, place: Path) -> None:
    missing = str(place / "no" / "such" / "memory.db")
    for words, how in ((["list"], "memorist remember"), (["list", "--db", missing], "create it")):
        answer = run(*words)
        assert (answer.exit_code, list(place.rglob("memory.db"))) == (3, [])
        assert how in answer.stderr


def test_a_damaged_file_is_said_to_be_damaged(run: Run, place: Path, tea: str) -> None:
    file = place / "memory.db"
    for rest in place.glob("memory.db-*"):
        rest.unlink()
    file.write_bytes(b"garbage" * 1000)
    answer = run("list")
    assert answer.exit_code == 1
    assert "damaged" in answer.stderr
    assert file.read_bytes() == b"garbage" * 1000


def test_a_file_that_cannot_be_made_is_a_backend_that_is_away(run: Run, place: Path) -> None:
    (place / "file").write_text("not a folder")
    answer = run("--db", place / "file" / "memory.db", "remember", "tea")
    assert answer.exit_code == 5
    assert "choose another place" in answer.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_backend_that_is_away(run: Run, place: Path) -> None:
    folder = place / "locked"
    folder.mkdir(mode=0o500)
    assert run("--db", folder / "memory.db", "remember", "tea").exit_code == 5


def test_a_wrong_setting_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORIST_EMBEDDER", "magic")
    answer = run("list")
    assert answer.exit_code == 2
    assert "embedder" in answer.stderr


def test_version(run: Run) -> None:
    assert run("--version").stdout.startswith("memorist ")
    assert json.loads(run("--version", "--json").stdout)["version"]


# The doctor


def test_the_doctor_makes_no_file(run: Run, place: Path) -> None:
    answer = run("doctor")
    assert answer.exit_code == 0
    assert "will be created by the first `memorist remember`" in " ".join(answer.stdout.split())
    assert not (place / "memory.db").exists()


def test_the_doctor_says_what_is_degraded_and_how_to_mend_it(unembedded: Run) -> None:
    shown = " ".join(unembedded("doctor").stdout.split())
    assert "5 of 5 memories can only be found by keywords" in shown
    assert "run `memorist index`" in shown
    assert "MEMORIST_EMBEDDER=minilm" in shown


def test_the_doctor_says_when_no_space_can_be_reserved(run: Run, place: Path) -> None:
    assert run("remember", "I like tea.").exit_code == 0
    assert "no space is reserved" not in " ".join(run("doctor").stdout.split())
    (place / "memory.db-reserve").symlink_to(place / "nowhere" / "file")
    assert "no space is reserved" in " ".join(run("doctor").stdout.split())


def test_the_doctor_finds_a_damaged_file(run: Run, place: Path) -> None:
    (place / "memory.db").write_bytes(b"garbage" * 1000)
    answer = run("doctor", "--json")
    found = {
        finding["about"]: finding["state"] for finding in json.loads(answer.stdout)["findings"]
    }
    assert (answer.exit_code, found["file"], found["sqlite"]) == (1, "bad", "good")


def test_the_doctor_looks_at_wrong_settings_and_unread_variables(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_PROFLE", "default")
    assert "MEMORIST_PROFLE" in run("doctor").stdout
    monkeypatch.setenv("MEMORIST_CACHE_MB", "many")
    answer = run("doctor")
    assert answer.exit_code == 1
    assert "cache_mb" in answer.stdout


def test_every_command_helps_with_an_example(run: Run) -> None:
    import typer.main

    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        for inner in getattr(command, "commands", [""]):
            words = f"{name} {inner}".split()
            assert f"Example: memorist {' '.join(words)}" in run(*words, "--help").stdout


# Names that are wrong, short or completed


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["remembr", "tea"], "`memorist remember`"),
        (["vacum"], "`memorist db vacuum`"),
        (["migrate", "--help"], "`memorist db migrate`"),
        (["tend"], "`memorist jobs run`"),
        (["command"], "`memorist agent say`"),
        (["chat"], "`memorist agent say`"),
        (["costs"], "`memorist stats llm-usage`"),
        (["memory", "off"], "`memorist privacy set`"),
        (["db", "vacum"], "'vacuum'"),
        (["list", "--limt", "3"], "--limit"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(
    run: Run, words: list[str], suggested: str
) -> None:
    answer = run(*words)
    assert answer.exit_code == 2
    assert "Did you mean" in answer.stderr
    assert suggested in answer.stderr
    error = json.loads(run(*words, "--json").stderr)["error"]
    assert suggested in error["message"]


def test_a_name_that_is_like_none_gets_no_suggestion(run: Run) -> None:
    answer = run("bogus")
    assert answer.exit_code == 2
    assert "Did you mean" not in answer.stderr


@pytest.mark.parametrize("value", ["1.5", "-1"])
def test_a_share_out_of_range_says_what_it_must_be(run: Run, tea: str, value: str) -> None:
    for words in (
        ["recall", "tea", f"--min-confidence={value}"],
        ["edit", tea, f"--importance={value}"],
    ):
        answer = run(*words)
        assert answer.exit_code == 2
        assert "must be between 0 and 1" in answer.stderr


def test_an_empty_question_is_an_error(run: Run, tea: str) -> None:
    answer = run("recall", " ")
    assert answer.exit_code == 2
    assert "The question is empty" in answer.stderr


def test_a_wrong_setting_is_answered_with_the_right_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setenv("MEMORIST_PROFLE", "default")
    assert "did you mean MEMORIST_PROFILE?" in " ".join(run("doctor").stdout.split())


def test_a_misspelled_variable_is_reported_once_and_stops_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_EXTRACTT", "off")
    monkeypatch.setenv("MEMORIST_WEATHER_STATION", "of another program")
    answer = run("remember", "I drink green tea.")
    assert answer.exit_code == 0
    said = "MEMORIST_EXTRACTT is not a setting and has no effect: did you mean MEMORIST_EXTRACT?"
    assert " ".join(answer.stderr.split()).count(said) == 1
    assert "WEATHER" not in answer.stderr


@pytest.mark.parametrize("part", [slice(0, -6), slice(-8, None)])
def test_the_first_or_last_characters_of_an_id_are_enough(run: Run, tea: str, part: slice) -> None:
    short = tea[part]
    assert json.loads(run("show", short, "--json").stdout)["id"] == tea
    assert "pinned" in run("pin", short).stdout
    assert "UPDATE" in run("history", short).stdout
    operation = json.loads(run("history", "--limit", 1, "--json").stdout)["meta"]["operation"]
    assert run("undo", operation[part]).exit_code == 0
    assert run("forget", short, "--yes").exit_code == 0
    assert run("show", short).exit_code == 3


def test_lists_show_the_end_of_an_id_which_commands_accept(run: Run, place: Path, tea: str) -> None:
    said = [{"content": f"I own {number} books about birds."} for number in range(20)]
    run("import", lines(place / "chat.jsonl", *said))
    shown = [line.split()[0] for line in run("list").stdout.splitlines()[1::2]]
    assert len(shown) == 21
    assert shown[-1] == tea[-8:]
    assert shown[-1] in run("recall", "What do I drink?").stdout
    for short in shown[-3:]:
        whole = json.loads(run("show", short, "--json").stdout)["id"]
        assert whole.endswith(short)


def test_an_id_that_is_too_short_or_ambiguous_is_refused(run: Run, place: Path, tea: str) -> None:
    run("import", lines(place / "chat.jsonl", {"content": "I like cake."}))
    assert run("show", tea[:5]).exit_code == 3
    answer = run("show", tea[:6])
    assert answer.exit_code == 2
    assert tea in answer.stderr
    assert "Several ids begin or end with" in answer.stderr


def test_a_group_without_a_command_runs_its_default(run: Run, tea: str) -> None:
    assert run("stats", "--json").stdout == run("stats", "summary", "--json").stdout
    assert run("conflicts").stderr == run("conflicts", "list").stderr
    assert run("keys").exit_code == 0
    assert run("db").exit_code == 2


def test_lists_show_dates_and_the_history_shows_texts(run: Run, tea: str) -> None:
    day = json.loads(run("show", tea, "--json").stdout)["created_at"][:10]
    assert run("list").stdout.startswith(f"{day} I drink green tea.")
    assert "I drink green tea." in run("history").stdout


def test_lists_and_answers_say_until_when_something_was_true(run: Run, tea: str) -> None:
    run("edit", tea, "--valid-to", "2099-05-30")
    shown = "until 2099-05-30 I drink green tea."
    assert shown in run("list").stdout
    assert shown in " ".join(
        run("recall", "What do I drink?", "--min-confidence", 0).stdout.split()
    )


def test_an_empty_list_names_other_spaces_that_have_memories(run: Run, tea: str) -> None:
    answer = run("list", "--space", "work")
    assert answer.stderr.strip() == "No memories for user 'ana' in space 'work' (1 in 'default')."
    assert run("list", "--tag", "none").stderr.strip() == "No memories match."


def test_the_shell_completes_commands(place: Path) -> None:
    asked = {
        "_MEMORIST_COMPLETE": "complete_bash",
        "COMP_WORDS": "memorist db v",
        "COMP_CWORD": "2",
    }
    done = process(env={**os.environ, **asked})
    assert done.stdout.split() == ["vacuum"]


def test_a_large_import_says_that_it_can_be_asked_before_its_vectors_are_there(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_export, "LARGE", 0)
    monkeypatch.setattr(files, "MANY_VECTORS", 1)
    chat = [
        {"role": "user", "content": text} for text in ("I play the cello.", "I row on Mondays.")
    ]
    (place / "chat.json").write_text(json.dumps(chat), "utf-8")
    done = run("import", place / "chat.json")
    assert done.exit_code == 0
    assert "2 memories are stored and can be found by keyword." in done.stderr


# Sessions


def test_a_question_in_a_session_is_answered_from_all_sessions_as_in_python(run: Run) -> None:
    run("remember", "My piano teacher is called Ines.", "--session", "s1")
    asked = ("recall", "What is my piano teacher called?", "--session", "s10")
    found = run(*asked)
    assert "Ines" in found.stdout
    with memorist.open(os.environ["MEMORIST_DB"]) as memory:
        chat = memory.scope("ana", session="s10")
        same = chat.recall("What is my piano teacher called?")
    assert [hit.memory.text for hit in same] == ["My piano teacher is called Ines."]
    assert "Ines" not in run("list", "--session", "s10").stdout
    assert "recall finds all" in " ".join(run("recall", "--help").stdout.split())


# The history


def test_the_history_shows_the_text_that_a_memory_had_at_that_time(run: Run, tea: str) -> None:
    run("edit", tea, "I drink black tea.")
    run("pin", tea)
    shown = run("history", tea).stdout.splitlines()
    texts = [line.strip() for line in shown if line.startswith("  ")]
    assert texts == ["I drink black tea.", "I drink black tea.", "I drink green tea."]


def test_the_history_of_an_unknown_id_is_an_error_and_that_of_a_gone_one_stays(
    run: Run, tea: str
) -> None:
    done = run("history", "zzzzzzzz")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "No memory with id 'zzzzzzzz'" in done.stderr
    run("forget", tea, "--yes")
    assert "DELETE" in run("history", tea[-8:]).stdout


# Export and import


def test_an_export_replaces_a_file_only_if_forced(run: Run, tea: str, place: Path) -> None:
    (place / "out.jsonl").write_text("mine", "utf-8")
    done = run("export", "out.jsonl")
    assert done.exit_code != 0
    assert "already exists" in done.stderr
    assert (place / "out.jsonl").read_text("utf-8") == "mine"
    assert run("export", "out.jsonl", "--force").exit_code == 0
    assert (place / "out.jsonl").read_text("utf-8") != "mine"


def test_an_export_and_its_import_count_the_same_records(run: Run, tea: str) -> None:
    exported = json.loads(run("export", "out.jsonl", "--json").stdout)["records"]
    imported = json.loads(run("--db", "other.db", "import", "out.jsonl", "--json").stdout)
    assert imported["records"] == exported > 0


def test_the_receipt_of_an_import_accounts_for_every_entry(run: Run, place: Path) -> None:
    said = ["I moved to Lisbon in May.", "My sister is called Mira."]
    chats = []
    for number, text in enumerate([*said, said[0]]):
        message = chatgpt_message(f"m{number}", "user", text)
        chats.append(chatgpt_chat(f"c{number}", message))
    (place / "conversations.json").write_text(json.dumps(chats), "utf-8")
    first = run("import", "conversations.json").stdout
    assert first == "Read chatgpt: 3; 2 new memories, 1 repeats merged\n"
    again = run("import", "conversations.json").stdout
    assert again == "Read chatgpt: 3; 0 new memories, 1 repeats merged, 2 imported before\n"


# What commands say


def test_an_explanation_shows_the_text_of_what_was_left_out(run: Run) -> None:
    for text in ("I drink green tea.", "I drink black tea.", "I drink tea at noon."):
        run("remember", text)
    found = run("recall", "What tea do I drink?", "--limit", "1", "--explain").stdout
    assert all(word in found for word in ("Left out", "green", "black", "noon"))


def test_a_short_id_that_is_none_names_the_way_out(run: Run, tea: str) -> None:
    done = run("show", "abc")
    assert done.exit_code == 3
    assert "at least 6 characters" in done.stderr
    assert "`memorist list`" in done.stderr


def test_sentences_say_one_thing_once(run: Run, tea: str) -> None:
    run("privacy", "incognito", "start", "--session", "s1")
    hidden = run("recall", "What do I drink?", "--session", "s1").stderr
    assert "This session is incognito: nothing is stored or recalled." in hidden
    assert "Without memory" not in hidden
    first = run("why-not", "What do I drink?", tea).stdout.splitlines()[0]
    assert first.startswith("Returned: rank 1, score ")
    assert "it was returned" not in first
    run("edit", tea, "I drink black tea.")
    done = run("forget", tea, "--yes")
    assert "Also forgotten: 1 earlier versions or memories derived only from it." in done.stderr
    assert "https://…" in run("--db", "ftp://host/x", "list").stderr


def test_what_changed_in_a_large_import_is_found_by_the_command_that_it_names(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_export, "LARGE", 0)
    monkeypatch.setenv("MEMORIST_EMBEDDER", "minilm")
    monkeypatch.setenv("MEMORIST_EXTRACT", "rules")
    new = chatgpt_message("m2", "user", "I live in Bristol now.", at=1_736_000_000.0)
    old = chatgpt_message("m1", "user", "I live in Leeds.", at=1_704_000_000.0)
    file = place / "conversations.json"
    file.write_text(json.dumps([chatgpt_chat("new", new), chatgpt_chat("old", old)]), "utf-8")
    assert "is not marked yet: run `memorist jobs backfill`" in run("import", file).stderr
    assert "- I live in Leeds. → I live in Bristol now." in run("jobs", "backfill").stdout
    found = json.loads(run("recall", "Where do I live?", "--json").stdout)
    assert [hit["memory"]["text"] for hit in found["hits"]] == ["I live in Bristol now."]
