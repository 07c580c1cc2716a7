"""What a person may configure, read once by the entry points and passed on from there.

A value comes from the first of these that names it: the command line, `DUCKICELAKE_*` in the environment,
`duckicelake.toml` in the current folder, `duckicelake.toml` in the lake's folder, the default.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings.exceptions import SettingsError

from duckicelake.errors import InvalidSettings

PREFIX = "DUCKICELAKE_"
FILE_NAME = "duckicelake.toml"
_POSTGRES_SCHEMES = ("postgres", "postgresql")


def _split_at_commas(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


class Settings(BaseSettings):
    """All settings of one server. Constructing it reads nothing; `read_settings` does."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid")

    lake: Path = Field(default=Path("lake"), description="folder of the embedded lake: its Postgres and its warehouse")
    database_url: str | None = Field(default=None, description="Postgres 15 or newer; none: an embedded one")
    warehouse: str | None = Field(default=None, description="where files go, for example file:///data/warehouse")
    allowed_locations: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        default=(), description="comma-separated prefixes that tables may be given besides the warehouse"
    )
    snapshot_ids: Literal["client", "ducklake"] = Field(default="client", description="who numbers Iceberg snapshots")
    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8181, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    workers: int = Field(default=1, ge=1, le=256, description="processes that answer requests")
    cache_max: int = Field(default=1024, ge=0, description="tables kept in memory by each worker")
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console on a terminal, else json"
    )
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1024, description="largest request body accepted")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is passed counts: `read_settings` merges the sources itself, to name them in its errors."""
        return (init_settings,)

    @model_validator(mode="after")
    def _no_contradictions(self) -> "Settings":
        if self.database_url is None:
            return self
        if self.warehouse is None:
            message = (
                "database_url is set but warehouse is not: files of a database of your own need a place of their own. "
                f"Set {PREFIX}WAREHOUSE, for example to file:///data/warehouse, or unset database_url "
                "to use the embedded Postgres"
            )
            raise ValueError(message)
        scheme, separator, _ = self.database_url.partition("://")
        if separator and scheme not in _POSTGRES_SCHEMES:
            message = f"database_url must be a Postgres URL, postgresql://user@host:5432/name, not {scheme}://…"
            raise ValueError(message)
        return self

    def as_environment(self) -> dict[str, str]:
        """The variables from which a worker process reads these same settings again."""
        values = self.model_dump(exclude_none=True)
        values["allowed_locations"] = ",".join(self.allowed_locations)
        return {PREFIX + name.upper(): str(value) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class _Source:
    """One place that settings were read from; `spelling` shows how a setting is written there."""

    spelling: str
    values: Mapping[str, object]

    def spell(self, name: str) -> str:
        return self.spelling.format(name=name, upper=name.upper(), dashed=name.replace("_", "-"))


def read_settings(flags: Mapping[str, object] | None = None, folder: Path | None = None) -> Settings:
    """The settings that hold for a process started in `folder` with the command-line `flags` (None: not given).

    Raises InvalidSettings, naming what is wrong, where it was set, and the nearest right name or value.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    sources = [_Source("--{dashed}", given), _environment(), _file((folder or Path.cwd()) / FILE_NAME)]
    lake = _first(sources, "lake", Settings().lake)
    sources.append(_lake_file(Path(str(lake)), folder or Path.cwd()))
    merged = {name: value for source in reversed(sources) for name, value in source.values.items()}
    try:
        return Settings.model_validate(merged)
    except ValidationError as invalid:
        raise InvalidSettings(_explain(invalid, sources)) from invalid


def _first(sources: list[_Source], name: str, default: object) -> object:
    return next((source.values[name] for source in sources if name in source.values), default)


def _environment() -> _Source:
    source = _Source(PREFIX + "{upper}", {})
    known = {source.spell(name) for name in Settings.model_fields}
    for variable in sorted(os.environ):
        if variable.upper().startswith(PREFIX) and variable.upper() not in known:
            message = f"{variable} is not a setting{_nearest(variable.upper(), known)}"
            raise InvalidSettings(message)
    try:
        return _Source(source.spelling, EnvSettingsSource(Settings)())
    except SettingsError as broken:
        raise InvalidSettings(str(broken)) from broken


def _file(path: Path) -> _Source:
    try:
        values = TomlConfigSettingsSource(Settings, path)() if path.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as broken:
        message = f"{path} can't be read: {broken}"
        raise InvalidSettings(message) from broken
    known = set(Settings.model_fields)
    for name in values:
        if name not in known:
            message = f"{name} in {path} is not a setting{_nearest(name, known)}"
            raise InvalidSettings(message)
    return _Source(f"{{name}} in {path}", values)


def _lake_file(lake: Path, folder: Path) -> _Source:
    path = folder / lake / FILE_NAME
    source = _file(path)
    named = source.values.get("lake")
    if named is not None and (folder / str(named)).resolve() != (folder / lake).resolve():
        message = f"lake in {path} names {named}, but the file lies in the lake {lake}: remove that line"
        raise InvalidSettings(message)
    return _Source(source.spelling, {name: value for name, value in source.values.items() if name != "lake"})


def _nearest(name: str, known: set[str]) -> str:
    matches = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]}?" if matches else f"; the settings are {', '.join(sorted(known))}"


def _explain(invalid: ValidationError, sources: list[_Source]) -> str:
    return "; ".join(_explain_one(error["loc"], error["msg"], sources) for error in invalid.errors())


def _explain_one(location: tuple[int | str, ...], message: str, sources: list[_Source]) -> str:
    text = message.removeprefix("Value error, ")
    if not location:
        return text
    name = str(location[0])
    for source in sources:
        if name in source.values:
            return f"{source.spell(name)} is {source.values[name]!r}: {text}"
    return f"{name}: {text}"
