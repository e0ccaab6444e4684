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
    """Where memories are kept: a file, or `:memory:`."""
    state_dir: Path = Field(default_factory=lambda: user_state_path("recollect"))
    """Where caches are kept."""
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
    reranker: Literal["none", "maxsim", "cross-encoder"] = "none"
    """What looks closer at the best candidates, where a profile or a call asks for it."""
    cross_encoder: Path | None = None
    """Folder with a cross-encoder: `model.onnx` and `vocab.txt`."""
    policy: str = "default"
    """Write policy."""
    profile: str = "default"
    """Ranking profile."""
    max_text_chars: int = Field(1_000_000, ge=1)
    """Longest text that is taken in at once."""
    max_query_chars: int = Field(10_000, ge=1)
    """Of a longer question only this much is read."""
    tombstone_hours: float = Field(24, ge=0)
    """How long a forgotten text is not taken in again automatically."""

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
