"""What a person may configure, read once by the entry points and passed on from there.

A value comes from the first of these that names it: the command line, `DUCKICELAKE_*` in the environment,
`duckicelake.toml` in the current folder, `duckicelake.toml` in the lake's folder, the default.
"""

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
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
PIPELINE_PREFIX = "DUCKICELAKE_PIPELINE_"
"""What the pipeline reads, which is a client and may run beside the server."""
FILE_NAME = "duckicelake.toml"
_ENDPOINT = re.compile(r"https?://[^/@?#\s]+/?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/@?#\s]+/?", re.IGNORECASE)
_ANY_URI = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_WEB_URL = re.compile(r"https?://\S+", re.IGNORECASE)
_HOST = re.compile(r"\*|(\*\.)?[\w-]+(\.[\w-]+)*\.?", re.ASCII)
_USER = re.compile(r"//[^/]*@")
_POLICY = re.compile(r"(maintenance\.[a-z.-]+|history\.expire\.[a-z-]+|write\.target-file-size-bytes)=.+")
_CLOSING = frozenset(
    {
        *("require_auth", "oidc_issuer", "oidc_audience", "oidc_jwks_url", "oidc_scopes"),
        *("require_https", "tls_certificate", "tls_key"),
        *("s3_access_key_id", "s3_profile", "s3_vending", "s3_sts_endpoint", "s3_role_arn", "s3_external_id"),
        "s3_static_access_key_id",
    }
)
"""What shuts others out, beside secrets: such a setting that is there and empty is a mistake, not the open default."""
_POSTGRES_SCHEMES = ("postgres", "postgresql")


