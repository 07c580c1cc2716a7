"""The settings of a server: names, types, defaults and descriptions, and the checks of their values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from duckicelake.settings.combinations import check_combinations
from duckicelake.settings.forms import (
    ENDPOINT_PATTERN,
    PREFIX,
    URI_PATTERN,
    WEB_URL_PATTERN,
    CommaSeparated,
    check_address,
    check_host,
    check_origin,
    check_policy,
    reveal,
)


class Settings(BaseSettings):
    """All settings of one server. Constructing it reads nothing; `read_settings` does."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid")
    _sources: Mapping[str, str] = PrivateAttr(default_factory=dict)

    lake: Path = Field(default=Path("lake"), description="folder of the embedded lake: its Postgres and its warehouse")
    database_url: str | None = Field(default=None, description="Postgres 15 or newer; none: an embedded Postgres")
    warehouse: str | None = Field(
        default=None, description="URI of the folder for files, for example file:///data/warehouse"
    )
    allowed_locations: CommaSeparated = Field(
        default=(), description="comma-separated prefixes of locations that tables may have besides the warehouse"
    )
    warehouse_roots: CommaSeparated = Field(
        default=(),
        description="comma-separated folders for further warehouses; none: `warehouses` of an embedded lake, else none",
    )
    open_warehouses: int = Field(
        default=8, ge=1, le=1000, description="max further warehouses that each worker has open at a time"
    )
    warehouse_idle_seconds: float = Field(
        default=300, gt=0, description="seconds without a request after which a further warehouse is closed"
    )
    snapshot_ids: Literal["client", "ducklake"] = Field(
        default="client", description="which ids Iceberg snapshots get: the client's, or DuckLake's"
    )
    trino_catalog: str | None = Field(
        default=None,
        min_length=1,
        description="name of the lake's catalog in Trino, for views of DuckDB's; none: they get no SQL of Trino's",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8181, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    workers: int = Field(default=1, ge=1, le=256, description="processes that answer requests")
    cache_max: int = Field(default=1024, ge=0, description="max tables that each worker keeps in memory")
    cache_max_bytes: int = Field(default=256 * 1024 * 1024, ge=0, description="approximate max bytes of these tables")
    scan_cache_max_bytes: int = Field(
        default=256 * 1024 * 1024, ge=0, description="max bytes of what each worker keeps to plan scans by"
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console on a terminal, else json"
    )
    otlp_endpoint: str | None = Field(
        default=None, description="URL of the OTLP collector of traces; none: OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1024, description="max bytes of a request body")
    max_bodies_bytes: int = Field(
        default=512 * 1024 * 1024, ge=1024, description="max bytes of all request bodies in a worker's memory"
    )
    rows_requests_per_second: float = Field(
        default=0, ge=0, description="max batches of rows per second and principal, of all workers; 0: unlimited"
    )
    rows_bytes_per_second: float = Field(
        default=0, ge=0, description="max bytes of posted rows per second and principal; 0: unlimited"
    )
    max_requests: int = Field(
        default=256, ge=1, description="max requests that a worker answers at a time; others get a 429"
    )
    max_connections: int | None = Field(
        default=None, ge=1, description="max client connections of a worker; none: as its file descriptors allow"
    )
    max_connections_each: int | None = Field(
        default=None, ge=1, description="max client connections of one address; none: half of max_connections"
    )
    event_readers: int = Field(
        default=5000, ge=0, description="max readers of changes that wait in a worker; others get a 503"
    )
    event_readers_each: int = Field(
        default=1000, ge=0, description="max waiting readers of one principal; others get a 429"
    )
    receive_seconds: float = Field(
        default=60, gt=0, description="max seconds until a request's headers, and its body, have arrived"
    )
    keep_alive_seconds: int = Field(default=75, ge=1, description="seconds that idle connections stay open")
    drain_seconds: float = Field(
        default=0, ge=0, description="seconds after SIGTERM in which /readyz answers 503 and all else is served"
    )
    shutdown_seconds: int = Field(default=25, ge=1, description="max seconds of requests under way after SIGTERM")
    pool_size: int | None = Field(
        default=None, ge=2, le=1000, description="Postgres connections of a worker; none: 8, at most 80 for all workers"
    )
    pool_seconds: float = Field(default=10, gt=0, description="max seconds to wait for a Postgres connection")
    statement_seconds: float = Field(default=60, ge=0, description="max seconds of one SQL statement; 0: unlimited")
    tls_certificate: Path | None = Field(default=None, description="PEM file: the certificate, then its chain")
    tls_key: Path | None = Field(default=None, description="PEM file: the certificate's key, without a passphrase")
    trusted_proxies: CommaSeparated = Field(
        default=(), description="addresses or networks whose X-Forwarded-For and X-Forwarded-Proto are trusted"
    )
    require_https: bool = Field(default=False, description="refuse requests that reached a trusted proxy over http")
    cors_origins: CommaSeparated = Field(
        default=(), description="origins of web pages that may call the server from browsers"
    )
    allowed_hosts: CommaSeparated = Field(
        default=(), description="host names, besides its own, that a server without logins answers to"
    )
    secret_keys: SecretStr | None = Field(
        default=None,
        description="kid:secret,kid2:secret2: the first key encrypts keys of storage profiles, all keys decrypt them",
    )
    ambient_profiles: bool = Field(
        default=False, description="let storage profiles use the server's own credentials for S3"
    )
    allowed_addresses: CommaSeparated = Field(
        default=(),
        description="addresses, networks and hosts beside public ones that URLs given by callers may lead to",
    )

    maintenance: CommaSeparated = Field(
        default=(), description="property=value,…: maintenance policy of tables without one of their own"
    )

    flush_rows: int | None = Field(
        default=None, ge=1, description="flush a table at this many rows in Postgres; none: never by rows"
    )
    flush_bytes: int | None = Field(
        default=None, ge=1, description="flush a table at this many bytes of rows in Postgres; none: never by bytes"
    )
    flush_age: float | None = Field(
        default=None, gt=0, description="flush a table when its oldest row in Postgres has this age in seconds"
    )

    drop_retention_seconds: float | None = Field(
        default=None,
        ge=0,
        le=3650 * 86_400,
        description="seconds that dropped tables, views and namespaces can be brought back; none: as the lake has it",
    )

    delta_sync_seconds: float = Field(
        default=0.5,
        ge=0,
        le=86_400,
        description="seconds between two looks at followed Delta tables, by all together; 0: this server looks at none",
    )

    query_processes: int = Field(default=2, ge=0, description="queries over HTTP that run at once; 0: none")
    query_memory_bytes: int = Field(default=1024**3, ge=64 * 1024**2, description="memory of a query")
    query_disk_bytes: int = Field(default=4 * 1024**3, ge=0, description="temporary disk of a query")
    query_seconds: float = Field(default=60.0, gt=0, description="max seconds of a query")
    query_rows: int = Field(default=1_000_000, ge=1, description="max rows that a query answers")

    upkeep_workers: int = Field(
        default=1, ge=0, le=64, description="processes that do tasks of upkeep while there are some; 0: none"
    )
    upkeep_tasks: int = Field(default=2, ge=1, description="tasks of upkeep of one warehouse at once, by all workers")
    upkeep_seconds: float = Field(default=30.0, gt=0, description="min seconds between two plans of upkeep of a lake")
    upkeep_share: float = Field(
        default=0.1,
        ge=0.01,
        le=1,
        description="share of the cores that DuckDB takes beside writers; 1: it never rests",
    )
    upkeep_memory_bytes: int = Field(default=1024**3, ge=128 * 1024**2, description="memory of a task of upkeep")
    upkeep_disk_bytes: int = Field(default=16 * 1024**3, ge=0, description="temporary disk of a task of upkeep")

    duckdb_login_url: str | None = Field(
        default=None, description="URL of Postgres as DuckDB's users reach it, without a user; turns their logins on"
    )
    duckdb_login_seconds: float = Field(
        default=3600, ge=60, le=86_400, description="seconds that a login for DuckDB lasts"
    )

    lineage: Literal["on", "off"] = Field(default="on", description="whether to make lineage events of changes")
    lineage_catalog_uri: str | None = Field(
        default=None,
        description="URI of the catalog as engines are given it, for names in lineage; none: where the server listens",
    )
    lineage_literals: Literal["mask", "keep"] = Field(
        default="mask", description="whether lineage events show literals of SQL"
    )
    lineage_bytes_per_hour: float = Field(
        default=1024 * 1024 * 1024, ge=0, description="max bytes of lineage events per hour and principal; 0: unlimited"
    )
    lineage_window: float = Field(
        default=900, gt=0, le=86_400, description="seconds after a read in which a write may be based on it"
    )
    lineage_transports: CommaSeparated = Field(
        default=(), description="URLs that lineage events are sent to; none: OPENLINEAGE_URL"
    )
    lineage_api_keys: SecretStr | None = Field(
        default=None, description="API key of the HTTP receiver; for several: host=key,host2=key2"
    )
    lineage_kafka: SecretStr | None = Field(
        default=None, description="settings of the Kafka client: sasl.username=me,sasl.password=…"
    )
    lineage_backlog: int = Field(default=100_000, ge=1, description="max events that wait for a receiver")
    lineage_flush_seconds: float = Field(
        default=5, ge=0, description="max seconds to send waiting events after SIGTERM"
    )

    oauth_clients: SecretStr | None = Field(
        default=None, description="clients that may log in: id:secret|scope scope,id2:…"
    )
    oauth_keys: SecretStr | None = Field(
        default=None,
        description="kid:secret,kid2:secret2: the first key signs tokens, all keys verify them; none: a random key",
    )
    oauth_token_seconds: int = Field(default=3600, ge=1, le=86400, description="seconds that a token is valid")
    own_token_seconds: int = Field(
        default=30 * 86_400, ge=1, le=3650 * 86_400, description="seconds that a principal's own new token is valid"
    )
    own_token_max_seconds: int = Field(
        default=365 * 86_400,
        ge=0,
        le=3650 * 86_400,
        description="max seconds that a principal may ask for its own new token; 0: principals make none",
    )
    require_auth: bool = Field(default=False, description="refuse to start without clients or issuers")
    database_logins: bool = Field(
        default=False, description="require logins though no client is in the settings: principals are in the database"
    )
    bootstrap_admin: Path | None = Field(
        default=None, description="new file for the secret of the first admin, who is made where no client can log in"
    )
    metrics_public: bool = Field(default=False, description="serve /metrics without a login")
    oidc_issuer: str | None = Field(default=None, description="OpenID Connect provider whose tokens are accepted, too")
    oidc_audience: str | None = Field(default=None, description="audience that the provider's tokens must name")
    oidc_jwks_url: str | None = Field(
        default=None, description="URL of the provider's keys; none: from its discovery document"
    )
    oidc_scope_claim: str = Field(default="scope", min_length=1, description="claim that holds the scopes")
    oidc_name_claim: str = Field(default="sub", min_length=1, description="claim that names the principal")
    oidc_scopes: str | None = Field(default=None, description="claimvalue=scope scope,…; none: the claim holds scopes")
    oidc_group_claim: str | None = Field(default=None, description="claim whose values are names of groups; none: no")
    oidc_web_clients: str | None = Field(
        default=None, description="issuer=client_id scope scope,…: where readers of the console log in; none: nowhere"
    )
    oidc_leeway: int = Field(default=30, ge=0, le=600, description="seconds by which the provider's clock may differ")

    opa_url: str | None = Field(
        default=None, description="URL of an OPA rule that is asked after scopes and grants have allowed; none: no rule"
    )
    opa_token: SecretStr | None = Field(default=None, description="Bearer token for OPA")
    opa_seconds: float = Field(default=2, gt=0, le=60, description="max seconds to wait for OPA; then 503")
    opa_cache_seconds: float = Field(default=5, ge=0.1, le=3600, description="seconds that a decision of OPA is kept")
    opa_cache_max: int = Field(default=10_000, ge=1000, description="max decisions of OPA that each worker keeps")

    s3_endpoint: str | None = Field(default=None, description="URL of the S3 server; none: Amazon's")
    s3_region: str | None = Field(default=None, description="region to sign for; none: the profile's, else us-east-1")
    s3_path_style: bool = Field(default=False, description="put the bucket into the path, not into the host name")
    s3_access_key_id: str | None = Field(default=None, description="the server's own key; none: as boto3 finds one")
    s3_secret_access_key: SecretStr | None = Field(default=None, description="that key's secret")
    s3_session_token: SecretStr | None = Field(default=None, description="that key's token, if it is a temporary one")
    s3_profile: str | None = Field(default=None, description="profile of the AWS configuration files")
    s3_connect_timeout: float = Field(default=5, gt=0, description="seconds to wait for a connection to S3")
    s3_read_timeout: float = Field(default=30, gt=0, description="seconds to wait for S3 to send on")
    s3_max_attempts: int = Field(default=4, ge=1, description="max attempts of a request to S3")
    s3_max_connections: int = Field(default=64, ge=1, description="connections to S3 that each worker keeps")
    s3_public_endpoint: str | None = Field(default=None, description="URL of S3 for clients; none: s3_endpoint")
    s3_vending: Literal["sts", "remote-signing", "static", "none"] | None = Field(
        default=None, description="how clients get access to files; none: sts if a role or an endpoint is set"
    )
    s3_sts_endpoint: str | None = Field(default=None, description="URL of STS; none: s3_endpoint, else Amazon's")
    s3_role_arn: str | None = Field(default=None, description="role whose keys clients get, limited to one table")
    s3_external_id: str | None = Field(
        default=None, description="external id that the role's trust policy requires, if any"
    )
    s3_vending_seconds: int = Field(default=3600, ge=900, le=43200, description="seconds that clients' keys are valid")
    s3_sse: Literal["s3", "kms", "dsse-kms"] | None = Field(
        default=None, description="encryption that is asked for with each file; none: as the bucket says"
    )
    s3_kms_key: str | None = Field(
        default=None, description="ARN of the KMS key, which clients' keys may use, too; none: no key"
    )
    s3_bucket_key: bool | None = Field(
        default=None, description="ask for a key of the bucket, which spares calls of KMS; none: as the bucket says"
    )
    s3_requester_pays: bool = Field(
        default=False, description="accept the costs of requests to buckets whose owner doesn't"
    )
    s3_static_access_key_id: str | None = Field(default=None, description="key that clients get with s3_vending=static")
    s3_static_secret_access_key: SecretStr | None = Field(default=None, description="that key's secret")

    gcs_endpoint: str | None = Field(default=None, description="URL of Google Cloud Storage; none: Google's")
    gcs_public_endpoint: str | None = Field(default=None, description="the same for clients; none: gcs_endpoint")
    gcs_sts_endpoint: str | None = Field(default=None, description="URL of Google's token services; none: Google's")
    gcs_key_file: Path | None = Field(
        default=None, description="JSON file with a service account's key; none: the machine's service account"
    )
    gcs_vending: Literal["downscoped", "none"] | None = Field(
        default=None, description="how clients get access to files; none: downscoped, unless only an endpoint is set"
    )

    azure_endpoint: str | None = Field(default=None, description="URL of the account's blobs; none: Azure's")
    azure_public_endpoint: str | None = Field(default=None, description="the same for clients; none: azure_endpoint")
    azure_sts_endpoint: str | None = Field(default=None, description="URL of Microsoft Entra; none: the public cloud's")
    azure_account_key: SecretStr | None = Field(default=None, description="key of the storage account")
    azure_tenant_id: str | None = Field(default=None, description="tenant of the application with the server's rights")
    azure_client_id: str | None = Field(
        default=None, description="id of that application; none, without an account's key: the machine's identity"
    )
    azure_client_secret: SecretStr | None = Field(default=None, description="that application's secret")
    azure_token_file: Path | None = Field(default=None, description="file with its token, which Kubernetes renews")
    azure_vending: Literal["directory", "container", "none"] | None = Field(
        default=None, description="what clients' signatures reach; none: a table's directory, in Gen2 accounts only"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the values passed: `read_settings` merges the sources itself, to name them in its errors."""
        return (init_settings,)

    @field_validator(
        *("s3_endpoint", "s3_public_endpoint", "s3_sts_endpoint", "otlp_endpoint"),
        *("gcs_endpoint", "gcs_public_endpoint", "gcs_sts_endpoint", "azure_sts_endpoint"),
    )
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        if value is not None and not ENDPOINT_PATTERN.fullmatch(value):
            message = "expected https://<host> or http://<host>:<port>, without user, path or query"
            raise ValueError(message)
        return value and value.rstrip("/")

    @field_validator("lineage_catalog_uri")
    @classmethod
    def _check_uri(cls, value: str | None) -> str | None:
        if value is not None and not URI_PATTERN.fullmatch(value):
            message = f"Invalid URI {value!r}: expected the catalog's URI as engines are given it, such as https://lake.example"
            raise ValueError(message)
        return value

    @field_validator("oidc_jwks_url", "opa_url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None and not WEB_URL_PATTERN.fullmatch(value):
            message = f"Invalid URL {value!r}: expected https://<host>/<path>"
            raise ValueError(message)
        return value

    @field_validator("cors_origins")
    @classmethod
    def _normalize_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            check_origin(origin)
        return tuple(origin.rstrip("/").lower() for origin in value)

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            check_host(host)
        return value

    @field_validator("allowed_addresses")
    @classmethod
    def _check_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            check_address(text)
        return value

    @field_validator("maintenance")
    @classmethod
    def _check_policies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            check_policy(text)
        return value

    @model_validator(mode="after")
    def _check_combinations(self) -> "Settings":
        check_combinations(self)
        return self

    @property
    def has_logins(self) -> bool:
        """Return whether clients must log in."""
        names_callers = self.oauth_clients is not None or self.oidc_issuer is not None
        return names_callers or self.database_logins or self.bootstrap_admin is not None

    @property
    def sources(self) -> Mapping[str, str]:
        """How and where each setting was set, by name; those at their defaults aren't in it."""
        return self._sources

    def with_sources(self, sources: Mapping[str, str]) -> Self:
        """Note how and where each setting was set."""
        self._sources = sources
        return self

    def as_environment(self) -> dict[str, str]:
        """Return the environment variables from which a worker process reads the same settings."""
        values = self.model_dump(exclude_none=True)
        values |= {name: ",".join(value) for name, value in values.items() if isinstance(value, tuple)}
        return {PREFIX + name.upper(): reveal(value) for name, value in values.items()}
