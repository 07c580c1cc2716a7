"""What version 3 adds to the records of manifests and manifest lists, behind the fields of version 2."""

from typing import Any, Final

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    FileFormat,
    ManifestEntry,
    ManifestFile,
)

V3: Final = 3
_MANIFEST_WIDTH: Final = len(MANIFEST_LIST_FILE_SCHEMAS[V3].fields)
_POSITIONS: Final = {field.name: position for position, field in enumerate(DATA_FILE_TYPE[V3].fields)}
_DATA_SEQUENCE_NUMBER: Final = "_data_sequence_number"


def is_v3(manifest: ManifestFile) -> bool:
    """Tell whether the record comes from a manifest list of version 3."""
    return len(manifest) == _MANIFEST_WIDTH


def manifest_first_row_id(manifest: ManifestFile) -> int | None:
    return manifest[_MANIFEST_WIDTH - 1] if is_v3(manifest) else None


def manifest_with_first_row_id(manifest: ManifestFile, first_row_id: int | None) -> ManifestFile:
    """Copy the record, because PyIceberg keeps it and a commit that fails must leave no trace in it."""
    return ManifestFile(*(manifest[position] for position in range(_MANIFEST_WIDTH - 1)), first_row_id)


def as_v3(file: DataFile) -> DataFile:
    """Copy the record at version 3's width, what a reader noted beside its fields included."""
    values = [file[position] for position in range(len(file))]
    copy = DataFile(*values, *[None] * (len(_POSITIONS) - len(values)))
    vars(copy).update(vars(file))
    return copy


def with_file(entry: ManifestEntry, file: DataFile) -> ManifestEntry:
    return ManifestEntry(*(entry[position] for position in range(len(entry) - 1)), file)


def first_row_id(file: DataFile) -> int | None:
    value: int | None = _get(file, "first_row_id")
    return value


def with_first_row_id(file: DataFile, value: int | None) -> DataFile:
    copy = as_v3(file)
    copy[_POSITIONS["first_row_id"]] = value
    return copy


def data_sequence_number(file: DataFile) -> int | None:
    """The sequence number of the file's manifest entry, if that was read by `note_data_sequence_number`'s caller."""
    number: int | None = vars(file).get(_DATA_SEQUENCE_NUMBER)
    return number


def note_data_sequence_number(file: DataFile, number: int | None) -> None:
    """Keep it with the file, as PyIceberg keeps the spec id: a scan hands out files without their entries."""
    vars(file)[_DATA_SEQUENCE_NUMBER] = number


def vector_of(file: DataFile) -> str | None:
    """The data file whose deletion vector this is, None if it is something else."""
    path: str | None = _get(file, "referenced_data_file") if file.file_format == FileFormat.PUFFIN else None
    return path


def sized_by_content(vector: DataFile) -> DataFile:
    """A deletion vector that weighs what it takes of its Puffin file, as Iceberg's summaries count it."""
    copy = as_v3(vector)
    copy[_POSITIONS["file_size_in_bytes"]] = _get(vector, "content_size_in_bytes")
    return copy


def _get(file: DataFile, name: str) -> Any:
    return file[_POSITIONS[name]] if len(file) == len(_POSITIONS) else None