def _split_at_commas(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _check_network(text: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        message = f"trusted_proxies: {error}; write an address, or a network such as 10.0.0.0/8"
        raise ValueError(message) from error


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
    cache_max_bytes: int = Field(default=256 * 1024 * 1024, ge=0, description="about as much memory as they may take")
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console on a terminal, else json"
    )
    otlp_endpoint: str | None = Field(
        default=None, description="collector that traces go to by OTLP; none: what OTEL_EXPORTER_OTLP_ENDPOINT says"
    )
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1024, description="largest request body accepted")
    max_bodies_bytes: int = Field(
        default=512 * 1024 * 1024, ge=1024, description="request bodies in a worker's memory, all together"
    )
    rows_requests_per_second: float = Field(
        default=0, ge=0, description="batches of rows that all workers together take of a principal; 0: any number"
    )
    rows_bytes_per_second: float = Field(default=0, ge=0, description="and how many bytes of them; 0: any number")
    max_requests: int = Field(default=256, ge=1, description="requests that a worker answers at a time; more get a 429")
    max_connections: int | None = Field(
        default=None, ge=1, description="connections of clients to a worker; none: as its descriptors allow"
    )
    max_connections_each: int | None = Field(
        default=None, ge=1, description="of them, of one address; none: half of them"
    )
    event_readers: int = Field(default=5000, ge=0, description="readers of changes that wait in a worker; more get 503")
    event_readers_each: int = Field(default=1000, ge=0, description="of them, of one principal; more get a 429")
    receive_seconds: float = Field(default=60, gt=0, description="for a request's headers, and for its body, to arrive")
    keep_alive_seconds: int = Field(default=75, ge=1, description="how long idle connections stay open")
    shutdown_seconds: int = Field(default=25, ge=1, description="how long requests under way may take after SIGTERM")
    pool_size: int | None = Field(
        default=None, ge=2, le=1000, description="connections of a worker; none: 8, all workers' 80 at most"
    )
    pool_seconds: float = Field(default=10, gt=0, description="how long to wait for one of them")
    statement_seconds: float = Field(default=60, ge=0, description="most time for one SQL statement; 0: any")
    tls_certificate: Path | None = Field(default=None, description="PEM file: the certificate, then its chain")
    tls_key: Path | None = Field(default=None, description="PEM file: the certificate's key, without a passphrase")
    trusted_proxies: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        default=(), description="addresses or networks whose X-Forwarded-For and -Proto are believed"
    )
    require_https: bool = Field(default=False, description="turn away what reached a trusted proxy over http")
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        default=(), description="origins of web pages that may call the server from browsers"
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        default=(), description="names, besides its own, under which a server without logins answers"
    )

    maintenance: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        default=(), description="property=value,…: how tables are maintained that don't say otherwise"
    )

    flush_rows: int | None = Field(default=None, ge=1, description="rows in Postgres from which on a table is flushed")
    flush_bytes: int | None = Field(default=None, ge=1, description="bytes of such rows; none: for no number of them")
    flush_age: float | None = Field(default=None, gt=0, description="seconds that the oldest may be there")

    delta_sync_seconds: float = Field(
        default=0.5,
        ge=0,
        le=86_400,
        description="seconds between two looks at the Delta tables that are followed; 0: no",
    )

    lineage: Literal["on", "off"] = Field(default="on", description="make events of lineage of what changes the lake")
    lineage_catalog_uri: str | None = Field(
        default=None, description="by which engines know the catalog, and lineage its tables; none: where it listens"
    )
    lineage_literals: Literal["mask", "keep"] = Field(
        default="mask", description="whether events of lineage tell the values in SQL"
    )
    lineage_bytes_per_hour: float = Field(
        default=1024 * 1024 * 1024, ge=0, description="of events that a principal may send; 0: any number"
    )
    lineage_window: float = Field(
        default=900, gt=0, le=86_400, description="seconds for which a read may have been for a write that follows"
    )
    lineage_transports: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        default=(), description="URLs that events of lineage are sent to; none: what OPENLINEAGE_URL says"
    )
    lineage_api_keys: SecretStr | None = Field(
        default=None, description="key of the receiver that is reached by http; of several host=key,host2=key2"
    )
    lineage_kafka: SecretStr | None = Field(
        default=None, description="settings of Kafka's client: sasl.username=me,sasl.password=…"
    )
    lineage_backlog: int = Field(default=100_000, ge=1, description="events that may wait for a receiver")
    lineage_flush_seconds: float = Field(default=5, ge=0, description="for events that still wait after SIGTERM")

    oauth_clients: SecretStr | None = Field(default=None, description="who may log in: id:secret|scope scope,id2:…")
    oauth_keys: SecretStr | None = Field(
        default=None, description="kid:secret,kid2:secret2: the first signs tokens, all count; none: a random one"
    )
    oauth_token_seconds: int = Field(default=3600, ge=1, le=86400, description="for how long a token holds")
    require_auth: bool = Field(default=False, description="don't start without oauth_clients or oidc_issuer")
    metrics_public: bool = Field(default=False, description="let whoever asks read /metrics")
    oidc_issuer: str | None = Field(default=None, description="OpenID Connect provider whose tokens count, too")
    oidc_audience: str | None = Field(default=None, description="what its tokens name as their audience")
    oidc_jwks_url: str | None = Field(default=None, description="where its keys are; none: discovery tells")
    oidc_scope_claim: str = Field(default="scope", min_length=1, description="claim that says what tokens are worth")
    oidc_name_claim: str = Field(default="sub", min_length=1, description="claim that names its tokens' bearer")
    oidc_scopes: str | None = Field(default=None, description="claimvalue=scope scope,…; none: the claim holds scopes")
    oidc_leeway: int = Field(default=30, ge=0, le=600, description="seconds by which its clock may differ")

    s3_endpoint: str | None = Field(default=None, description="URL of the S3 server; none: Amazon's")
    s3_region: str | None = Field(default=None, description="region to sign for; none: the profile's, else us-east-1")
    s3_path_style: bool = Field(default=False, description="name the bucket in the path, not in the host's name")
    s3_access_key_id: str | None = Field(default=None, description="the server's own key; none: boto3 looks for one")
    s3_secret_access_key: SecretStr | None = Field(default=None, description="that key's secret")
    s3_session_token: SecretStr | None = Field(default=None, description="that key's token, if it is a temporary one")
    s3_profile: str | None = Field(default=None, description="profile of the AWS configuration files")
    s3_connect_timeout: float = Field(default=5, gt=0, description="seconds to wait for a connection to S3")
    s3_read_timeout: float = Field(default=30, gt=0, description="seconds to wait for S3 to send on")
    s3_max_attempts: int = Field(default=4, ge=1, description="tries of a request to S3 by boto3")
    s3_max_connections: int = Field(default=64, ge=1, description="connections to S3 that each worker keeps")
    s3_public_endpoint: str | None = Field(default=None, description="URL of S3 for clients; none: s3_endpoint")
    s3_vending: Literal["sts", "remote-signing", "static", "none"] | None = Field(
        default=None, description="what clients get that ask for access; none: sts if a role or an endpoint is set"
    )
    s3_sts_endpoint: str | None = Field(default=None, description="URL of STS; none: s3_endpoint, else Amazon's")
    s3_role_arn: str | None = Field(default=None, description="role whose keys clients get, narrowed down to a table")
    s3_external_id: str | None = Field(default=None, description="what that role's trust policy asks for, if anything")
    s3_vending_seconds: int = Field(default=3600, ge=900, le=43200, description="how long clients' keys are good for")
    s3_static_access_key_id: str | None = Field(default=None, description="key that clients get with s3_vending=static")
    s3_static_secret_access_key: SecretStr | None = Field(default=None, description="that key's secret")

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

    @field_validator("s3_endpoint", "s3_public_endpoint", "s3_sts_endpoint", "otlp_endpoint")
    @classmethod
    def _only_an_address(cls, value: str | None) -> str | None:
        if value is not None and not _ENDPOINT.fullmatch(value):
            message = "write https://<host> or http://<host>:<port>, without user, path or options"
            raise ValueError(message)
        return value and value.rstrip("/")

    @field_validator("lineage_catalog_uri")
    @classmethod
    def _only_a_uri(cls, value: str | None) -> str | None:
        if value is not None and not _ANY_URI.fullmatch(value):
            message = f"{value!r} is no URI: write the one that engines are given, as https://lake.example"
            raise ValueError(message)
        return value

    @field_validator("oidc_jwks_url")
    @classmethod
    def _only_an_url(cls, value: str | None) -> str | None:
        if value is not None and not _WEB_URL.fullmatch(value):
            message = f"{value!r} is no URL: write https://<host>/<path> of the provider's keys"
            raise ValueError(message)
        return value

    @field_validator("cors_origins")
    @classmethod
    def _as_browsers_say_them(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                message = f"{origin!r} is no origin: write https://<host> or http://<host>:<port>, or * for all pages"
                raise ValueError(message)
        return tuple(origin.rstrip("/").lower() for origin in value)

    @field_validator("allowed_hosts")
    @classmethod
    def _as_clients_write_them(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not _HOST.fullmatch(host) and not _is_network(host.strip("[]")):
                message = f"{host!r} is no host: write lake.example, *.example, an address or a network, without a port"
                raise ValueError(message)
        return value

    @field_validator("maintenance")
    @classmethod
    def _policies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            if not _POLICY.fullmatch(text):
                message = f"{text!r} is no policy: write <property>=<value>, as maintenance.flush.min-rows=100"
                raise ValueError(message)
        return value

    @model_validator(mode="after")
    def _somebody_known(self) -> "Settings":
        if self.require_auth and self.oauth_clients is None and self.oidc_issuer is None:
            message = (
                "require_auth is set, but nobody could log in: "
                f"set {PREFIX}OAUTH_CLIENTS, or {PREFIX}OIDC_ISSUER and {PREFIX}OIDC_AUDIENCE"
            )
            raise ValueError(message)
        if (self.oidc_issuer is None) != (self.oidc_audience is None):
            message = "oidc_issuer and oidc_audience belong together: set both or neither"
            raise ValueError(message)
        if self.oidc_issuer and self.oidc_jwks_url is None and not _WEB_URL.fullmatch(self.oidc_issuer):
            message = f"oidc_issuer {self.oidc_issuer!r} is no URL to ask for its keys: set oidc_jwks_url, too"
            raise ValueError(message)
        if self.oidc_issuer is None and (self.oidc_jwks_url is not None or self.oidc_scopes is not None):
            message = "oidc_jwks_url and oidc_scopes say something of an oidc_issuer, which isn't set"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _whole_keys(self) -> "Settings":
        if (self.s3_access_key_id is None) != (self.s3_secret_access_key is None):
            message = "s3_access_key_id and s3_secret_access_key belong together: set both or neither"
            raise ValueError(message)
        if self.s3_session_token is not None and self.s3_access_key_id is None:
            message = "s3_session_token is set without s3_access_key_id, whose token it is"
            raise ValueError(message)
        if self.s3_profile is not None and self.s3_access_key_id is not None:
            message = "s3_profile and s3_access_key_id both name a key: set one of them"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _whole_edge(self) -> "Settings":
        if (self.tls_certificate is None) != (self.tls_key is None):
            message = "tls_certificate and tls_key belong together: set both or neither"
            raise ValueError(message)
        for proxy in self.trusted_proxies:
            _check_network(proxy)
        if self.require_https and not (self.trusted_proxies or self.tls_certificate):
            message = "require_https turns everybody away: set trusted_proxies to where TLS ends, or tls_certificate"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _keys_for_clients(self) -> "Settings":
        static = (self.s3_static_access_key_id, self.s3_static_secret_access_key)
        if self.s3_vending == "static" and None in static:
            message = "s3_vending is static: set s3_static_access_key_id and s3_static_secret_access_key for clients"
            raise ValueError(message)
        if self.s3_vending != "static" and static != (None, None):
            message = "s3_static_access_key_id is for s3_vending=static: set that, if every client may have this key"
            raise ValueError(message)
        if self.s3_vending == "static" and self.s3_static_access_key_id == self.s3_access_key_id:
            message = "s3_static_access_key_id is the server's own key: make another one for clients, with fewer rights"
            raise ValueError(message)
        if self.s3_vending == "sts" and not (self.s3_role_arn or self.s3_endpoint or self.s3_sts_endpoint):
            message = "s3_vending is sts, and Amazon's STS needs a role: set s3_role_arn"
            raise ValueError(message)
        return self

    def as_environment(self) -> dict[str, str]:
        """The variables from which a worker process reads these same settings again."""
        values = self.model_dump(exclude_none=True)
        values |= {name: ",".join(value) for name, value in values.items() if isinstance(value, tuple)}
        return {PREFIX + name.upper(): _in_full(value) for name, value in values.items()}


def _in_full(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


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
        name = variable.upper()
        if name.startswith(PREFIX) and not name.startswith(PIPELINE_PREFIX) and name not in known:
            message = f"{variable} is not a setting{_nearest(name, known)}"
            raise InvalidSettings(message)
        _check_filled(variable, name.removeprefix(PREFIX).lower(), os.environ[variable])
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
        _check_filled(f"{name} in {path}", name, values[name])
    return _Source(f"{{name}} in {path}", values)


def _check_filled(spelling: str, name: str, value: object) -> None:
    """Raise InvalidSettings for an empty value by which the server would be more open than whoever wrote it meant."""
    if isinstance(value, str) and not value.strip() and (name in _CLOSING or _is_secret(name)):
        message = f"{spelling} is set, but empty: fill it in, or unset it if the server shall run without"
        raise InvalidSettings(message)


def _is_secret(name: str) -> bool:
    field = Settings.model_fields.get(name)
    return field is not None and "SecretStr" in str(field.annotation)


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
            return f"{source.spell(name)} is {_shown(name, source.values[name])}: {text}"
    return f"{name}: {text}"


def _shown(name: str, value: object) -> str:
    """The value for a message, without what is secret in it."""
    return "wrong" if _is_secret(name) else _USER.sub("//…@", repr(value))
