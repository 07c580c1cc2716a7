"""PURE. What is said of columns that were found out of text, before their rows are loaded."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyspark.sql.types import StringType, StructType

_ADVICE: Final = (
    "  If a column is string because of what stands for NULL, name that before you load: --option nullValue=NA. "
    "Or give the columns: --schema 'id long, x double'"
)


def found_lines(schemas: Iterable[StructType], known: StructType | None) -> Iterator[str]:
    """Lines that show the columns which the table doesn't have yet, with their types; none if it has them all.

    A column is text as soon as one of its values is no number: `NA` for example.
    """
    names = set() if known is None else {name.lower() for name in known.names}
    new = {
        field.name: field.dataType for schema in schemas for field in schema.fields if field.name.lower() not in names
    }
    if not new:
        return
    yield f"columns found: {', '.join(f'{name} {type_.simpleString()}' for name, type_ in new.items())}"
    texts: Sequence[str] = [name for name, type_ in new.items() if isinstance(type_, StringType)]
    if texts:
        yield _ADVICE
