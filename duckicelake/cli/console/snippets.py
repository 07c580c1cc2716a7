"""Lines to paste into Spark, PyIceberg and DuckDB."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from duckicelake.lake.ducklake.database import quote_literal
from duckicelake.settings.model import Settings
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.s3_requests import DEFAULT_REGION

ICEBERG_VERSION = "1.12.0"
_CREDENTIAL = "<id>:<secret>"
_SPARK_PACKAGE = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_VERSION}"


def build_spark_snippet(uri: str, *, with_login: bool = False) -> str:
    login = f"""\
  --conf spark.sql.catalog.lake.credential={_CREDENTIAL} \\
  --conf spark.sql.catalog.lake.oauth2-server-uri={_build_token_uri(uri)} \\
"""
    return f"""\
spark-sql --packages {_SPARK_PACKAGE} \\
  --conf spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions \\
  --conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog \\
  --conf spark.sql.catalog.lake.type=rest \\
  --conf spark.sql.catalog.lake.uri={uri} \\
{login if with_login else ""}\
  --conf spark.sql.catalog.lake.cache-enabled=false \\
  --conf spark.sql.defaultCatalog=lake"""


def build_pyiceberg_snippet(uri: str, *, with_login: bool = False) -> str:
    login = f""",
    **{{"credential": "{_CREDENTIAL}", "oauth2-server-uri": "{_build_token_uri(uri)}"}}"""
    return f"""\
from pyiceberg.catalog import load_catalog
catalog = load_catalog("lake", type="rest", uri="{uri}"{login if with_login else ""})"""


def build_duckdb_snippet(attach_source: str, secret: str = "") -> str:
    quoted = attach_source.replace("'", "''")
    reaching = "azure" if "TYPE azure" in secret else "httpfs"
    extensions = ("ducklake", "postgres", *((reaching,) if secret else ()))
    lines = ("; ".join(f"INSTALL {name}" for name in extensions), secret, f"ATTACH '{quoted}' AS lake")
    return "\n".join(f"{line};" for line in lines if line)


def build_duckdb_secret(location: str, endpoint: str | None, region: str, path_style: bool) -> str:
    """Build DuckDB's secret for the files in S3; the user puts keys in the place of those in angle brackets."""
    parts = {"TYPE": "s3", "KEY_ID": "'<key>'", "SECRET": "'<secret>'", "REGION": f"'{region}'"}
    if endpoint is not None:
        address = urlsplit(endpoint)
        parts |= {"ENDPOINT": f"'{address.netloc}'", "USE_SSL": str(address.scheme == "https").lower()}
    if path_style:
        parts |= {"URL_STYLE": "'path'"}
    scheme, _, path = location.partition("://")
    parts |= {"SCOPE": f"'{scheme}://{path.partition('/')[0]}'"}
    return f"CREATE SECRET ({', '.join(f'{name} {value}' for name, value in parts.items())})"


def build_login_hint(uri: str) -> str:
    """Build a hint for Iceberg's clients that must log in."""
    return f"Clients must log in: give them credential={_CREDENTIAL} and oauth2-server-uri={_build_token_uri(uri)}"


def _build_token_uri(uri: str) -> str:
    return f"{uri}/v1/oauth/tokens"


def _list_s3_options(settings: Settings) -> Iterator[str]:
    if settings.s3_sse in {"kms", "dsse-kms"} and settings.s3_kms_key is not None:
        yield f"KMS_KEY_ID {quote_literal(settings.s3_kms_key)}"
    if settings.s3_requester_pays:
        yield "REQUESTER_PAYS true"


def build_lake_secret(settings: Settings, data_path: str) -> str:
    """Build the statement by which DuckDB reads the files; empty if they are local."""
    scheme = canonicalize(data_path).partition("://")[0]
    if scheme == "s3":
        endpoint, region = settings.s3_public_endpoint or settings.s3_endpoint, settings.s3_region or DEFAULT_REGION
        secret = build_duckdb_secret(data_path, endpoint, region, settings.s3_path_style)
        return secret.removesuffix(")") + "".join(f", {option}" for option in _list_s3_options(settings)) + ")"
    scope = quote_literal("/".join(data_path.split("/")[:3]))
    if scheme == "gs":
        return f"CREATE SECRET (TYPE gcs, KEY_ID '<key>', SECRET '<secret>', SCOPE {scope})"
    if scheme == "abfss":
        return f"CREATE SECRET (TYPE azure, CONNECTION_STRING '<connection string>', SCOPE {scope})"
    return ""
