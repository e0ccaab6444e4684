"""Every choice a user can make: from arguments, the environment (`MEMORIST_*`) or a TOML file, in that order."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_config_path, user_data_path, user_state_path
from pydantic import AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from ..errors import Misconfigured
from . import upgrade


def _milton(name: str) -> AliasChoices:
    """The variables of a setting that Milton knows, too; ours counts more."""
    return AliasChoices(f"MEMORIST_{name}", f"MILTON_{name}")


class Settings(BaseSettings):
    """What Memorist is opened with. Each field is also an environment variable: `MEMORIST_PROFILE`, …"""

    model_config = SettingsConfigDict(
        env_prefix="MEMORIST_",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        populate_by_name=True,
    )

    db: str = Field(default_factory=lambda: str(user_data_path("memorist") / "memory.db"))
    """Where memories are kept: a file, `:memory:`, or `postgresql://…`."""
    state_dir: Path = Field(default_factory=lambda: user_state_path("memorist"))
    """Where caches and fail-safe files are kept."""
    journal_dir: Path | None = None
    """A folder for people to read: what was said each day and what is known, as Markdown; by default none."""
    tenant: str = "default"
    """Tenant of scopes that name none."""
    user: str | None = None
    """User of the command line; without it, the name you are logged in with."""
    space: str = "default"
    """Space of scopes that name none."""
    language: str = "english"
    """Language of texts in Latin script, for stemming."""
    embedder: str = Field("minilm", pattern=r"^(minilm|hashing|none|openai(:.+)?)$")
    """Which model makes vectors: `minilm`, `hashing`, `none`, or `openai:MODEL` on a server that is sent all texts."""
    embedder_url: str | None = Field(None, pattern="^https?://[^ ]+$")
    """Where that server is, if it is not OpenAI's: for instance `http://localhost:11434/v1`."""
    embedder_key: SecretStr | None = None
    """Its key; OpenAI's is also read from `OPENAI_API_KEY`."""
    embedder_dimensions: int | None = Field(None, ge=1)
    """How many numbers its model makes of a text; those of OpenAI are known."""
    cache_mb: int = Field(256, ge=0)
    """Megabytes of vectors cached on disk; 0 switches the cache off."""
    index_cache_mb: int = Field(1024, ge=1)
    """Megabytes of scopes held in the process."""
    vector_index: str | None = None
    """A vector index for recall: `chroma:FOLDER`, `chroma:http://…`, `weaviate:http://…`, or `store` for pgvector."""
    vector_index_from: int | None = Field(None, ge=0)
    """Memories of a scope from which on the index is asked, not the process; by default all, on PostgreSQL 250,000."""
    reranker: Literal["none", "maxsim", "cross-encoder"] = "none"
    """What looks closer at the best candidates, where a profile or a call asks for it."""
    cross_encoder: Path | None = None
    """Folder with a cross-encoder: `model.onnx` and `vocab.txt`."""
    llm: str = Field("none", pattern=r"^(none|(openai|anthropic):.+)$")
    """A language model that helps: `openai:MODEL`, also for Ollama, vLLM and llama.cpp, or `anthropic:MODEL`."""
    llm_url: str | None = Field(None, pattern="^https?://[^ ]+$")
    """Where it is, if not at OpenAI or Anthropic: for instance `http://localhost:11434/v1`."""
    llm_key: SecretStr | None = None
    """Its key; without `llm_url` also read from `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`."""
    llm_timeout: float = Field(20, gt=0)
    """Seconds that it has for an answer, with everything."""
    llm_daily_tokens_per_user: int = Field(200_000, ge=0)
    """Tokens that it may cost for one user on one day (UTC); then rules do its work. 0: no limit."""
    llm_daily_tokens_per_tenant: int = Field(2_000_000, ge=0)
    """The same for a tenant."""
    memory_enabled: bool = True
    """Off: nothing is taken in by itself and nothing is recalled; the person can still look, correct and forget."""
    memory_store_responses: bool = Field(False, validation_alias=_milton("MEMORY_STORE_RESPONSES"))
    """Whether the hooks of an agent keep its replies too. This and the next four also read `MILTON_…`."""
    memory_context_limit: int = Field(6, ge=0, validation_alias=_milton("MEMORY_CONTEXT_LIMIT"))
    """How many memories the hooks put before the model."""
    memory_context_max_chars: int = Field(
        2000, ge=0, validation_alias=_milton("MEMORY_CONTEXT_MAX_CHARS")
    )
    """How many characters they put before it, in whole lines."""
    memory_recency_bias: float = Field(
        0.35, ge=0, le=1, validation_alias=_milton("MEMORY_RECENCY_BIAS")
    )
    """How much being new counts in that, from 0 to 1."""
    memory_profile_limit: int = Field(5, ge=0, validation_alias=_milton("MEMORY_PROFILE_LIMIT"))
    """How many lines of the person's profile come first."""
    policy: str = "default"
    """Write policy."""
    extract: Literal["off", "rules", "model"] = "off"
    """What draws facts out of turns of a conversation, in the background: rules, or a language model within its budget,
    with the rules in its place when it is away."""
    capacity: int | None = Field(None, ge=0)
    """Memories of a user in a space before the least valuable are put away; by default as the write policy has it: 200
    for `theoria`, 80 for `clanker`, otherwise without end. 0: without end."""
    profile: str = "default"
    """Ranking profile."""
    categories: Path | None = None
    """A YAML or TOML file with the categories and which agent may read which; by default those of the documentation."""
    max_text_chars: int = Field(1_000_000, ge=1)
    """Longest text that is taken in at once."""
    max_query_chars: int = Field(10_000, ge=1)
    """Of a longer question only this much is read."""
    max_checkpoint_mb: int = Field(32, ge=1)
    """Megabytes of the largest checkpoint or item that is kept."""
    tombstone_hours: float = Field(24, ge=0)
    """How long a forgotten text is not taken in again automatically."""
    ttl_days: dict[str, float] = Field(default_factory=lambda: {"*": 60.0})
    """Days without use after which `purge` puts unimportant memories away, by category; `*`: all others; 0: never."""
    ttl_level: int = Field(3, ge=1, le=6)
    """Level of importance, 1 to 5, from which on a memory is kept whether it is used or not."""
    purge_days: float = Field(30, ge=0)
    """Days for which what was put away can be restored, before `purge` erases it."""
    retention_days: float = Field(0, ge=0)
    """Days after which `purge` erases what was summed up, for instance 180; 0 keeps it."""
    compression_threshold: int = Field(10, ge=1)
    """Sessions that are not summed up yet, beyond which `compress` sums up the oldest half as many."""
    rollup_days: float = Field(0, ge=0)
    """Days without use after which tending makes one memory of those that are about the same; 0: it does not."""
    run_jobs: bool = False
    """Whether background jobs run in this process, as `memorist jobs worker` runs them in one of its own."""
    consolidate_pairs: int = Field(50, ge=0)
    """Pairs of memories in a scope that a language model is asked about in a day, to find what is there twice."""
    reflect_hours: float = Field(24, ge=0)
    """Hours between two reflections on a person, which need a language model; 0: never."""
    log: Literal["off", "text", "json"] = "off"
    """What `serve` and `worker` write to stderr: a line for each request, verb and duty; nothing of what was said."""
    otel: bool = False
    """Whether verbs and duties are spans of OpenTelemetry, if the process exports any; needs the extra `otel`."""
    max_body_mb: int = Field(8, ge=1)
    """Megabytes of the largest request that `memorist serve` reads."""
    rate_limit: int = Field(6000, ge=0)
    """Requests that one caller of `memorist serve` may make in a minute; 0: no limit."""
    jwt_jwks: str | None = None
    """Where the public keys of those are who sign tokens for `memorist serve`: a file, or `https://…/jwks.json`."""
    jwt_issuer: str | None = None
    """Who has to have issued such a token. This and the next are needed with `jwt_jwks`."""
    jwt_audience: str | None = None
    """For whom it has to be."""
    spool: bool = True
    """Keep what is told in files while the store is away, and take it in later."""
    spool_dir: Path | None = None
    """Where those files are kept; without it, `data/memory` in `state_dir`."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = config_file()
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file)


def config_file() -> Path:
    """The TOML file that settings are read from, if it is there. Raises ValueError if one was named that is not."""
    named = os.environ.get("MEMORIST_CONFIG")
    if named and not Path(named).is_file():
        raise ValueError(f"there is no {named}")
    if named:
        return Path(named)
    return upgrade.move_config(
        user_config_path("memorist") / "memorist.toml", Settings.model_fields
    )


def load(**given: Any) -> Settings:
    """The settings in force. Raises Misconfigured, naming what is wrong.

    None stands for a setting that was not given; `vector_index=None` and `journal_dir=None` say that there is none.
    """
    none = ("vector_index", "journal_dir")
    chosen = {name: value for name, value in given.items() if value is not None or name in none}
    upgrade.warn_of_old_variables(Settings.model_fields)
    try:
        made = Settings(**chosen)
        kept = upgrade.move_data(
            db=None if "db" in made.model_fields_set else Path(made.db),
            state_dir=None if "state_dir" in made.model_fields_set else made.state_dir,
            spool_dir=made.spool_dir or made.state_dir / "data" / "memory",
        )
        return Settings(**chosen, **kept) if kept else made
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "settings"
        if first["type"] == "extra_forbidden":
            close = get_close_matches(name, Settings.model_fields, n=1)
            suggestion = f" Did you mean {close[0]!r}?" if close else ""
            raise Misconfigured(f"Unknown setting {name!r}.{suggestion}") from error
        raise Misconfigured(f"Setting {name!r}: {first['msg']}. See `memorist doctor`") from error
    except ValueError as error:  # a TOML file that cannot be read
        raise Misconfigured(f"The configuration file cannot be read: {error}") from error
