"""Build what is asked of a load from options of commands."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from duckicelake.errors import BadInputError, MissingRequirementError
from duckicelake.pipeline.destination import Target, build_load_request
from duckicelake.pipeline.sources import parse_pairs
from duckicelake.rest.names import parse_table

if TYPE_CHECKING:
    from duckicelake.file_import.load import FileLoad

_EVOLVE = ("add", "strict")


def import_load() -> Any:
    """Import what loads files. Raises MissingRequirementError without PyIceberg."""
    try:
        return import_module("duckicelake.file_import.load")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"pyiceberg", "pyarrow"}:
            raise
        raise MissingRequirementError("Loading files needs PyIceberg: pip install 'duckicelake[pyiceberg]'") from error


def build_file_load(
    files: Sequence[str],
    table: str,
    *,
    mode: str,
    evolve: str,
    layout: tuple[str | None, str | None],
    quarantine: str | None,
    options: Sequence[str],
    **given: Any,
) -> FileLoad:
    """Build the request. Raises BadInputError for an option that can't be."""
    from duckicelake.file_import.load import FileLoad

    if evolve not in _EVOLVE:
        raise BadInputError(f"Invalid --evolve {evolve!r}: expected add or strict")
    if mode == "merge":
        raise BadInputError("--mode merge needs Spark: use duckicelake pipeline ingest --mode merge --key …")
    load = build_load_request(
        Target(*parse_table(table), *layout),
        mode,
        may_change=evolve == "add",
        quarantine=None if quarantine is None else Target(*parse_table(quarantine)),
    )
    return FileLoad(tuple(files), load, options=parse_pairs("--option", options, "sep=;"), **given)
