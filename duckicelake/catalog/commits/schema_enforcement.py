"""Schema enforcement: what a commit adds must have the table's columns.

What metrics say is looked at always; footers are where the table asks for it, as that costs a read of each file.
"""

from collections.abc import Sequence

import duckdb

from duckicelake.bridge.file_schema import StoredColumn, check_required, is_strict, problems
from duckicelake.bridge.increments import Increment
from duckicelake.catalog.access.confinement import check_readable
from duckicelake.catalog.services import Services
from duckicelake.errors import FileMissing, InvalidRequest
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.additions import NewFile
from duckicelake.storage.local_copies import local_copies
from duckicelake.storage.parquet_fields import read_fields
from duckicelake.storage.parquet_footer import check_footer


def check_schema_of_files(services: Services, target: TableMetadata, increments: Sequence[Increment]) -> None:
    """InvalidRequest naming file and column for one that doesn't fit the table's schema."""
    strict = is_strict(target.properties)
    files = [file for each in increments for file in each.side.files if file.content == FileContent.DATA]
    if not files:
        return
    check_required(files, target.schema())
    for file in files if strict else ():
        _check_footer(services, target, file)


def _check_footer(services: Services, target: TableMetadata, file: NewFile) -> None:
    check_readable(services, file.path, target.location)
    try:
        columns = _columns(services, file.path)
    except FileMissing:
        raise InvalidRequest(f"{file.path} does not exist: upload it before committing") from None
    except duckdb.Error as error:
        raise InvalidRequest(f"{file.path} can't be read as Parquet: {error}") from error
    found = list(problems(target.schema(), columns))
    if found:
        raise InvalidRequest(f"{file.path} doesn't fit the table: {'; '.join(found)}. Nothing was written")


def _columns(services: Services, location: str) -> list[StoredColumn]:
    """The columns of a file outside of lists and maps."""
    with local_copies(services.store, [location]) as paths:
        if not paths[location].exists():
            raise FileMissing(f"{location} does not exist")
        check_footer(paths[location], location)
        with duckdb.connect(config={"threads": 1}) as connection:
            found = read_fields(connection, paths[location]).fields
    return [StoredColumn(field.names, field.field_id, field.type) for field in found]
