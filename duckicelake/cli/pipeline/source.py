"""The options that say which other catalog is meant, and how DuckDB gets to the lake."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from duckicelake.pipeline.launching import ICEBERG_AWS
from duckicelake.pipeline.pairs import pairs

_HELP = "The other catalog: <key>=<value> of Iceberg's catalog properties, as type=rest and uri=…; repeated for each."
Source = Annotated[list[str], typer.Option(help=_HELP)]
OptionalSource = Annotated[list[str] | None, typer.Option(help=_HELP)]
Attach = Annotated[
    str | None,
    typer.Option(
        help="The lake for DuckDB: what `duckicelake info` prints for ATTACH.", envvar="DUCKICELAKE_PIPELINE_ATTACH"
    ),
]


def properties_of(source: Sequence[str] | None) -> dict[str, str]:
    """The properties that were given; BadInput."""
    return pairs("--source", source, "type=rest --source uri=http://…")


def packages_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """What Spark needs besides for such a catalog: Amazon's, for Glue and for files in S3."""
    amazon = properties.get("type") == "glue" or any(
        value.startswith(("s3://", "s3a://")) for value in properties.values()
    )
    return (ICEBERG_AWS,) if amazon else ()
