"""The keyword arguments of `memorist.open`, for editors and type checkers.

A test compares them with `Settings`, where they are documented.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict


class Options(TypedDict, total=False):
    """Settings that can be passed to `memorist.open`; see `Settings`."""

    state_dir: str | Path
    journal_dir: str | Path | None
    tenant: str
    user: str | None
    space: str
    language: str
    embedder: str
    embedder_url: str | None
    embedder_key: str | None
    embedder_dimensions: int | None
    cache_mb: int
    index_cache_mb: int
    vector_index: str | None
    vector_index_from: int | None
    reranker: Literal["none", "maxsim", "cross-encoder"]
    cross_encoder: str | Path | None
    llm: str
    llm_url: str | None
    llm_key: str | None
    llm_timeout: float
    llm_daily_tokens_per_user: int
    llm_daily_tokens_per_tenant: int
    memory_enabled: bool
    memory_store_responses: bool
    memory_context_limit: int
    memory_context_max_chars: int
    memory_recency_bias: float
    memory_profile_limit: int
    policy: str
    extract: Literal["off", "rules", "model"]
    capacity: int | None
    profile: str
    categories: str | Path | None
    max_text_chars: int
    max_query_chars: int
    max_checkpoint_mb: int
    tombstone_hours: float
    ttl_days: dict[str, float]
    ttl_level: int
    purge_days: float
    retention_days: float
    compression_threshold: int
    rollup_days: float
    run_jobs: bool
    consolidate_pairs: int
    reflect_hours: float
    log: Literal["off", "text", "json"]
    otel: bool
    max_body_mb: int
    rate_limit: int
    jwt_jwks: str | None
    jwt_issuer: str | None
    jwt_audience: str | None
    spool: bool
    spool_dir: str | Path | None
