"""What the documentation shows is run, and what is generated is up to date."""

import contextlib
import io
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from memorist.retrieve.profiles import DEFAULT, OF_ANSWER

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/tutorial.md", "docs/how-to.md", "docs/dialects.md"]
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def steps(page: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with the output that is shown right after it."""
    blocks = BLOCK.findall((ROOT / page).read_text("utf-8"))
    following = [*blocks[1:], ("end", "")]
    return [
        (code, shown if kind == "" else "")
        for (language, code), (kind, shown) in zip(blocks, following, strict=True)
        if language == "python"
    ]


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run_and_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path))
    names: dict[str, object] = {}
    for code, shown in steps(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), names)
        assert shown.strip() in printed.getvalue()


@pytest.mark.spec("MLS-2", "MLS-1")
def test_the_chunking_decision_says_why_not_a_fixed_size():
    text = (ROOT / "docs/adr/ADR-002-chunking-strategy.md").read_text("utf-8")
    assert "never at a fixed size" in text
    assert "## Consequences" in text


@pytest.mark.spec("CLK-91")
def test_the_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.spec("CLK-3")
def test_the_picture_of_the_flow_is_drawn_from_its_source():
    flow = runpy.run_path(str(ROOT / "tools/flow.py"))
    source = (ROOT / "docs/flow.mmd").read_text("utf-8")
    picture = (ROOT / "docs/flow.svg").read_text("utf-8")
    assert picture == flow["draw"](flow["parse"](source))
    boxes = re.findall(r'^ +(\w+)\["', source, re.MULTILINE)
    assert re.findall(r'<g id="(\w+)">', picture) == boxes
    assert {"guard", "commit", "store", "search", "block", "journal", "snapshot"} <= set(boxes)
    assert 'data-from="snapshot"' not in picture, "what is written for people is not read again"


@pytest.mark.spec("CLK-4")
def test_the_map_names_a_home_for_everything_and_each_exists():
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    homes = re.findall(r"`([a-z][\w/]*(?:/|\.\w+))(?::(\w+))?`", text)
    assert len(homes) > 60
    for home, name in homes:
        found = [folder / home for folder in (ROOT, ROOT / "src/memorist")]
        path = next((each for each in found if each.exists()), None)
        assert path is not None, home
        assert not name or re.search(rf"^(async )?def {name}\(", path.read_text("utf-8"), re.M), (
            name
        )
    for part in (
        "extraction",
        "hybrid retrieval",
        "journal",
        "schema",
        "language models",
        "bot",
        "voice",
        "operator",
    ):
        assert part in text


@pytest.mark.spec("THE-3", "THE-4")
def test_the_concepts_name_what_they_build_on_and_the_order_of_the_parts():
    text = (ROOT / "docs/concepts.md").read_text("utf-8")
    for base in (
        "Generative Agents",
        "Weaviate",
        "Microsoft Learn",
        "OpenSearch",
        "SimHash",
        "Google",
        "OpenAI",
    ):
        assert base in text.partition("## What it builds on")[2]
    parts = (
        "storage and schema",
        "write path",
        "retrieval, the worker",
        "metrics and evals",
        "summarize",
    )
    order = " ".join(text.partition("built in the order")[2].split())
    places = [order.index(part) for part in parts]
    assert places == sorted(places)


def test_every_link_between_pages_leads_somewhere():
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} → {target}"


def test_the_pictures_are_small_and_load_nothing() -> None:
    images = sorted((ROOT / "docs/images").iterdir())
    assert [image.name for image in images] == ["demo.svg", "page.png"]
    assert all(image.stat().st_size < 150_000 for image in images)
    drawn = (ROOT / "docs/images/demo.svg").read_text("utf-8")
    assert not re.findall(r"url\(\W*http|href=|@import|<script", drawn)


def run_example(name: str, db: Path, typed: str = "") -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), str(db)],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_chat_loop_still_knows_in_its_second_run_what_it_was_told_in_the_first(
    tmp_path: Path,
) -> None:
    db = tmp_path / "chat.db"
    told = run_example(
        "chat_loop.py", db, "My sister Mira lives in Ghent.\nWhere does Mira live?\n"
    )
    assert told.startswith("> I know nothing about that yet.\n> ")
    assert "Mira lives in Ghent" in told
    assert "Mira lives in Ghent" in run_example("chat_loop.py", db, "Where does Mira live?\n\n")


def test_the_chat_loop_forgets_and_undoes(tmp_path: Path) -> None:
    lines = ("I live in Hull", "forget where I live", "yes", "what do you know about me?", "undo")
    said = run_example("chat_loop.py", tmp_path / "chat.db", "\n".join((*lines, "", "")))
    assert "Forgotten." in said
    assert "I remember nothing." in said
    assert said.rstrip("> \n").endswith("1. I live in Hull")


def test_the_bot_of_a_group_answers_and_keeps_private_what_is_private(tmp_path: Path) -> None:
    answers = re.findall(
        r"^#(\w+) bot: (.*)$", run_example("group_bot.py", tmp_path / "bot.db"), re.M
    )
    places = [place for place, _ in answers]
    assert places == ["general", "general", "private", "boats"]
    oars, others, own, boats = (said for _, said in answers)
    assert oars.endswith("Bo: I bring the spare oars.")
    assert (others, boats) == ("I don't know.", "I don't know.")
    assert "afraid of deep water" in own


def test_the_coding_agent_follows_in_a_new_session_the_rules_of_its_project(tmp_path: Path) -> None:
    said = run_example("coding_agent.py", tmp_path / "agent.db")
    assert (
        "Steps: edit the code for: Commit the fix for the login page., run make check, commit"
        in said
    )
    assert "Known way: [procedural] Add an index to a table: 1. Write a migration" in said
    assert said.endswith("In another project: No stored memory answers this question.\n")


def test_every_example_is_run() -> None:
    run = Path(__file__).read_text("utf-8")
    for example in (ROOT / "examples").glob("*.py"):
        assert f'"{example.name}"' in run, f"{example.name} is not run by a test"


def test_the_concepts_list_the_weights_of_the_default_profile():
    text = (ROOT / "docs/concepts.md").read_text("utf-8")
    table = text.partition("### The `default` score")[2].partition("###")[0]
    rows = re.findall(r"^\| (\w+) \| (−?[\d.]+) \|", table, re.M)
    listed = {name: float(weight.replace("−", "-")) for name, weight in rows}
    assert listed == dict(DEFAULT.weights)


def test_the_concepts_list_the_measures_of_confidence():
    text = (ROOT / "docs/concepts.md").read_text("utf-8")
    table = text.partition("| measure of an answer |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (\w+): ", table, re.M) == [
        each for each in OF_ANSWER if each != "always"
    ]
