"""The settings: from arguments, the environment (`MEMORIST_*`) or a TOML file, in that order."""

from __future__ import annotations

import os
from collections.abc import Callable
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from platformdirs import user_config_path, user_data_path, user_state_path
from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    SecretStr,
    ValidationError,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from ..errors import Misconfigured
from ..ports import Embedder, EntityDetector, LanguageModel, Reranker
from ..providers import list_plugins
from ..text import wording
from ..types import Memory
from . import upgrade

AtLeastOne = Annotated[int, Field(ge=1)]
Url = Annotated[str, Field(pattern="^https?://[^ ]+$")]


# The names of our own models, by setting.
MODELS = {
    "embedder": ("minilm", "hashing", "none", "openai", "openai:MODEL"),
    "reranker": ("none", "maxsim", "cross-encoder"),
    "llm": ("none", "openai:MODEL", "anthropic:MODEL"),
    "entities": ("rules",),
}


def _milton(name: str) -> AliasChoices:
    """Return both variables of a setting; ours takes precedence."""
    return AliasChoices(f"MEMORIST_{name}", f"MILTON_{name}")


def _model(setting: str) -> AfterValidator:
    """Return a check that a name is one of ours or that of an installed plug-in."""
    names = MODELS[setting]

    def check(value: str) -> str:
        kind, _, rest = value.partition(":")
        if value in names or (rest and f"{kind}:MODEL" in names) or kind in list_plugins(setting):
            return value
        listed = ", ".join([*names, *sorted(list_plugins(setting))])
        raise ValueError(f"there is no {value!r}; choose one of {listed}, or install a plug-in")

    return AfterValidator(check)


