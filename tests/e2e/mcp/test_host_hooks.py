"""Hooks of a coding agent's host, with the JSON that Claude Code hands over."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import memorist
from memorist.interfaces.cli import app
from memorist.types import Memory

SESSION = "8f14e45f-ceea-467f-a0e6-2f3c1f3b9d11"
SHOP = "shop-80b108"  # the space of /home/ana/code/shop
Hook = Callable[..., Result]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORIST_DB", str(tmp_path / "m.db"))


@pytest.fixture
def hook(tmp_path: Path) -> Hook:
    """Call a hook as the host does."""

    def call(when: str, *words: str, given: str | None = None, **event: Any) -> Result:
        common = {
            "session_id": SESSION, "transcript_path": str(tmp_path / "transcript.jsonl"), "cwd": "/home/ana/code/shop",
            "permission_mode": "default", "hook_event_name": when,
        }  # fmt: skip
        text = json.dumps({**common, **event}) if given is None else given
        return CliRunner().invoke(app, ["hook", when, *words], input=text)

    return call


def kept(space: str = SHOP, user: str = "ana") -> list[Memory]:
    with memorist.open(run_jobs=False) as memory:
        return sorted(memory.scope(user, space).list(), key=lambda each: each.id)


def context(done: Result) -> str:
    assert done.exit_code == 0, done.stderr
    if not done.stdout:
        return ""
    told = json.loads(done.stdout)["hookSpecificOutput"]
    assert told["hookEventName"] in ("SessionStart", "UserPromptSubmit")
    return str(told["additionalContext"])


def record(type: str, content: Any, uuid: str, **more: Any) -> str:
    """A line of a transcript, as Claude Code writes it."""
    line = {
        "parentUuid": None, "isSidechain": False, "userType": "external", "cwd": "/home/ana/code/shop",
        "sessionId": SESSION, "version": "2.1.7", "gitBranch": "main", "type": type,
        "message": {"role": type, "content": content}, "uuid": uuid, "timestamp": "2026-05-31T14:00:00.000Z", **more,
    }  # fmt: skip
    return json.dumps(line) + "\n"


def test_a_prompt_is_kept_and_what_fits_the_next_one_is_told(hook: Hook) -> None:
    assert context(hook("prompt", prompt="The shop is deployed with Ansible.")) == ""
    told = context(hook("prompt", prompt="How is the shop deployed?"))
    assert "The shop is deployed with Ansible." in told
    assert told.startswith("<memory>")
    assert "How is" not in told
    (first,) = kept()
    assert first.labels.session == SESSION
    assert first.labels.role == "user"


def test_a_session_begins_with_what_is_pinned_and_known(hook: Hook) -> None:
    with memorist.open(run_jobs=False) as memory:
        shop = memory.scope("ana", SHOP)
        shop.remember("Deploys happen on Tuesdays.", kind="semantic")
        shop.remember("Never touch the billing tables.", pinned=True)
        memory.scope("ana", "garden").remember("The roses need water.", pinned=True)
    told = context(hook("session-start", source="startup")).splitlines()
    assert "Never touch the billing tables." in told[1]
    assert "Deploys happen on Tuesdays." in told[2]
    assert "roses" not in "".join(told)


def test_a_session_begins_with_what_was_said_before_the_most_important_first(hook: Hook) -> None:
    hook("prompt", prompt="The shop is deployed with Ansible.")
    with memorist.open(run_jobs=False) as memory:
        memory.scope("ana", SHOP).remember("The billing tables are sacred.", importance=0.9)
        memory.scope("ana", SHOP).remember("It rains.", importance=0.1)
    told = context(hook("session-start", source="startup")).splitlines()
    assert ["billing" in told[1], "Ansible" in told[2], "rains" in told[3]] == [True] * 3


def test_what_is_told_stays_within_its_limits(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    with memorist.open(run_jobs=False) as memory:
        for number in range(12):
            memory.scope("ana", SHOP).remember(
                f"Rule {number}: the shop has {'very ' * 20}long rules.", pinned=True
            )
    assert len(context(hook("session-start")).splitlines()) == 6 + 2
    monkeypatch.setenv("MEMORIST_MEMORY_CONTEXT_MAX_CHARS", "400")
    assert 0 < len(context(hook("session-start"))) <= 400
    monkeypatch.setenv("MEMORIST_MEMORY_CONTEXT_LIMIT", "0")
    assert context(hook("session-start")) == ""
    assert context(hook("prompt", prompt="Which rules has the shop?")) == ""


def test_a_prompt_is_one_memory_whether_it_is_handed_over_or_read_from_the_transcript(
    hook: Hook, tmp_path: Path
) -> None:
    said = "The shop is deployed with Ansible."
    hook("prompt", prompt=said)
    (tmp_path / "transcript.jsonl").write_text(record("user", said, "u1"))
    for _ in range(2):
        assert hook("stop", stop_hook_active=False).exit_code == 0
    (one,) = kept()
    assert (one.text, one.repeat_count) == (said, 0)


def test_of_a_transcript_the_last_turn_is_kept_without_tools_and_marks_of_the_host(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_MEMORY_STORE_RESPONSES", "1")
    text = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "Done: it runs on port 8080."},
    ]
    asked = [
        {"type": "document", "text": "a log file"},
        {"type": "text", "text": "The shop moves to port 8080 today."},
    ]
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "root:x:0:0"}]
    lines = [
        '{"type": "summary", "summary": "Shop", "leafUuid": "x"}\n',
        record("user", "An earlier turn about the garden.", "u0"),
        record("user", asked, "u1"),
        record("assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}], "a1"),
        record("user", result, "u2"),
        record("user", "<command-name>/compact</command-name>", "u3"),
        record("user", "Caveat: the messages below are from the host", "u4", isMeta=True),
        record("assistant", "words of a helper", "a2", isSidechain=True),
        "not json\n", '["neither"]\n', '{"type": "user", "message": 7}\n', "[" * 3000 + "\n",
        record("assistant", text, "a3"),
    ]  # fmt: skip
    (tmp_path / "transcript.jsonl").write_text("".join(lines))
    assert hook("pre-compact", trigger="auto").exit_code == 0
    assert hook("stop").exit_code == 0
    assert {each.labels.role: each.text for each in kept()} == {
        "user": "The shop moves to port 8080 today.", "assistant": "Done: it runs on port 8080.",
    }  # fmt: skip
    assert len(kept()) == 2


def test_a_line_that_says_nothing_of_helpers_and_hosts_is_the_persons(
    hook: Hook, tmp_path: Path
) -> None:
    line = {"type": "user", "message": {"content": "The shop moves to port 8080 today."}}
    (tmp_path / "transcript.jsonl").write_text(json.dumps(line) + "\n")
    assert hook("stop").exit_code == 0
    assert [each.text for each in kept()] == ["The shop moves to port 8080 today."]


def test_replies_are_not_kept_unless_that_is_wanted(hook: Hook, tmp_path: Path) -> None:
    lines = record("user", "The shop moved.", "u1"), record("assistant", "It did move.", "a1")
    (tmp_path / "transcript.jsonl").write_text("".join(lines))
    hook("stop")
    assert [each.text for each in kept()] == ["The shop moved."]


def test_the_space_is_the_folder_of_the_project_or_the_one_that_is_named(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook("prompt", prompt="Our topic is the shop.")
    hook("prompt", "--space", "work", prompt="Our topic is work.")
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", "/home/ana/code/garden")
    hook("prompt", prompt="Our topic is the garden.")
    monkeypatch.setenv("MEMORIST_SPACE", "set")
    hook("prompt", prompt="Our topic is a setting.")
    garden = "garden-9d1356"
    told = {space: [each.text for each in kept(space)] for space in (SHOP, "work", garden, "set")}
    assert told == {
        SHOP: ["Our topic is the shop."], "work": ["Our topic is work."],
        garden: ["Our topic is the garden."], "set": ["Our topic is a setting."],
    }  # fmt: skip


def test_two_projects_with_the_same_name_do_not_share(hook: Hook, tmp_path: Path) -> None:
    for parent in ("one", "two"):
        (tmp_path / parent / "shop").mkdir(parents=True)
    hook("prompt", prompt="The shop is deployed with Ansible.", cwd=str(tmp_path / "one/shop"))
    asked = "How is the shop deployed?"
    assert context(hook("prompt", prompt=asked, cwd=str(tmp_path / "two/shop"))) == ""
    assert "Ansible" in context(hook("prompt", prompt=asked, cwd=str(tmp_path / "one/shop")))


def test_a_file_of_the_project_names_its_space_and_turns_memory_off(
    hook: Hook, tmp_path: Path
) -> None:
    folder = tmp_path / "code/shop/src"
    folder.mkdir(parents=True)
    marker = folder.parent / ".memorist"
    marker.write_text('space = "store"\n', "utf-8")
    hook("prompt", prompt="The shop is deployed with Ansible.", cwd=str(folder))
    assert [each.text for each in kept("store")] == ["The shop is deployed with Ansible."]
    marker.write_text('space = "store"\nmemory = false\n', "utf-8")
    assert context(hook("prompt", prompt="How is the shop deployed?", cwd=str(folder))) == ""
    hook("prompt", prompt="The shop has a cellar.", cwd=str(folder))
    marker.write_text('space = "store"\nmemory = true\n', "utf-8")
    assert "Ansible" in context(hook("prompt", prompt="How is the shop deployed?", cwd=str(folder)))
    assert "The shop has a cellar." not in [each.text for each in kept("store")]
    marker.write_text("memory = maybe", "utf-8")
    done = hook("prompt", prompt="Hello there, shop.", cwd=str(folder))
    assert done.exit_code == 0
    assert ".memorist cannot be read" in done.stderr


def test_an_incognito_chat_leaves_no_byte_and_its_turns_are_not_kept_when_it_ends(
    hook: Hook, tmp_path: Path
) -> None:
    told = context(hook("prompt", prompt="start incognito for this chat"))
    assert "memory" in told
    secret = "The surprise party is at the marzipan factory."
    (tmp_path / "transcript.jsonl").write_text(record("user", secret, "u1"))
    assert context(hook("prompt", prompt=secret)) == ""
    hook("stop")
    (tmp_path / "transcript.jsonl").write_text(
        record("user", secret, "u1") + record("user", "Back to work now.", "u2")
    )
    assert context(hook("prompt", prompt="end incognito for this chat"))
    hook("stop")
    assert [each.text for each in kept()] == ["Back to work now."]
    files = [
        path for path in tmp_path.rglob("*") if path.is_file() and path.name != "transcript.jsonl"
    ]
    assert files
    assert not [path for path in files if b"marzipan" in path.read_bytes()]


def test_where_memory_is_off_nothing_is_told_or_kept(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook("prompt", prompt="The shop is deployed with Ansible.")
    monkeypatch.setenv("MEMORIST_MEMORY_ENABLED", "0")
    assert context(hook("session-start")) == ""
    assert context(hook("prompt", prompt="How is the shop deployed with Ansible?")) == ""
    assert len(kept()) == 1


AWAY = "postgresql://nobody:secret@127.0.0.1:1/none"


@pytest.mark.parametrize("when", ["session-start", "prompt", "stop", "pre-compact"])
@pytest.mark.parametrize(
    "given",
    [
        "",
        "no json",
        "[1]",
        '{"prompt": 7, "cwd": [], "session_id": {}, "transcript_path": 3}',
        "[" * 10_000,
    ],
)
def test_the_host_goes_on_whatever_it_hands_over(hook: Hook, when: str, given: str) -> None:
    done = hook(when, given=given)
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "unexpected" not in done.stderr
    assert ("expects a JSON object" in done.stderr) is (given[:1] in ("n", "["))


@pytest.mark.parametrize("when", ["session-start", "prompt", "stop"])
def test_the_host_goes_on_when_the_memory_is_away(
    hook: Hook, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_DB", AWAY)
    done = hook(when, prompt="Where is it?")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("memorist: ")
    assert "secret" not in done.stderr


def test_the_host_goes_on_with_a_setting_that_is_wrong(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_PROFILE", "nonsense")
    done = hook("prompt", prompt="Where is it?")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "profile" in done.stderr


def test_a_transcript_that_is_gone_or_huge_does_no_harm(hook: Hook, tmp_path: Path) -> None:
    assert hook("stop").exit_code == 0
    noise = record("assistant", "x" * 1000, "a") * 5000
    (tmp_path / "transcript.jsonl").write_text(noise + record("user", "The shop moved.", "u1"))
    assert hook("stop").exit_code == 0
    assert [each.text for each in kept()] == ["The shop moved."]


@pytest.mark.parametrize(
    ("prompt", "is_kept"),
    [
        ("commit this please", False),
        ("looks good, push it", False),
        ("fix the failing test in auth.py", False),
        ("Why does the login break?", False),
        ("We use pnpm, never npm.", True),
        ("don't touch the migrations folder", True),
        ("Let's go with option B.", True),
        ("Fix the client. The API answers 429 after ten requests a second.", True),
        ("Wir verwenden pnpm.", True),
    ],
)
def test_only_a_prompt_that_states_something_is_kept(
    hook: Hook, tmp_path: Path, prompt: str, is_kept: bool
) -> None:
    hook("prompt", prompt=prompt)
    (tmp_path / "transcript.jsonl").write_text(record("user", prompt, "u1"))
    hook("stop")
    assert [each.text for each in kept() if not each.evidence_ids] == [prompt] * is_kept


HOSTS_OWN = [
    "/clear",
    "/mcp:shop:deploy now",
    "<command-name>/compact</command-name>",
    "<system-reminder>x",
]
SAID = [
    "/etc/hosts is wrong because of the VPN.",
    "<div> tags are never closed in the shop.",
    "/ must never be full again.",
]


@pytest.mark.parametrize("text", HOSTS_OWN)
def test_commands_of_the_host_are_not_kept(hook: Hook, tmp_path: Path, text: str) -> None:
    assert context(hook("prompt", prompt=text)) == ""
    (tmp_path / "transcript.jsonl").write_text(record("user", text, "u1"))
    hook("stop")
    assert kept() == []


@pytest.mark.parametrize("text", SAID)
def test_what_only_begins_like_a_command_is_kept(hook: Hook, tmp_path: Path, text: str) -> None:
    hook("prompt", prompt=text)
    (tmp_path / "transcript.jsonl").write_text(record("user", text, "u1"))
    hook("stop")
    assert [each.text for each in kept()] == [text]


@pytest.mark.slow
def test_a_host_that_says_nothing_is_not_kept_waiting() -> None:
    command = [sys.executable, "-m", "memorist", "hook", "prompt"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.wait(timeout=20) == 0
        assert process.stderr
        assert "too long" in process.stderr.read()


# The hook for a prompt gives the same context as `scope.context`, on both databases.


@pytest.fixture
def anywhere(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORIST_DB", place)


@pytest.mark.usefixtures("anywhere")
def test_a_prompt_is_told_the_profile_and_what_is_pinned_whatever_it_asks(hook: Hook) -> None:
    with memorist.open(run_jobs=False) as memory:
        shop = memory.scope("ana", SHOP)
        shop.consent.set("tone", "brief")
        shop.remember("Never touch the billing tables.", pinned=True)
        shop.remember("The shop is deployed with Ansible.")
    told = context(hook("prompt", prompt="How is the shop deployed?")).splitlines()
    assert told[:2] == ["<memory>", "[PROFILE] tone: brief"]
    assert "Never touch the billing tables." in told[2]
    assert "The shop is deployed with Ansible." in told[3]


@pytest.mark.spec("IMP-3", "IMP-13", "IMP-72")
@pytest.mark.usefixtures("anywhere")
def test_a_prompt_is_told_what_others_changed_once_and_not_what_it_said_itself(hook: Hook) -> None:
    hook("prompt", prompt="The shop is deployed with Ansible.")
    assert context(hook("prompt", prompt="How is the shop deployed?")).startswith("<memory>")
    with memorist.open(run_jobs=False) as memory:
        shop = memory.scope("ana", SHOP)
        shop.edit(kept()[0].id, "The shop is deployed with Terraform.")
    told = context(hook("prompt", prompt="How is the shop deployed?")).splitlines()
    assert told[0] == "Memory updates since rev 1:"
    assert told[1].startswith("- ↑updated: ")
    assert told[1].endswith("The shop is deployed with Terraform.")
    assert context(hook("prompt", prompt="Is the shop deployed?")).startswith("<memory>")


@pytest.mark.spec("MIL-60", "MIL-61")
@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(("limit", "pinned"), [(1, 1), (2, 1), (3, 1), (6, 2), (9, 3)])
def test_pinned_and_recalled_memories_share_the_limit(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, limit: int, pinned: int
) -> None:
    monkeypatch.setenv("MEMORIST_MEMORY_CONTEXT_LIMIT", str(limit))
    monkeypatch.setenv("MEMORIST_MEMORY_CONTEXT_MAX_CHARS", "1500")
    with memorist.open(run_jobs=False) as memory:
        shop = memory.scope("ana", SHOP)
        for number in range(12):
            shop.remember(f"Pinned note {number} on the garden.", pinned=True, policy="milton")
            shop.remember(f"The shop is deployed by server {number}.", policy="milton")
    told = context(hook("prompt", prompt="By which server is the shop deployed?"))
    lines = told.splitlines()[1:-1]
    assert len(lines) == limit
    assert sum("Pinned note" in line for line in lines) == pinned
    monkeypatch.setenv("MEMORIST_MEMORY_CONTEXT_MAX_CHARS", "200")
    assert 0 < len(context(hook("prompt", prompt="Which server is deployed?"))) <= 200


def uses() -> list[str]:
    with memorist.open(run_jobs=False) as memory:
        return [event.status for event in memory.scope("ana", SHOP).events(op="use")]


@pytest.mark.spec("THE-98")
@pytest.mark.usefixtures("anywhere")
def test_a_turn_that_used_what_was_told_is_counted_when_it_ends(hook: Hook, tmp_path: Path) -> None:
    transcript = tmp_path / "transcript.jsonl"
    with memorist.open(run_jobs=False) as memory:
        memory.scope("ana", SHOP).remember("The shop is deployed with Ansible.")
    asked = "How is the shop deployed?"
    for number, reply in enumerate(("By Ansible, of course.", "I do not know how the shop is.")):
        hook("prompt", prompt=asked)
        said = record("user", asked, f"u{number}") + record("assistant", reply, f"a{number}")
        transcript.write_text(said)
        for _ in range(2):
            assert hook("stop").exit_code == 0
        assert hook("pre-compact").exit_code == 0
    assert uses() == ["skipped", "ok"], "newest first, each turn once"
    assert {each.labels.role for each in kept()} <= {None, "user"}, "replies are not stored"
    with memorist.open(run_jobs=False) as memory:
        assert memory.scope("ana", SHOP).checkpoints.list() == []


@pytest.mark.usefixtures("anywhere")
def test_a_turn_that_was_told_nothing_is_not_counted_where_memory_is_off(
    hook: Hook, tmp_path: Path
) -> None:
    context(hook("prompt", prompt="start incognito for this chat"))
    hook("prompt", prompt="How is the shop deployed?")
    (tmp_path / "transcript.jsonl").write_text(
        record("user", "How is the shop deployed?", "u1") + record("assistant", "Well.", "a1")
    )
    hook("stop")
    assert uses() == []


def test_what_a_prompt_told_the_memory_to_do_is_stored_by_no_hook(
    hook: Hook, tmp_path: Path
) -> None:
    def say(text: str) -> str:
        told = context(hook("prompt", prompt=text))
        lines = record("user", text, "u1") + record("assistant", "Done.", "a1")
        (tmp_path / "transcript.jsonl").write_text(lines, "utf-8")
        for when in ("pre-compact", "stop"):
            assert hook(when).exit_code == 0
        return told

    say("The shop is deployed with Ansible to two servers.")
    assert "Saved: the staging port is 4455" in say("Remember that the staging port is 4455.")
    assert "I no longer remember" in say("undo that")
    assert "1 memory" in say("Forget everything you know about me.")
    assert [each.text for each in kept()] == ["The shop is deployed with Ansible to two servers."]
    assert "Forgotten" in say("yes")
    assert kept() == []
