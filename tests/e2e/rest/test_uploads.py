"""A file is uploaded and imported: only by the owner, whole or not at all, with progress and a receipt."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import memorist
from e2e.imports.formats import chatgpt_chat, chatgpt_message, write_chatgpt
from memorist.client import Client
from memorist.errors import InvalidInput
from memorist.interfaces import transfer

from .conftest import ANA, asking, serving

URL = "/v1/memory/import/file"
SKIPPED = {
    "a system prompt": 1,
    "a tool call or its result": 2,
}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for uploads, which has to be empty at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen in ten seconds")


async def test_an_export_is_imported_once_and_the_receipt_counts_everything(
    ana: httpx.AsyncClient, engine: Client, tmp_path: Path, temporary: Path
) -> None:
    data = write_chatgpt(tmp_path).read_bytes()
    for new in (2, 0):
        done = await ana.post(URL, content=data, params={"name": "conversations.json"})
        report = lines(done)[-1]
        assert report["done"] is True
        assert report["formats"] == {"chatgpt": 2}
        assert report["skipped"].keys() >= SKIPPED.keys()
        assert report["new_memories"] == new
    found = await engine.scope("ana").recall("cello", min_confidence=0)
    assert "I play the cello in a quartet." in [each.text for each in found.memories]
    assert os.listdir(temporary) == []


async def test_a_dry_run_stores_nothing_and_shows_samples(
    ana: httpx.AsyncClient, engine: Client, tmp_path: Path
) -> None:
    data = write_chatgpt(tmp_path).read_bytes()
    (report,) = lines(await ana.post(URL, content=data, params={"dry_run": True}))
    assert (report["outcomes"], len(report["samples"]["chatgpt"])) == ({}, 2)
    assert (await engine.scope("ana").stats())["memories"] == 0


async def test_progress_is_told_while_an_import_goes_on(
    ana: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PROGRESS_SECONDS", 0.001)
    said = [chatgpt_message(f"m{each}", "user", f"My number {each}.") for each in range(300)]
    data = json.dumps([chatgpt_chat("c1", *said[:150]), chatgpt_chat("c2", *said[150:])]).encode()
    *progress, report = lines(await ana.post(URL, content=data))
    assert progress
    assert all(0 < each["read"] <= each["total"] == len(data) for each in progress)
    assert report["formats"] == {"chatgpt": 300}


@pytest.mark.parametrize(
    ("data", "query", "why"),
    [
        (b"", {}, "is empty"),
        (b"\x00\x01", {"name": "photo.raw"}, "Cannot tell the format of 'photo.raw'"),
        (b"[]", {"name": "../../etc/passwd"}, "Cannot tell the format of 'passwd'"),
        (b"x", {"from": "nonsense"}, "Unknown format 'nonsense'"),
        (b"x", {"name": "é" * 195 + ".json"}, "Cannot tell the format of"),
    ],
)
async def test_what_cannot_be_imported_is_refused_with_the_reason(
    ana: httpx.AsyncClient, temporary: Path, data: bytes, query: dict[str, str], why: str
) -> None:
    refused = await ana.post(URL, content=data, params=query)
    assert refused.status_code == 422
    assert why in refused.json()["detail"]
    assert os.listdir(temporary) == []


async def test_only_the_owner_imports_and_before_a_byte_is_read(engine: Client) -> None:
    async def endless() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    _, agent = await engine.create_key("agent", user="ana", rights=["read", "write"])
    for token, status in ((agent, 403), ("rk_0_0", 401)):
        async with asking(engine, token) as client:
            assert (await client.post(URL, content=endless())).status_code == status


async def test_a_file_may_be_larger_than_a_request_and_has_a_limit_of_its_own() -> None:
    limits = {"max_body_mb": 1, "max_upload_mb": 2}
    async with (
        memorist.aio.open(":memory:", embedder="none", **limits) as engine,
        asking(engine, local=ANA) as ana,
    ):
        for size, status in ((1 << 20, 422), (2 << 20, 413)):
            data = b"\x00" * (size + 1)
            assert (await ana.post(URL, content=data)).status_code == status


def test_an_upload_that_breaks_off_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    data = write_chatgpt(tmp_path).read_bytes()
    with serving(str(tmp_path / "m.db"), local=ANA) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            head = f"POST {URL} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {len(data)}"
            connection.sendall(head.encode() + b"\r\n\r\n" + data[:-1])
            wait_until(lambda: bool(list(temporary.rglob("upload"))))
        wait_until(lambda: not list(temporary.iterdir()))
        with httpx.Client(base_url=server.url) as client:
            assert client.get("/v1/memory/stats").json()["memories"] == 0
            assert client.post(URL, content=data).status_code == 200
            assert client.get("/v1/memory/stats").json()["memories"] > 0


def test_a_saved_upload_is_for_its_owner_alone(tmp_path: Path, temporary: Path) -> None:
    modes: list[int] = []

    class Mine:
        async def import_files(self, path: Path, **_: Any) -> Any:
            modes.extend(os.stat(each).st_mode & 0o777 for each in (path, path.parent))
            raise InvalidInput

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x"

    async def upload() -> None:
        async for _ in transfer.import_upload(Mine(), chunks(), "a.json"):  # type: ignore[arg-type]
            pass

    with pytest.raises(InvalidInput):
        asyncio.run(upload())
    assert modes == [0o600, 0o700]