class Settings(BaseSettings):
    """All settings. Each one is also an environment variable, such as `MEMORIST_PROFILE`."""

    model_config = SettingsConfigDict(
        env_prefix="MEMORIST_",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        populate_by_name=True,
    )

    db: str = Field(default_factory=lambda: str(user_data_path("memorist") / "memory.db"))
    """Database: a file, `:memory:`, or `postgresql://…`. For the command line and hooks also the
    address of a server: `https://…`."""
    key: SecretStr | None = None
    """API key of the server that `db` names."""
    state_dir: Path = Field(default_factory=lambda: user_state_path("memorist"))
    """Folder for caches and spooled writes."""
    journal_dir: Path | None = None
    """Folder for a Markdown journal of each day and a snapshot of what is known; none by
    default."""
    tenant: str = "default"
    """Default tenant of a scope."""
    user: str | None = None
    """User of the command line; by default your login name."""
    space: str = "default"
    """Default space of a scope."""
    language: str = "english"
    """Language for stemming texts in Latin script whose language cannot be detected."""
    embedder: Annotated[str, _model("embedder")] = "minilm"
    """Embedding model: `minilm`, `hashing`, `none`, or `openai:MODEL` (texts are sent to the
    server); `openai` alone is the model of `DEFAULT_MEMORY_EMBEDDING_MODEL`. `open` takes your own
    model here and for `reranker`, `llm` and `entities`: an object, a function, or the name of an
    installed plug-in."""
    multilingual: bool = True
    """Whether the packaged multilingual model is used beside `minilm`, to find memories in other
    languages."""
    verifier: bool = True
    """Whether the packaged verifier is used beside `minilm`: it reads the question together with the
    best memories of an uncertain answer, and leaves out what only looks like an answer."""
    embedder_url: Url | None = None
    """Base URL of an OpenAI-compatible server, for example `http://localhost:11434/v1`."""
    embedder_key: SecretStr | None = None
    """API key of the embedding server; OpenAI's is also read from `OPENAI_API_KEY`."""
    embedder_dimensions: AtLeastOne | None = None
    """Vector size of the model; known for OpenAI's models."""
    cache_mb: NonNegativeInt = 256
    """Size of the embedding cache on disk in MB; 0 turns it off."""
    index_cache_mb: AtLeastOne = 1024
    """Memory for the in-process indexes of scopes, in MB."""
    vector_index: str | None = None
    """External vector index: `chroma:FOLDER`, `chroma:http://…`, `weaviate:http://…`, or `store`
    (pgvector). Also read from `MILTON_MEMORY_BACKEND=weaviate` and `WEAVIATE_URL`."""
    vector_index_from: NonNegativeInt | None = None
    """Number of memories in a scope from which the vector index is used; default: always, with
    pgvector 250,000."""
    reranker: Annotated[str, _model("reranker")] = "none"
    """Model that re-ranks the best candidates, where a profile or a call asks for it."""
    cross_encoder: Path | None = None
    """Folder of a cross-encoder with `model.onnx` and `vocab.txt`."""
    llm: Annotated[str, _model("llm")] = "none"
    """Language model: `openai:MODEL` (also Ollama, vLLM, llama.cpp) or `anthropic:MODEL`."""
    llm_url: Url | None = None
    """Base URL of the language model, for example `http://localhost:11434/v1`."""
    llm_key: SecretStr | None = None
    """API key; without `llm_url` also read from `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`."""
    llm_timeout: PositiveFloat = 20
    """Timeout of one answer in seconds, retries included."""
    llm_daily_tokens_per_user: NonNegativeInt = 200_000
    """Tokens the language model may use per user and day (UTC); then rules take over. 0: no
    limit."""
    llm_daily_tokens_per_tenant: NonNegativeInt = 2_000_000
    """Tokens per tenant and day."""
    entities: Annotated[str, _model("entities")] = "rules"
    """How names of people, places and things are found in a text, for tags and importance."""
    memory_enabled: bool = True
    """If off, nothing is stored automatically and nothing is recalled; viewing, editing and
    forgetting still work."""
    memory_store_responses: bool = Field(False, validation_alias=_milton("MEMORY_STORE_RESPONSES"))
    """Whether agent hooks also store the agent's replies. This and the next four also read
    `MILTON_…`."""
    memory_context_limit: NonNegativeInt = Field(
        6, validation_alias=_milton("MEMORY_CONTEXT_LIMIT")
    )
    """Number of memories that hooks add to the prompt, pinned ones and lines of the profile
    included."""
    memory_context_max_chars: NonNegativeInt = Field(
        2000, validation_alias=_milton("MEMORY_CONTEXT_MAX_CHARS")
    )
    """Maximum length of that context, in whole lines."""
    memory_recency_bias: float = Field(
        0.35, ge=0, le=1, validation_alias=_milton("MEMORY_RECENCY_BIAS")
    )
    """Weight of recency in that context, from 0 to 1."""
    memory_profile_limit: NonNegativeInt = Field(
        5, validation_alias=_milton("MEMORY_PROFILE_LIMIT")
    )
    """Number of lines of the long-term profile that come first."""
    policy: str = "default"
    """Write policy."""
    extract: Literal["off", "rules", "model"] = "rules"
    """How facts are extracted from conversation turns in the background: by rules, or also by a
    language model within its budget."""
    capacity: NonNegativeInt | None = None
    """Maximum number of memories per user and space; beyond it the least valuable are hidden.
    Default: that of the write policy; 0: no limit."""
    profile: str = "default"
    """Ranking profile."""
    categories: Path | None = None
    """YAML or TOML file with categories and agent allowlists; by default the documented ones."""
    max_text_chars: AtLeastOne = 1_000_000
    """Maximum length of one text."""
    max_query_chars: AtLeastOne = 10_000
    """Maximum length of a question; the rest is ignored."""
    max_checkpoint_mb: AtLeastOne = 32
    """Maximum size of one checkpoint or item in MB."""
    tombstone_hours: NonNegativeFloat = 24
    """How long a forgotten text is not stored again automatically."""
    ttl_days: dict[str, float] = Field(default_factory=lambda: {"*": 60.0})
    """Days without use after which `purge` hides unimportant memories, by category; `*`: all
    others; 0: never."""
    ttl_level: int = Field(3, ge=1, le=6)
    """Importance level (1 to 5) from which memories never expire."""
    purge_days: NonNegativeFloat = 30
    """Days for which a hidden memory can be restored before `purge` erases it."""
    retention_days: NonNegativeFloat = 0
    """Days after which `purge` erases the originals of summaries, for example 180; 0: never."""
    compression_threshold: AtLeastOne = 10
    """Number of unsummarized sessions from which `compress` summarizes the oldest half."""
    rollup_days: NonNegativeFloat = 0
    """Days without use after which a job merges memories on one topic, or half the days after which
    they would expire, if that is earlier; 0: off."""
    run_jobs: bool = False
    """Whether background jobs run in this process. `memorist jobs worker` runs them in a separate
    one."""
    consolidate_pairs: NonNegativeInt = 50
    """Memory pairs per user and day, in all spaces, for which a language model is asked whether
    they say the same."""
    reflect_hours: NonNegativeFloat = 24
    """Hours between two reflections on a person (needs a language model); 0: never."""
    log: Literal["off", "text", "json"] = "off"
    """Log of `serve` and `worker` on stderr: one line per request, verb and job, without any
    text."""
    otel: bool = False
    """Whether verbs and jobs are OpenTelemetry spans; needs the extra `otel`."""
    max_body_mb: AtLeastOne = 8
    """Maximum size of a request to `memorist serve` in MB."""
    max_upload_mb: AtLeastOne = 2048
    """Maximum size of a file that is uploaded to `memorist serve` to be imported, in MB."""
    rate_limit: NonNegativeInt = 6000
    """Requests per minute and caller of `memorist serve`; 0: no limit."""
    jwt_jwks: str | None = None
    """JWKS file or URL used to verify tokens."""
    jwt_issuer: str | None = None
    """Required issuer of a token. This and the audience are required with `jwt_jwks`."""
    jwt_audience: str | None = None
    """Required audience of a token."""
    spool: bool = True
    """Write to spool files while the database is unavailable, and store them later."""
    spool_dir: Path | None = None
    """Folder of the spool files; default: `data/memory` in `state_dir`."""

    def days_kept(self, memory: Memory) -> float:
        """Return for how many days a memory is kept without being used; 0: forever."""
        if memory.importance_level >= self.ttl_level:
            return 0
        others = self.ttl_days.get("*", 0)
        return self.ttl_days.get((memory.category or "").lower(), others)

    @cached_property
    def spool_folder(self) -> Path:
        """Folder of the spool files of this database."""
        folder = self.spool_dir or self.state_dir / "data" / "memory"
        return folder / upgrade.spool_name(self.db)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        milton = InitSettingsSource(settings_cls, _milton_backend())
        file = TomlConfigSettingsSource(settings_cls, config_file())
        return init_settings, env_settings, milton, file


