r"""Copy rows between the lake and files: `\copy`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duckicelake.errors import BadInputError, format_count
from duckicelake.extras import import_extra
from duckicelake.rest.names import parse_table
from duckicelake.shell.formats import encode_rows, join_json

if TYPE_CHECKING:
    from duckicelake.shell.interpreter import Interpreter

_KINDS: Final[Mapping[str, str]] = {
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".arrow": "arrow",
    ".parquet": "parquet",
}
"""Formats by the ends of files' names."""


def copy_rows(shell: Interpreter, words: Sequence[str], _plus: bool) -> None:
    """Copy rows of a table or query into a file, or those of a file into a table."""
    source, direction, path = words
    if direction.lower() == "to":
        sql = source[1:-1] if source.startswith("(") else f"FROM {quote_table(source)}"
        _write_file(shell, sql, Path(path).expanduser())
    elif direction.lower() == "from":
        shell.check_may_change(r"\copy … from")
        _append_file(shell, source, path)
    else:
        raise BadInputError(f"Invalid \\copy: expected to or from, not {direction!r}")


def _write_file(shell: Interpreter, sql: str, path: Path) -> None:
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise BadInputError(f"Invalid file {path.name!r}: its name ends with {', '.join(_KINDS)}")
    table = shell.session.run(sql)
    try:
        if kind == "parquet":
            import_extra("pyarrow.parquet").write_table(table, path)
        elif kind == "json":
            path.write_text(join_json(encode_rows(table, "ndjson").decode()))
        else:
            path.write_bytes(encode_rows(table, kind))  # type: ignore[arg-type]
    except OSError as error:
        raise BadInputError(f"{path} can't be written: {error.strerror}") from error
    shell.output.print_text(f"copied {format_count(table.num_rows, 'row')} to {path}\n")


def _append_file(shell: Interpreter, table: str, path: str) -> None:
    from duckicelake.cli.rows.command import append_files, print_summary

    rest = shell.find_duckicelake(r"\copy … from")
    began = time.monotonic()
    with shell.output.describe() as is_json:
        progress, _ = append_files(table, rest.client.connection, [path])
        print_summary(progress, time.monotonic() - began, as_json=is_json)


def quote_table(name: str) -> str:
    """Quote a table's name for SQL: a namespace of several levels is one name there."""
    namespace, table = parse_table(name)
    return ".".join('"' + part.replace('"', '""') + '"' for part in (".".join(namespace), table))
