"""Reads the delete files that DuckDB wrote."""

from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.deletes import read_vector
from duckicelake.lake.model import LakeFile
from duckicelake.storage.parquet import read_ducklake_deletes


def read_lake_deletes(services: Services, file: LakeFile) -> dict[int, int | None]:
    """The deleted positions, each with the snapshot that deleted it; None: the one at which the file begins."""
    data = services.store.read(file.path)
    if file.file_format == "parquet":
        return read_ducklake_deletes(data, file.path)
    try:
        return dict.fromkeys(read_vector(data))
    except InvalidRequest as error:
        raise InvalidRequest(f"DuckLake's delete file {file.path} of format {file.file_format}: {error}") from error
