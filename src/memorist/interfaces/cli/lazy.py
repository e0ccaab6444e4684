"""Modules that are slow to import: loaded on first use, so that `memorist --help` is fast."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "bootstrap": "memorist.bootstrap",
    "chart": "memorist.evals.chart",
    "evals": "memorist.evals",
    "job_worker": "memorist.jobs.worker",
    "hnsw": "memorist.storage.postgres.hnsw",
    "hooks": "memorist.interfaces.hooks",
    "mcp_install": "memorist.interfaces.mcp.install",
    "mcp_server": "memorist.interfaces.mcp.server",
    "validation": "memorist.ingest.validation",
    "milton": "memorist.dialects.milton",
    "minilm": "memorist.embedders.minilm",
    "postgres_migrate": "memorist.storage.postgres.migrate",
    "rest_app": "memorist.interfaces.rest.app",
    "rest_auth": "memorist.interfaces.rest.auth",
    "settings": "memorist.settings",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(_MODULES[name])
