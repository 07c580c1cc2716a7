"""The settings of a server: their names, types, defaults and descriptions, and which contradict one another."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

PREFIX = "DUCKICELAKE_"
_ENDPOINT_PATTERN = re.compile(r"https?://[^/@?#\s]+/?")
_ORIGIN_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*://[^/@?#\s]+/?", re.IGNORECASE)
_URI_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_WEB_URL_PATTERN = re.compile(r"https?://\S+", re.IGNORECASE)
_HOST_PATTERN = re.compile(r"\*|(\*\.)?[\w-]+(\.[\w-]+)*\.?", re.ASCII)
_POLICY_PATTERN = re.compile(r"(maintenance\.[a-z.-]+|history\.expire\.[a-z-]+|write\.target-file-size-bytes)=.+")
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
        if value is not None and not _ENDPOINT_PATTERN.fullmatch(value):
            message = "write https://<host> or http://<host>:<port>, without user, path or options"
            raise ValueError(message)
        return value and value.rstrip("/")

    @field_validator("lineage_catalog_uri")
    @classmethod
    def _only_a_uri(cls, value: str | None) -> str | None:
        if value is not None and not _URI_PATTERN.fullmatch(value):
            message = f"{value!r} is no URI: write the one that engines are given, as https://lake.example"
            raise ValueError(message)
        return value

    @field_validator("oidc_jwks_url")
    @classmethod
    def _only_an_url(cls, value: str | None) -> str | None:
        if value is not None and not _WEB_URL_PATTERN.fullmatch(value):
            message = f"{value!r} is no URL: write https://<host>/<path> of the provider's keys"
            raise ValueError(message)
        return value

    @field_validator("cors_origins")
    @classmethod
    def _as_browsers_say_them(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not _ORIGIN_PATTERN.fullmatch(origin):
                message = f"{origin!r} is no origin: write https://<host> or http://<host>:<port>, or * for all pages"
                raise ValueError(message)
        return tuple(origin.rstrip("/").lower() for origin in value)

    @field_validator("allowed_hosts")
    @classmethod
    def _as_clients_write_them(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not _HOST_PATTERN.fullmatch(host) and not _is_network(host.strip("[]")):
                message = f"{host!r} is no host: write lake.example, *.example, an address or a network, without a port"
                raise ValueError(message)
        return value

    @field_validator("maintenance")
    @classmethod
    def _policies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            if not _POLICY_PATTERN.fullmatch(text):
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
        if self.oidc_issuer and self.oidc_jwks_url is None and not _WEB_URL_PATTERN.fullmatch(self.oidc_issuer):
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
        return {PREFIX + name.upper(): _reveal(value) for name, value in values.items()}


def _reveal(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
