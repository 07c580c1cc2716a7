"""PURE. What DuckLake calls the files of a step and where their rows begin there; of very many little is kept."""

from duckicelake.lake.additions import NewFile
from duckicelake.lake.changes import LakeStep


class InLake:
    """The files of a step, of which those that join main get ids in `ducklake_data_file` from `first_id` on."""

    def __init__(self, step: LakeStep, first_id: int) -> None:
        self._data_files, self._first_id = step.data_files, first_id
        self._places = {file.file_id: place for place, file in enumerate(step.data_files)}
        self._inlined = {file.file_id: file.first_row_id for file in (step.inlined.files if step.inlined else ())}

    def of(self, file: NewFile) -> tuple[int | None, int | None]:
        """(id in `ducklake_data_file`, first row id) of a file, each None if it has none."""
        place = self._places.get(file.file_id)
        if place is None:
            return file.ducklake_id, _first_row_id(file, self._inlined.get(file.file_id))
        return self._first_id + place, _first_row_id(file, self._data_files[place].row_id_start)


def _first_row_id(file: NewFile, in_lake: int | None) -> int | None:
    return in_lake if file.first_row_id is None else file.first_row_id
