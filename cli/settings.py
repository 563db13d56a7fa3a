"""The one settings object. Order: command line, environment (``TOKENFUSE_…``), the settings file, defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from cli.settings_sources import DiscoverySetting, PrometheusSetting
from core.currencies import require_currency
from core.errors import BadInput
from core.scopes import require_path_part
from core.vendor_book import SOURCES
from core.windows import zone as require_zone

SETTINGS_FILE = Path("tokenfuse.toml")


class TargetSetting(BaseModel):
    """One engine to scrape, and the GPUs it is paid for; or (``kind``) a node's GPU exporter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    gpu: str = ""
    count: int = 0
    node: str = ""
    cluster: str = "default"
    namespace: str = "default"
    model_id: str = ""
    kind: Literal["engine", "gpu"] = "engine"


class Settings(BaseSettings):
    """Everything that can be set. Each field is documented in ``tokenfuse.example.toml`` (a test checks it)."""

    model_config = SettingsConfigDict(env_prefix="TOKENFUSE_", frozen=True, extra="forbid", env_nested_delimiter="__")

    data_dir: Path = Path("data")
    db_url: SecretStr | None = None
    organisation: str = "default"
    zone: str = "UTC"
    currency: str = "USD"

    bind_host: str = "127.0.0.1"
    api_port: Annotated[int, Field(ge=1, le=65535)] = 8700
    ui_port: Annotated[int, Field(ge=1, le=65535)] = 8701
    flink_port: Annotated[int, Field(ge=1, le=65535)] = 8702
    demo_port: Annotated[int, Field(ge=1, le=65535)] = 8703
    tls_cert: Path | None = None
    tls_key: Path | None = None

    targets: tuple[TargetSetting, ...] = ()
    scrape_interval_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    prometheus: tuple[PrometheusSetting, ...] = ()
    discovery: tuple[DiscoverySetting, ...] = ()

    litellm_url: str = ""
    litellm_key: SecretStr | None = None
    litellm_db_url: SecretStr | None = None
    fleet_kubeconfig: str = ""
    fleet_kube_context: str = ""
    fleet_ec2: bool = False
    fleet_aws_endpoint_url: str = ""
    default_cluster: str = "default"
    default_namespace: str = "default"
    node_tags: tuple[str, ...] = ()

    segment_age_ms: Annotated[int, Field(ge=10, le=60_000)] = 250
    segment_mb: Annotated[int, Field(ge=1, le=1024)] = 64
    min_free_mb: Annotated[int, Field(ge=1)] = 1024
    dedupe_horizon_days: Annotated[int, Field(ge=1, le=90)] = 7
    archive_retention_days: Annotated[int, Field(ge=1)] = 400
    delta_retention_days: Annotated[int, Field(ge=1)] = 35

    stream_parallelism: Annotated[int, Field(ge=1, le=64)] = 2
    checkpoint_ms: Annotated[int, Field(ge=100, le=600_000)] = 1000
    epoch_hours: Annotated[int, Field(ge=1, le=168)] = 24

    aws_tag_prefix: str = "tokenfuse:"

    ledger_grace_minutes: Annotated[int, Field(ge=0, le=1440)] = 15
    default_rates: bool = True
    vendor_price_order: tuple[str, ...] = SOURCES
    blast_limit_percent: Annotated[int, Field(ge=1, le=100)] = 50
    policy_ttl_minutes: Annotated[int, Field(ge=1, le=1440)] = 15
    guard_on_expiry: Literal["open", "closed"] = "open"

    webhook_url: str = ""
    webhook_secret: SecretStr | None = None
    webhook_allow_private: bool = False

    max_body_mb: Annotated[int, Field(ge=1, le=1024)] = 32
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("organisation")
    @classmethod
    def _one_part_of_a_path(cls, value: str) -> str:
        try:
            return require_path_part(value, "organisation")
        except BadInput as error:
            raise ValueError(f"{error.message}: {error.hint}") from error

    @field_validator("currency")
    @classmethod
    def _currency_in_use(cls, value: str) -> str:
        try:
            return require_currency(value)
        except BadInput as error:
            raise ValueError(f"{error.message}: {error.hint}") from error

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            require_zone(value)
        except BadInput as error:
            raise ValueError(error.message) from error
        return value

    @property
    def api_url(self) -> str:
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://{self.bind_host}:{self.api_port}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=settings_file())


def settings_file() -> Path:
    """The file named by TOKENFUSE_SETTINGS, else ``tokenfuse.toml`` here (it may be absent)."""
    return Path(os.environ.get("TOKENFUSE_SETTINGS", SETTINGS_FILE))


def load(**given: Any) -> Settings:
    """Read the settings; ``given`` (command-line values) win. Raises BadInput naming the field and where it came from."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        hint = f"set it in {settings_file()} or as TOKENFUSE_{name.split('.')[0].upper()}"
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message, hint = "there is no such setting", "tokenfuse.example.toml lists them all"
        raise BadInput(message, where=str(settings_file()), field=name, value=first.get("input"), hint=hint) from error
    except ValueError as error:  # unreadable TOML
        raise BadInput(
            f"cannot be read: {error}", where=str(settings_file()), hint="compare with tokenfuse.example.toml"
        ) from error
