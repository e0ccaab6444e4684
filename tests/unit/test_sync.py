"""The blocking doors have the names, signatures and docstrings of the async ones."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from memorist import aio, sync
from memorist.aio import open_client
from memorist.client import Client
from memorist.manage.checkpoints import Checkpoints
from memorist.manage.privacy import Consent, Privacy
from memorist.scoped import ScopedClient

PAIRS = (
    (Client, sync.Blocking),
    (ScopedClient, sync.BlockingScope),
    (Checkpoints, sync.BlockingCheckpoints),
    (Privacy, sync.BlockingPrivacy),
    (Consent, sync.BlockingConsent),
)


def verbs(source: type) -> list[str]:
    return [
        name
        for name, _ in inspect.getmembers(source, inspect.isfunction)
        if not name.startswith("_")
    ]


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(
    ("source", "target", "verb"),
    [(a, b, verb) for a, b in PAIRS for verb in verbs(a)],
    ids=lambda each: str(each),
)
def test_each_verb_takes_the_same_whether_it_waits_or_blocks(
    source: type, target: type, verb: str
) -> None:
    waits, blocks = getattr(source, verb), getattr(target, verb)
    assert parameters(waits) == parameters(blocks)
    assert not inspect.iscoroutinefunction(blocks)
    assert blocks.__doc__


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda each: each.__name__)
def test_there_is_no_blocking_verb_of_its_own(source: type, target: type) -> None:
    assert set(verbs(target)) == set(verbs(source)), (
        "open is a class method, so it is not among them"
    )


def test_opening_takes_the_same_whether_it_waits_or_blocks() -> None:
    assert parameters(aio.open) == parameters(open_client) == parameters(sync.Blocking.open)