def _milton_backend() -> dict[str, Any]:
    """Return the vector index that MILTON_MEMORY_BACKEND and WEAVIATE_URL name. Raises
    Misconfigured.
    """
    match os.environ.get("MILTON_MEMORY_BACKEND", "").lower():
        case "":
            return {}
        case "jsonl":  # items wait in files only while the database is down
            return {"vector_index": None}
        case "weaviate":
            url = os.environ.get("WEAVIATE_URL") or "http://localhost:8080"
            return {"vector_index": f"weaviate:{url}"}
        case other:
            raise Misconfigured(
                f"MILTON_MEMORY_BACKEND is {other!r}: use weaviate (at WEAVIATE_URL) or jsonl"
            )


def config_file() -> Path:
    """Return the TOML file with settings.

    Raises ValueError if the file that MEMORIST_CONFIG names does not exist.
    """
    named = os.environ.get("MEMORIST_CONFIG")
    if named and not Path(named).is_file():
        raise ValueError(f"{named} does not exist")
    if named:
        return Path(named)
    return upgrade.move_config(
        user_config_path("memorist") / "memorist.toml", Settings.model_fields
    )


def suggest(name: str) -> str:
    """Return " Did you mean …?" for a misspelled setting; empty if none is similar.

    >>> suggest("embeder")
    " Did you mean 'embedder'?"
    """
    found = get_close_matches(name, Settings.model_fields, n=1)
    return f" Did you mean {found[0]!r}?" if found else ""


def load(**given: Any) -> Settings:
    """Return the effective settings. Raises Misconfigured, naming the setting that is wrong.

    None means "not given", except for `vector_index` and `journal_dir`, where it means "none".
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
            raise Misconfigured(f"There is no setting {name!r}.{suggest(name)}") from error
        why = wording.explain(first)
        why = why[:1].lower() + why[1:]
        raise Misconfigured(f"Setting {name!r}: {why}. See `memorist doctor`") from error
    except ValueError as error:  # a TOML file that cannot be read
        raise Misconfigured(f"The configuration file cannot be read: {error}") from error


class Options(TypedDict, total=False):
    """The keyword arguments of `memorist.open`, for editors and type checkers; see `Settings`."""

    key: str | None
    state_dir: str | Path
    journal_dir: str | Path | None
    tenant: str
    user: str | None
    space: str
    language: str
    embedder: str | Embedder | Callable[..., Any]
    multilingual: bool
    verifier: bool
    embedder_url: str | None
    embedder_key: str | None
    embedder_dimensions: int | None
    cache_mb: int
    index_cache_mb: int
    vector_index: str | None
    vector_index_from: int | None
    reranker: str | Reranker | Callable[..., Any]
    cross_encoder: str | Path | None
    llm: str | LanguageModel | Callable[..., Any]
    llm_url: str | None
    llm_key: str | None
    llm_timeout: float
    llm_daily_tokens_per_user: int
    llm_daily_tokens_per_tenant: int
    entities: str | EntityDetector | Callable[..., Any]
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
    max_upload_mb: int
    rate_limit: int
    jwt_jwks: str | None
    jwt_issuer: str | None
    jwt_audience: str | None
    spool: bool
    spool_dir: str | Path | None
