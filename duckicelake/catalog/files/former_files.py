"""Data files that DuckLake had before: where it found them, and what it called their columns, needn't be found anew.

It may have a copy or a link in the place of Iceberg's file, which can lie where the server itself may not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from duckicelake.bridge.increments import LakeCopy
from duckicelake.bridge.realise import AnyFile
from duckicelake.catalog.services import Services
from duckicelake.lake import clones, native
from duckicelake.lake.clones import LakeFile
from duckicelake.lake.model import NameMap
from duckicelake.storage.policy import canonical


@dataclass(frozen=True, slots=True)
class FormerFiles:
    """Copies and maps of those that DuckLake's rows tell of, maps by file id; `unknown` are the others."""

    copies: tuple[LakeCopy, ...]
    name_maps: Mapping[int, NameMap]
    unknown: Sequence[AnyFile]


def former_files(
    services: Services, table_id: int | None, lake_ids: Mapping[int, int], files: Sequence[AnyFile]
) -> FormerFiles:
    """What a table's rows of DuckLake tell of the files; lake_ids: `data_file_id`s by file id."""
    wanted = {lake_ids[file.file_id]: file for file in files if file.file_id in lake_ids}
    if table_id is None or not wanted:
        return FormerFiles((), {}, files)
    with services.database.reading() as cursor:
        there = clones.lake_files(cursor, table_id, wanted)
        maps = native.name_maps(cursor, {file.mapping_id for file in there.values() if file.mapping_id is not None})
    return FormerFiles(
        copies=tuple(_copies(wanted, there)),
        name_maps={
            wanted[id_].file_id: maps[row.mapping_id] for id_, row in there.items() if row.mapping_id is not None
        },
        unknown=[file for file in files if lake_ids.get(file.file_id) not in there],
    )


def _copies(files: Mapping[int, AnyFile], there: Mapping[int, LakeFile]) -> Iterator[LakeCopy]:
    for lake_id, row in there.items():
        file = files[lake_id]
        if canonical(row.path) != canonical(file.path):
            yield LakeCopy(file.file_id, row.path, row.file_size_bytes, path_is_relative=False)
