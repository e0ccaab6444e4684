"""`memorist mcp install`: what it shows, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from memorist.interfaces import hosts
from memorist.interfaces.cli import app
from memorist.interfaces.hooks import HOOKS

Install = Callable[..., Result]
FILES = {
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "gemini-cli": ".gemini/settings.json",
    "zed": ".config/zed/settings.json",
    "opencode": ".config/opencode/opencode.json",
}
SECTIONS = {"vscode": "servers", "zed": "context_servers", "opencode": "mcp"}


@pytest.fixture(scope="module")
def started() -> set[object]:
    """Options and settings with which a server has been started in this module."""
    return set()


@pytest.fixture
def install(home: Path, started: set[object], monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install it, with these variables of ours alone.

    A server that started with the same options and settings before is not started again, which
    takes a second.
    """
    check_server = hosts.check_server

    def check_once(call: hosts.Call, options: Sequence[str]) -> None:
        settings = hosts._export_settings(call)
        settings.pop("MEMORIST_STATE_DIR", None)  # a folder of the test
        key = (*options, *sorted(settings.items()), os.environ.get("PYTHONPATH"))
        if key not in started:
            check_server(call, options)
            started.add(key)

    monkeypatch.setattr(hosts, "check_server", check_once)
    none = {name: None for name in os.environ if name.startswith("MEMORIST_")}
    return lambda host, *words, **env: CliRunner().invoke(
        app, ["mcp", "install", host, *words], env={**none, **env}
    )


def entry(home: Path, host: str) -> Any:
    text = (home / FILES[host]).read_text("utf-8")
    if host == "codex":
        return tomllib.loads(text)["mcp_servers"]
    return json.loads(text)[SECTIONS.get(host, "mcpServers")]


@pytest.mark.parametrize("host", FILES)
def test_a_host_is_told_how_to_start_it_once(install: Install, home: Path, host: str) -> None:
    done = install(host, "--yes")
    assert done.exit_code == 0
    assert "+" in done.stdout
    assert "memorist" in done.stdout
    found = entry(home, host)["memorist"]
    command = found["command"]
    program, *words = command if host == "opencode" else [command, *found["args"]]
    assert os.path.isabs(program)
    assert words[-1] == "mcp"
    forms = {
        "vscode": ("type", "stdio"),
        "zed": ("source", "custom"),
        "opencode": ("type", "local"),
    }
    if host in forms:
        name, value = forms[host]
        assert found[name] == value
    written = (home / FILES[host]).read_bytes()
    again = install(host, "--yes")
    assert "already" in again.stderr
    assert again.stdout == ""
    assert (home / FILES[host]).read_bytes() == written


@pytest.mark.parametrize("host", FILES)
@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--dry-run", "--yes")])
def test_nothing_is_written_before_it_is_agreed_to(
    install: Install, home: Path, host: str, words: tuple[str, ...]
) -> None:
    done = install(host, *words)
    assert done.exit_code == 0
    assert "memorist" in done.stdout
    assert "Nothing was written" in done.stderr
    assert not (home / FILES[host]).exists()


def test_the_rest_of_a_json_file_stays_and_a_copy_of_it_is_kept(
    install: Install, home: Path
) -> None:
    path = home / FILES["cursor"]
    path.parent.mkdir()
    before = '{\n\t"theme": "dünkel",\n\t"mcpServers": {\n\t\t"other": {\n\t\t\t"command": "x"\n\t\t}\n\t}\n}\n'
    path.write_text(before, "utf-8")
    path.chmod(0o640)
    done = install("cursor", "--yes")
    after = path.read_text("utf-8")
    assert list(entry(home, "cursor")) == ["other", "memorist"]
    assert before.rsplit("\n\t\t}\n", 1)[0] in after
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    (copy,) = [each for each in path.parent.iterdir() if each != path]
    assert copy.read_text("utf-8") == before
    assert copy.name in done.stderr
    assert [
        line for line in done.stdout.splitlines() if line.startswith("-") and "dünkel" in line
    ] == []


