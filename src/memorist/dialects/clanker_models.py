"""Which models a clanker bot asks for, by its own names for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..embedders.openai import MODEL

VARIABLE = "DEFAULT_MEMORY_EMBEDDING_MODEL"


def embedding_model(
    settings: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> str:
    """The embedding model of a bot: what its settings name, else what the environment does, else the usual one.

    A setting that is blank counts as none. It goes behind `openai:` in the setting `embedder`.

    >>> embedding_model({"memory": {"embeddingModel": "text-embedding-3-large"}}, {VARIABLE: "other"})
    'text-embedding-3-large'
    >>> embedding_model({"memory": {"embeddingModel": ""}}, {VARIABLE: "other"}), embedding_model({}, {})
    ('other', 'text-embedding-3-small')
    """
    memory = settings.get("memory")
    named = memory.get("embeddingModel") if isinstance(memory, Mapping) else None
    chosen = (each.strip() for each in (named, environment.get(VARIABLE)) if isinstance(each, str))
    return next(filter(None, chosen), MODEL)
