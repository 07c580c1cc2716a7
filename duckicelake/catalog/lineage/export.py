"""A graph of lineage as a file for other programs."""

from typing import Final

from duckicelake.catalog.access.principal import Principal
from duckicelake.catalog.lineage import graph as lineage
from duckicelake.catalog.lineage.graph import Question
from duckicelake.errors import NotFound
from duckicelake.lake.postgres.database import Database
from duckicelake.lineage import export as drawing
from duckicelake.lineage.export import MEDIA_TYPES, Format
from duckicelake.lineage.facet_schemas import facet_schema

__all__ = ["MEDIA_TYPES", "Format", "export", "schema_of"]

_DRAWN: Final = {"dot": drawing.dot, "mermaid": drawing.mermaid}


def export(database: Database, reader: Principal, question: Question, format_: Format) -> bytes:
    """What is seen from a node, drawn, or as the events of the runs behind it."""
    found = lineage.graph(database, reader, question)
    if format_ == "ndjson":
        return drawing.ndjson(lineage.events(database, reader, found, question.at))
    return _DRAWN[format_](found).encode()


def schema_of(facet: str) -> bytes:
    """The JSON schema of a facet that is ours; NotFound."""
    found = facet_schema(facet)
    if found is None:
        raise NotFound(f"This catalog has no facet {facet!r}")
    return found