def test_comments_and_tables_of_a_toml_file_stay(install: Install, home: Path) -> None:
    path = home / FILES["codex"]
    path.parent.mkdir()
    before = '# mine\nmodel = "o"  # best\n\n[mcp_servers.memorist]\ncommand = "old"\n'
    before += '[mcp_servers.memorist.env]\nA = "1"\n'
    before += '\n[mcp_servers.other]\ncommand = "x"\n\n[[profiles]]\nname = "a"\n'
    path.write_text(before)
    install("codex", "--db", 'C:\\mem "ory".db', "--yes")
    after = path.read_text()
    for line in (
        "# mine\n",
        'model = "o"  # best\n',
        '[mcp_servers.other]\ncommand = "x"\n',
        '[[profiles]]\nname = "a"\n',
    ):
        assert line in after
    assert after.count("[mcp_servers.memorist]") == 1
    assert entry(home, "codex")["memorist"]["env"] == {"MEMORIST_DB": 'C:\\mem "ory".db'}


def test_what_was_said_on_the_command_line_goes_along(install: Install, home: Path) -> None:
    install(
        "claude-desktop",
        "--user",
        "bo",
        "--space",
        "shop",
        "--agent",
        "planner",
        "--db",
        "postgresql://u:p@h/d",
        "-y",
    )
    found = entry(home, "claude-desktop")["memorist"]
    assert found["args"][-3:] == ["mcp", "--agent", "planner"]
    assert found["env"] == {
        "MEMORIST_DB": "postgresql://u:p@h/d", "MEMORIST_USER": "bo", "MEMORIST_SPACE": "shop",
    }  # fmt: skip
    assert (
        stat.S_IMODE((home / FILES["claude-desktop"]).stat().st_mode) == 0o600
    )  # it may hold a password


def test_what_is_set_in_the_environment_goes_along_but_for_secrets(
    install: Install, home: Path
) -> None:
    set_here = {
        "MEMORIST_DB": "/data/m.db", "MEMORIST_USER": "ana", "MEMORIST_EMBEDDER": "hashing",
        "MEMORIST_LLM_KEY": "sk-secret", "MEMORIST_EMBEDDER_KEY": "sk-secret", "MEMORIST_TRACEBACK": "1",
    }  # fmt: skip
    done = install("cursor", "--user", "bo", "--yes", **set_here)
    assert entry(home, "cursor")["memorist"]["env"] == {
        "MEMORIST_USER": "bo", "MEMORIST_DB": "/data/m.db", "MEMORIST_EMBEDDER": "hashing",
    }  # fmt: skip
    assert "/data/m.db" in done.stdout
    assert "sk-secret" not in done.stdout


def test_hooks_are_written_beside_those_of_others_and_once(install: Install, home: Path) -> None:
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    mine = {"matcher": "", "hooks": [{"type": "command", "command": "say hook stop"}]}
    old = {"type": "command", "command": "/old/memorist hook stop"}
    mixed = {"hooks": [{"type": "command", "command": "date"}, old]}
    settings.write_text(json.dumps({"model": "opus", "hooks": {"Stop": [mine, mixed]}}))
    for _ in range(2):
        assert install("claude-code", "--hooks", "--yes", "--db", "/a b/m.db").exit_code == 0
    found = json.loads(settings.read_text())
    assert found["model"] == "opus"
    assert found["hooks"]["Stop"][:2] == [mine, {"hooks": [{"type": "command", "command": "date"}]}]
    assert len(found["hooks"]["Stop"]) == 3
    for word, event in HOOKS.items():
        call = found["hooks"][event][-1]["hooks"][0]
        assert call["command"].startswith("MEMORIST_DB='/a b/m.db' ")
        assert call["command"].endswith(f" hook {word}")
    assert install("cursor", "--hooks").exit_code == 2


