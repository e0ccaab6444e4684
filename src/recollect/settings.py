"""Every choice a user can make: from arguments, the environment (`RECOLLECT_*`) or a TOML file, in that order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_config_path, user_data_path, user_state_path
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from .errors import Misconfigured


class Settings(BaseSettings):
    """What Recollect is opened with. Each field is also an environment variable: `RECOLLECT_PROFILE`, …"""

    model_config = SettingsConfigDict(
        env_prefix="RECOLLECT_", extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    db: str = Field(default_factory=lambda: str(user_data_path("recollect") / "memory.db"))
    """Where memories are kept: a file, `:memory:`, or `postgresql://…`."""
    state_dir: Path = Field(default_factory=lambda: user_state_path("recollect"))
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
    embedder: Literal["minilm", "hashing", "none"] = "minilm"
    """Which model makes vectors."""
    cache_mb: int = Field(256, ge=0)
    """Megabytes of vectors cached on disk; 0 switches the cache off."""
    corpus_mb: int = Field(1024, ge=1)
    """Megabytes of scopes held in the process."""
    index: str | None = None
    """A vector index for recall: `chroma:FOLDER`, `chroma:http://…`, `weaviate:http://…`, or `store` for pgvector."""
    index_from: int | None = Field(None, ge=0)
    """Memories of a scope from which on the index is asked, not the process; by default all, on PostgreSQL 250,000."""
    reranker: Literal["none", "maxsim", "cross-encoder"] = "none"
    """What looks closer at the best candidates, where a profile or a call asks for it."""
    cross_encoder: Path | None = None
    """Folder with a cross-encoder: `model.onnx` and `vocab.txt`."""
    memory_enabled: bool = True
    """Off: nothing is taken in by itself and nothing is recalled; the person can still look, correct and forget."""
    policy: str = "default"
    """Write policy."""
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
    failsafe: bool = True
    """Keep what is told in files while the store is away, and take it in later."""
    failsafe_dir: Path | None = None
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
    named = os.environ.get("RECOLLECT_CONFIG")
    if named and not Path(named).is_file():
        raise ValueError(f"there is no {named}")
    return Path(named) if named else user_config_path("recollect") / "recollect.toml"


def load(**given: Any) -> Settings:
    """The settings in force. Raises Misconfigured, naming what is wrong."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "settings"
        raise Misconfigured(f"Setting {name!r}: {first['msg']}. See `recollect doctor`") from error
    except ValueError as error:  # a TOML file that cannot be read
        raise Misconfigured(f"The configuration file cannot be read: {error}") from error
