"""Draw the pictures of the README: the output of `memorist demo`, and the web page with its data.

`python tools/pictures.py` writes docs/images. Needs the extra `test` and Chromium.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

import memorist
from memorist.interfaces.cli.evals import DEMO

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 92  # columns of the terminal
SIZE: Any = {"width": 1100, "height": 760}  # pixels of the browser
QUESTION = "Where does Mirela live now?"
FLAGS = ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"]


def run(*words: str, **variables: str) -> str:
    """Run `memorist` and return what it prints."""
    command = [sys.executable, "-m", "memorist", *words]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def draw_demo() -> str:
    """Return the output of the demo as SVG, with the fonts of whoever looks at it."""
    printed = run("demo", COLUMNS=str(WIDTH), FORCE_COLOR="1")
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text.from_ansi(printed.rstrip()))
    svg = console.export_svg(title="memorist demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # loaded from another site
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


@contextmanager
def serve_demo(folder: Path) -> Iterator[str]:
    """Serve the conversation of the demo, and yield the address."""
    script = json.loads(DEMO.read_text("utf-8"))
    db = str(folder / "memory.db")
    with memorist.open(db, state_dir=folder, extract="off", **script["settings"]) as memory:
        for session in script["sessions"]:
            memory.scope(user="demo").remember(session)
    command = [sys.executable, "-m", "memorist", "serve", "--no-jobs", "--port", "0"]
    environment = {**os.environ, "MEMORIST_STATE_DIR": str(folder), "MEMORIST_EXTRACT": "off"}
    process = subprocess.Popen(
        [*command, "--db", db, "--user", "demo"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        yield process.stderr.readline().removeprefix("Listening on ").partition(";")[0]
    finally:
        process.terminate()
        process.communicate()


def photograph(url: str, target: Path) -> None:
    """Take a picture of a page in Chromium."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport=SIZE, color_scheme="light", locale="en-US")
        page.goto(url)
        page.screenshot(path=target)
        browser.close()


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "demo.svg").write_text(draw_demo(), "utf-8")
    with tempfile.TemporaryDirectory() as folder, serve_demo(Path(folder)) as url:
        photograph(f"{url}/?q={quote(QUESTION)}", IMAGES / "page.png")


if __name__ == "__main__":
    main()
