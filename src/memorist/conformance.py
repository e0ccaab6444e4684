"""Check a model of your own before a memory uses it.

    from memorist import conformance
    conformance.check("embedder", my_embedder)  # or llm, reranker, entities

The model is an object with the method of the port, a function, or the name of an installed plug-in,
as for `memorist.open`. On the command line: `python -m memorist.conformance embedder package:name`.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from .errors import MemoristError
from .llms import find_problems
from .settings.custom import (
    CustomCall,
    CustomDetector,
    CustomEmbedder,
    CustomLanguageModel,
    CustomReranker,
    find_call,
)
from .text.prompts import Prompt, object_schema

TEA = "I drink green tea every morning."
ASKED = "Who drinks green tea in the morning?"
MARKET = "The stock market fell by nine percent."
NAMES = "Yesterday Anna Weber moved to Lisbon."
ODD = ["", " ", "東京 🍵", "a\x00b", "tea " * 3_000]
NEAR = 0.999  # cosine of two vectors of the same text
LONGEST_STALL = 1.0  # seconds
TIMEOUT = 60.0  # seconds for one answer of a language model
ASK = Prompt(
    task="extract",
    system="Say in which city the person lives.",
    user="Ana has lived in Porto since May.",
    schema=object_schema(city={"type": "string"}),
    max_tokens=100,
)


async def check_embedder(call: CustomCall) -> None:
    """Check that vectors are valid, the same each time, and nearer for what is more alike."""
    model = await CustomEmbedder.open(call)
    again = await CustomEmbedder.open(call)
    assert (model.model, model.dimensions) == (again.model, again.dimensions), (
        f"The model was {model.model!r} and then {again.model!r}: its name may not change"
    )
    together = await model.encode_batch([TEA, ASKED, MARKET])
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-3), (
        "A vector is all zeros: each text needs a direction"
    )
    (alone,) = await model.encode_batch([TEA])
    assert alone @ together[0] > NEAR, "The vector of a text depends on the other texts of the call"
    near, far = together[0] @ together[1], together[0] @ together[2]
    assert near > far, (
        f"{TEA!r} is not nearer to {ASKED!r} ({near:.2f}) than to {MARKET!r} ({far:.2f})"
    )
    for text in ODD:
        await model.encode_batch([text])


async def check_reranker(call: CustomCall) -> None:
    """Check that scores are from 0 to 1, the same each time, and higher for the answer."""
    model = CustomReranker(call)
    scores = await model.score(ASKED, [MARKET, TEA])
    assert scores[1] > scores[0], (
        f"For {ASKED!r}, {TEA!r} has to get a higher score than {MARKET!r}"
    )
    again = await model.score(ASKED, [TEA, MARKET])
    assert np.allclose(again, scores[::-1], atol=1e-3), (
        "The score of a text depends on the order of the texts"
    )
    await model.score(ASKED, ODD)


async def check_llm(call: CustomCall) -> None:
    """Check that an answer fits the schema of the prompt, and reports what it cost."""
    answer = await CustomLanguageModel(call, TIMEOUT).answer(ASK)
    problem = next(find_problems(answer.value, ASK.schema), "")
    assert not problem, f"The answer does not fit the schema: {problem}"
    assert answer.tokens_in >= 0, "The input tokens of the answer are negative"
    assert answer.tokens_out >= 0, "The output tokens of the answer are negative"


async def check_entities(call: CustomCall) -> None:
    """Check that names are found as they are written in the text."""
    model = CustomDetector(call)
    with_names, _ = await model.detect([NAMES, ""])
    found = [entity.text for entity in with_names]
    assert any("Lisbon" in name for name in found), f"'Lisbon' was not found in {NAMES!r}: {found}"
    for name in found:
        assert name in NAMES, f"{name!r} is not written like that in {NAMES!r}"
    await model.detect(ODD)


CHECKS: dict[str, Callable[[CustomCall], Awaitable[None]]] = {
    "embedder": check_embedder,
    "reranker": check_reranker,
    "llm": check_llm,
    "entities": check_entities,
}


async def acheck(setting: str, given: Any) -> None:
    """Check a model; see `check`."""
    assert setting in CHECKS, f"Unknown setting {setting!r}: choose one of {', '.join(CHECKS)}"
    try:
        call = find_call(setting, given)
        assert call is not None, f"{given!r} is a packaged model, which needs no check"
        try:
            async with _watch_loop(call):
                await CHECKS[setting](call)
        finally:
            await call.close()
    except MemoristError as error:
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        raise AssertionError(f"{error}{cause}") from error


def check(setting: str, given: Any) -> None:
    """Check that a model can be used for a setting: embedder, llm, reranker or entities.

    Raises AssertionError with a sentence that says what is wrong.

    >>> check("entities", lambda text: [word for word in text.split() if word == "Lisbon."])
    """
    asyncio.run(acheck(setting, given))


@asynccontextmanager
async def _watch_loop(call: CustomCall) -> AsyncIterator[None]:
    """Raise AssertionError if the event loop stood still meanwhile."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            start = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - start)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)  # it starts
    try:
        yield
        await asyncio.sleep(0.02)  # it notices
    finally:
        ticking.cancel()
    assert longest < LONGEST_STALL, (
        f"{call.name} blocked the event loop for {longest:.1f} s: use a plain function, which runs"
        " in a thread, or await"
    )


def main(arguments: list[str]) -> None:
    """Check what the command line names, and say whether it can be used."""
    if len(arguments) != 2:
        raise SystemExit("usage: python -m memorist.conformance SETTING PACKAGE.MODULE:NAME")
    setting, named = arguments
    module, _, attribute = named.partition(":")
    given: Any = named
    try:
        if attribute:
            given = getattr(importlib.import_module(module), attribute)
            given = given() if isinstance(given, type) else given
        check(setting, given)
    except (AssertionError, ImportError, AttributeError) as error:
        raise SystemExit(f"{named} cannot be used for {setting!r}: {error}") from None
    print(f"{named} can be used for {setting!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
