"""The command line and hooks with a server in place of a database: `--db http://…`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner, Result

from e2e.imports.formats import chatgpt_chat, chatgpt_message
from memorist.interfaces import FAILED, NOT_FOUND, OK, REFUSED, UNAVAILABLE, USAGE
from memorist.interfaces.cli import app
from rest_server import Server, serving

KEYS = {
    "laptop": {"rights": ("read", "write", "owner")},
    "reader": {"rights": ("read",)},
    "bot": {"rights": ("read", "write", "owner", "service")},
}
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serving(str(folder / "memory.db"), keys=KEYS, state_dir=folder) as made:
        yield made


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Run:
    def run(*words: str, key: str | None = "laptop", given: str = "", **more: str) -> Result:
        environment = {
            "MEMORIST_DB": server.url,
            "MEMORIST_STATE_DIR": str(tmp_path),
            "MEMORIST_KEY": server.tokens[key] if key else "",
            **more,
        }
        return CliRunner().invoke(app, words, env=environment, input=given)

    return run


def test_a_memory_is_stored_recalled_listed_shown_and_forgotten(run: Run) -> None:
    stored = run("remember", "My sister Mira lives in Ghent.", "--space", "life", "--tag", "family")
    assert (stored.exit_code, stored.stdout.split()[0]) == (OK, "created")
    id = stored.stdout.split()[1]
    place = ("--space", "life")
    assert "Mira lives in Ghent" in run("recall", "Where does Mira live?", *place).stdout
    assert "Mira lives in Ghent" in run("agent", "context", "Where does Mira live?", *place).stdout
    listed = run("list", *place, "--tag", "family", "--json")
    short, id = id, json.loads(listed.stdout)["id"]
    assert id[-8:] == short
    assert run("list", *place, "--tag", "work").stderr == "No memories match.\n"
    assert "Mira lives in Ghent" in run("show", id[:24], *place).stdout, (
        "a part of the id is enough"
    )
    assert "Mira lives in Ghent" in run("why", id, *place).stdout
    assert "in Bruges" in run("edit", id, "My sister Mira lives in Bruges.", *place).stdout
    assert "UPDATE" in run("history", id, *place).stdout
    assert "pinned" in run("pin", id, *place).stdout
    assert run("forget", id, "--yes", *place).stdout == f"forgotten  {id[-8:]}\n"
    assert run("show", id, *place).exit_code == NOT_FOUND


def test_a_filter_reaches_the_server(run: Run) -> None:
    place = ("--space", "filters")
    run("remember", "I row on Mondays.", "--at", "2025-03-03", "--session", "a", *place)
    run("remember", "I swim on Fridays.", "--at", "2026-03-06", "--session", "b", *place)
    assert "swim" not in run("list", "--before", "2026-01-01", *place).stdout
    assert "row" not in run("list", "--session", "b", *place).stdout
    assert "row" not in run("recall", "What do I do?", "--after", "2026-01-01", *place).stdout
    found = run("forget", "--query", "I row on Mondays.", "--dry-run", *place)
    assert "row on Mondays" in found.stdout


def test_a_page_leads_to_the_next_one(run: Run) -> None:
    place = ("--space", "pages")
    for number in ("one", "two", "three"):
        run("remember", f"The house number {number} is red.", *place)
    first = run("list", "--limit", "2", *place)
    cursor = first.stderr.split("--cursor ")[1].strip()
    rest = run("list", "--limit", "2", "--cursor", cursor, *place)
    assert (len(first.stdout.splitlines()), len(rest.stdout.splitlines())) == (4, 2)


def test_a_hook_stores_a_prompt_and_recalls_it_in_the_next_session(
    run: Run, tmp_path: Path
) -> None:
    def prompt(text: str, session: str) -> str:
        event = {"session_id": session, "prompt": text, "cwd": str(tmp_path)}
        return run("hook", "prompt", given=json.dumps(event)).stdout

    assert prompt("I always deploy on Fridays with two servers.", "s1") == ""
    told = json.loads(prompt("When do I always deploy?", "s2"))
    assert "deploy on Fridays" in told["hookSpecificOutput"]["additionalContext"]
    start = run(
        "hook", "session-start", given=json.dumps({"session_id": "s3", "cwd": str(tmp_path)})
    )
    assert "deploy on Fridays" in start.stdout


def test_a_hook_reports_what_a_session_changed_only_to_others(run: Run, tmp_path: Path) -> None:
    def prompt(text: str) -> str:
        event = {"session_id": "s9", "prompt": text, "cwd": str(tmp_path)}
        return run("hook", "prompt", given=json.dumps(event)).stdout

    prompt("Our staging host is called walnut.")
    assert "Memory updates" not in prompt("What is the staging host called?")


def test_the_hook_after_a_reply_compares_it_with_what_was_recalled(
    run: Run, server: Server, tmp_path: Path
) -> None:
    def waiting() -> list[str]:
        with server.client("laptop") as client:
            saved = client.get("/v1/memory/checkpoints", params={"space": "builds"}).json()
        return [each["thread"] for each in saved]

    def hook(when: str, **event: str) -> Result:
        given = {"session_id": "s7", "cwd": str(tmp_path), **event}
        return run("hook", when, given=json.dumps(given))

    run("remember", "Our build server is called pelican.", "--space", "builds")
    (tmp_path / ".memorist").write_text('space = "builds"\n', "utf-8")
    question = "What is our build server called?"
    assert "pelican" in hook("prompt", prompt=question).stdout
    assert waiting() == ["hook: s7"]
    lines = [
        {"type": "user", "message": {"content": question}},
        {"type": "assistant", "uuid": "a1", "message": {"content": "It is called pelican."}},
    ]
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    done = hook("stop", transcript_path=str(transcript))
    assert (done.exit_code, done.stderr) == (OK, "")
    assert waiting() == [], "what was recalled was compared with the reply"


def test_a_service_key_acts_for_the_user_that_the_command_names(run: Run) -> None:
    assert run("remember", "I collect stamps.", "--user", "bo", key="bot").exit_code == OK
    assert "stamps" in run("recall", "What do I collect?", "--user", "bo", key="bot").stdout
    assert "stamps" not in run("recall", "What do I collect?").stdout
    refused = run("list", "--user", "bo")
    assert (refused.exit_code, "acts for user 'ana' only" in refused.stderr) == (REFUSED, True)


def test_a_key_that_is_missing_wrong_or_too_narrow_is_refused(run: Run) -> None:
    missing = run("list", key=None)
    assert missing.exit_code == REFUSED
    assert "the API key is missing. Set MEMORIST_KEY" in missing.stderr
    wrong = run("list", MEMORIST_KEY="rk_0_wrong")
    assert (wrong.exit_code, "not valid" in wrong.stderr) == (REFUSED, True)
    assert "rk_0_wrong" not in wrong.stderr
    narrow = run("remember", "I row.", key="reader")
    assert (narrow.exit_code, "needs the right 'write'" in narrow.stderr) == (REFUSED, True)


def test_an_address_without_a_server_is_named(run: Run, server: Server) -> None:
    down = run("list", MEMORIST_DB="http://127.0.0.1:1")
    assert down.exit_code == UNAVAILABLE
    assert "Cannot reach the server http://127.0.0.1:1" in down.stderr
    other = run("list", MEMORIST_DB=f"{server.url}/elsewhere")
    assert (other.exit_code, "is it the address" in other.stderr) == (UNAVAILABLE, True)


@pytest.mark.parametrize(
    "words",
    [
        "jobs run",
        "jobs worker",
        "db backup copy.db",
        "keys list",
        "stats --all",
        "undo 019a3c5e",
        "hook before Tea?",
    ],
)
def test_a_command_that_needs_the_database_says_so(run: Run, words: str) -> None:
    refused = run(*words.split())
    assert refused.exit_code == USAGE
    assert "needs" in refused.stderr
    assert "database" in refused.stderr


def test_a_history_is_uploaded_and_the_receipt_is_that_of_a_local_import(
    run: Run, tmp_path: Path
) -> None:
    chats = [
        chatgpt_chat("c1", chatgpt_message("m1", "user", "I collect maps of islands.")),
        chatgpt_chat("c2", chatgpt_message("m2", "user", "My boat is called Petrel.")),
    ]
    folder = tmp_path / "export"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "notes.md").write_text("# Not mine\n\nI sail.", "utf-8")
    (folder / "conversations.json").write_text(json.dumps(chats), "utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    local = {"MEMORIST_DB": str(tmp_path / "local.db"), "MEMORIST_EMBEDDER": "hashing"}
    place = ("--space", "history")
    for words in (["--dry-run"], [], []):
        wanted = run("import", str(folder), *words, *place, "--user", "ana", **local)
        done = run("import", str(folder), *words, *place)
        assert (done.exit_code, done.stdout, done.stderr) == (OK, wanted.stdout, wanted.stderr)
    assert "0 new memories" in done.stdout
    assert "Petrel" in run("recall", "What is my boat called?", *place).stdout
    one = run("import", str(folder / "conversations.json"), "--json", *place)
    assert json.loads(one.stdout)["formats"] == {"chatgpt": 2}


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that cannot be read")
def test_a_file_of_a_folder_that_cannot_be_read_is_left_out_and_named(
    run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "boat.md").write_text("# Boat\n\nI own a boat called Heron.", "utf-8")
    (folder / "broken").symlink_to("/proc/self/mem")
    local = {"MEMORIST_DB": str(tmp_path / "local.db"), "MEMORIST_EMBEDDER": "hashing"}
    wanted = run("import", str(folder), "--user", "ana", **local)
    assert "damaged: broken: " in wanted.stderr
    done = run("import", str(folder), "--space", "notes")
    assert (done.exit_code, done.stdout, done.stderr) == (OK, wanted.stdout, wanted.stderr)


def test_a_folder_is_uploaded_under_its_whole_name(run: Run, tmp_path: Path) -> None:
    place = ("--space", "chats")
    folder = tmp_path / "WhatsApp Chat - Dr. Bo"
    folder.mkdir()
    (folder / "_chat.txt").write_text("[13.02.24, 21:15:00] Ana: I own a boat.\n", "utf-8")
    assert run("import", str(folder), "--me", "Ana", *place).exit_code == OK
    (found,) = run("list", "--json", *place).stdout.splitlines()
    session = json.loads(found)["labels"]["session"]
    assert session == "whatsapp:WhatsApp Chat - Dr. Bo:2024-02-13"


def test_lines_of_messages_and_records_are_sent(run: Run, tmp_path: Path) -> None:
    place = ("--space", "lines")
    chat = tmp_path / "chat.jsonl"
    chat.write_text('{"role": "user", "content": "I keep bees."}\n', "utf-8")
    for new in (1, 0):
        done = run("import", str(chat), *place)
        assert (done.exit_code, done.stdout) == (OK, f"1 records read, {new} new memories\n")
    assert "bees" in run("list", *place).stdout


def test_an_upload_that_is_refused_says_why(run: Run, tmp_path: Path) -> None:
    missing = run("import", str(tmp_path / "missing.zip"))
    assert (missing.exit_code, "No such file" in missing.stderr) == (NOT_FOUND, True)
    large = tmp_path / "notes.md"
    large.write_text("- I keep bees.\n" * 200_000, "utf-8")
    narrow = run("import", str(large), key="reader")
    assert (narrow.exit_code, "needs the right 'owner'" in narrow.stderr) == (REFUSED, True)
    unknown = tmp_path / "picture.png"
    unknown.write_bytes(b"\x89PNG")
    refused = run("import", str(unknown))
    assert refused.exit_code == USAGE
    assert "picture.png" in refused.stderr or "format" in refused.stderr


def test_the_key_decides_the_tenant(run: Run) -> None:
    refused = run("list", "--tenant", "acme")
    assert (refused.exit_code, "the API key for" in refused.stderr) == (USAGE, True)


def test_the_doctor_asks_the_server(run: Run) -> None:
    assert "answers and accepts the key" in " ".join(run("doctor").stdout.split())
    bad = run("doctor", key=None)
    assert (bad.exit_code, "API key is missing" in " ".join(bad.stdout.split())) == (FAILED, True)


def test_the_key_is_not_sent_to_where_a_server_redirects(run: Run, server: Server) -> None:
    class Redirect(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(307)
            self.send_header("Location", f"{server.url}{self.path}")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Redirect) as other:
        thread = Thread(target=other.handle_request)
        thread.start()
        answer = run("list", MEMORIST_DB=f"http://127.0.0.1:{other.server_port}")
        thread.join()
    assert answer.exit_code == UNAVAILABLE
    assert "answered 307" in answer.stderr