def test_the_hooks_work_as_they_were_written(install: Install, home: Path, tmp_path: Path) -> None:
    install("claude-code", "--hooks", "--yes", "--db", str(tmp_path / "a b.db"), "--user", "ana")
    hooks = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    told = []
    for prompt in ("The shop is deployed with Ansible.", "How is the shop deployed?"):
        given = json.dumps({"session_id": "s1", "cwd": "/code/shop", "prompt": prompt})
        command = hooks["UserPromptSubmit"][0]["hooks"][0]["command"]
        done = subprocess.run(
            command, shell=True, input=given, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        told.append(done.stdout)
    assert (
        "The shop is deployed with Ansible."
        in json.loads(told[1])["hookSpecificOutput"]["additionalContext"]
    )


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("zed", "{,}"), ("zed", "// only"),
        ("cursor", "{ /* a comment\n}"), ("cursor", "[]"), ("cursor", '{"mcpServers": 7}'), ("cursor", "\x00"),
        ("codex", "= no"), ("codex", 'mcp_servers = { memorist = { command = "x" } }'),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_changed_is_left_alone(
    install: Install, home: Path, host: str, text: str
) -> None:
    path = home / FILES[host]
    path.parent.mkdir(parents=True)
    path.write_text(text)
    done = install(host, "--yes")
    assert done.exit_code == 2
    assert path.name in done.stderr
    assert path.read_text() == text


def test_a_link_to_the_file_stays_a_link(install: Install, home: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    (home / ".claude.json").symlink_to(real)
    install("claude-code", "--yes")
    assert (home / ".claude.json").is_symlink()
    assert "memorist" in json.loads(real.read_text())["mcpServers"]


def test_a_host_has_to_be_named(install: Install) -> None:
    assert install("nonsense").exit_code == 2
    assert CliRunner().invoke(app, ["mcp", "install"]).exit_code == 2


@pytest.mark.parametrize("host", FILES)
def test_uninstalling_leaves_the_file_as_it_was_without_it(
    install: Install, home: Path, host: str
) -> None:
    path = home / FILES[host]
    path.parent.mkdir(parents=True, exist_ok=True)
    section = "mcp_servers" if host == "codex" else SECTIONS.get(host, "mcpServers")
    before = "# mine\n[tools]\nx = 1\n" if host == "codex" else json.dumps({section: {"x": {}}})
    path.write_text(before, "utf-8")
    install(host, "--yes")
    assert "memorist" in entry(home, host)
    done = CliRunner().invoke(app, ["mcp", "uninstall", host, "--yes"])
    assert done.exit_code == 0
    after = path.read_text("utf-8")
    assert after == before if host == "codex" else json.loads(after) == json.loads(before)
    again = CliRunner().invoke(app, ["mcp", "uninstall", host, "--yes"])
    assert "not configured" in again.stderr


def test_uninstalling_removes_the_hooks_and_keeps_those_of_others(
    install: Install, home: Path
) -> None:
    path = home / ".claude/settings.json"
    path.parent.mkdir()
    other = {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}
    path.write_text(json.dumps({"hooks": other}), "utf-8")
    install("claude-code", "--hooks", "--yes")
    assert "memorist" in path.read_text("utf-8")
    CliRunner().invoke(app, ["mcp", "uninstall", "claude-code", "--yes"])
    hooks = json.loads(path.read_text("utf-8"))["hooks"]
    assert {event: groups for event, groups in hooks.items() if groups} == other


@pytest.mark.parametrize("missing", ["mcp", "anyio"])
def test_a_server_that_cannot_start_is_not_written(
    install: Install, home: Path, tmp_path: Path, missing: str
) -> None:
    package = tmp_path / "without" / missing  # found before the real one, as if it were missing
    package.mkdir(parents=True)
    fails = f"raise ImportError('No module', name={missing!r})"
    (package / "__init__.py").write_text(fails, "utf-8")
    done = install("cursor", "--yes", PYTHONPATH=str(package.parent))
    assert done.exit_code != 0
    assert "nothing was written" in done.stderr
    assert 'pip install "memorist[mcp]"' in done.stderr
    assert not (home / FILES["cursor"]).exists()


def test_hooks_and_tools_of_a_project_share_one_space(install: Install, home: Path) -> None:
    install("claude-code", "--hooks", "--yes")
    assert entry(home, "claude-code")["memorist"]["args"][-1] == "--project"
    install("claude-code", "--hooks", "--yes", MEMORIST_SPACE="work")
    found = entry(home, "claude-code")["memorist"]
    assert "--project" not in found["args"]
    assert found["env"]["MEMORIST_SPACE"] == "work"
    assert "MEMORIST_SPACE=work" in (home / ".claude/settings.json").read_text("utf-8")


ZED = """// Zed settings
{
  "theme": "One Dark", // at night
  /* servers */
  "context_servers": {
    "other": {"command": "x", "args": ["// no comment",]}, // mine
  },
}
"""
VSCODE = """{
\t// "old": {},
\t"inputs": [],
\t"servers": {
\t\t"other": {"command": "x"} // no comma
\t}
}"""
WITHOUT_SERVERS = '// Zed settings\r\n{\r\n    "tab_size": 2 // two\r\n}\r\n'


@pytest.mark.parametrize(
    ("host", "before", "start", "end"),
    [
        (
            "zed",
            ZED,
            ZED.partition("  },\n}")[0] + '    "memorist": {\n      "source": "custom",\n',
            "\n    },\n  },\n}\n",
        ),
        (
            "vscode",
            VSCODE,
            VSCODE.partition(" // no")[0]
            + ', // no comma\n\t\t"memorist": {\n\t\t\t"type": "stdio",\n',
            "\n\t\t}\n\t}\n}",
        ),
    ],
)
def test_comments_and_commas_of_a_settings_file_stay(
    install: Install, home: Path, host: str, before: str, start: str, end: str
) -> None:
    path = home / FILES[host]
    path.parent.mkdir(parents=True)
    path.write_text(before, "utf-8")
    assert install(host, "--yes").exit_code == 0
    after = path.read_text("utf-8")
    assert after.startswith(start)
    assert after.endswith(end)
    added = json.loads("{" + after[len(start) : -len(end)] + "}")
    assert added["args"][-1] == "mcp"
    assert path.with_name(f"{path.name}.before-memorist").read_text("utf-8") == before
    again = install(host, "--yes")
    assert "already" in again.stderr
    assert path.read_text("utf-8") == after
    assert install(host, "--yes", MEMORIST_USER="bo").exit_code == 0
    changed = path.read_text("utf-8")
    assert '"MEMORIST_USER": "bo"' in changed
    assert changed.startswith(start)
    CliRunner().invoke(app, ["mcp", "uninstall", host, "--yes"])
    assert path.read_text("utf-8") == before


def test_a_settings_file_without_servers_keeps_its_lines(install: Install, home: Path) -> None:
    path = home / FILES["zed"]
    path.parent.mkdir(parents=True)
    path.write_bytes(WITHOUT_SERVERS.encode())
    assert install("zed", "--yes").exit_code == 0
    after = path.read_bytes().decode()
    start = WITHOUT_SERVERS.replace("2 //", "2, //").removesuffix("}\r\n")
    assert after.startswith(start + '    "context_servers": {\r\n        "memorist": {\r\n')
    assert after.endswith("\r\n        }\r\n    }\r\n}\r\n")
    assert after.count("\n") == after.count("\r\n")


def test_comments_in_the_entry_itself_are_not_lost(install: Install, home: Path) -> None:
    path = home / FILES["zed"]
    path.parent.mkdir(parents=True)
    text = '{"context_servers": {"memorist": {"command": "old" // mine\n}}}'
    path.write_text(text, "utf-8")
    done = install("zed", "--yes")
    assert done.exit_code == 2
    assert "comments" in done.stderr
    assert '"context_servers"' in done.stderr
    assert path.read_text("utf-8") == text


@pytest.mark.parametrize("host", ["cursor", "codex"])
def test_a_byte_order_mark_stays(install: Install, home: Path, host: str) -> None:
    path = home / FILES[host]
    path.parent.mkdir(parents=True)
    before = b"\xef\xbb\xbf" + (b'model = "o"\n' if host == "codex" else b'{"theme": "dark"}\n')
    path.write_bytes(before)
    assert install(host, "--yes").exit_code == 0
    after = path.read_bytes()
    assert after.startswith(before[:10])
    assert after.count(b"\xef\xbb\xbf") == 1
    assert b"memorist" in after
    assert "already" in install(host, "--yes").stderr


@pytest.mark.parametrize("text", ['{"a": "' + '\\"' * 100_000, '{"a": 1' + "/* " * 100_000])
def test_a_long_text_without_an_end_is_refused_at_once(
    install: Install, home: Path, text: str
) -> None:
    install("cursor", "--yes")  # starts the server once
    path = home / FILES["cursor"]
    path.write_text(text, "utf-8")
    start = time.perf_counter()
    done = install("cursor", "--yes")
    assert time.perf_counter() - start < 5
    assert done.exit_code == 2
    assert path.read_text("utf-8") == text
