"""Write what the server can be asked, as OpenAPI 3.1, to docs/openapi.json; `--check` says whether it is up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import memorist
from memorist.interfaces.rest.app import create_app

TARGET = Path(__file__).parent.parent / "docs" / "openapi.json"


async def _described() -> str:
    async with memorist.aio.open(":memory:", embedder="none") as memory:
        return json.dumps(create_app(memory).openapi(), indent=1, ensure_ascii=False) + "\n"


def described() -> str:
    """The document as it should be."""
    import asyncio

    return asyncio.run(_described())


if __name__ == "__main__":
    new = described()
    if "--check" in sys.argv:
        sys.exit(
            0
            if TARGET.read_text("utf-8") == new
            else "docs/openapi.json is old: run tools/openapi.py"
        )
    TARGET.write_text(new, "utf-8")
