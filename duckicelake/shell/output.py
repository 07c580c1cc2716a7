"""Print rows and texts: on the terminal, by a pager where they are long, or into a file."""

import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, BinaryIO

from duckicelake.cli.console.terminal import ROW_PRINTER, page_text
from duckicelake.errors import BadInputError
from duckicelake.shell.formats import (
    RENDERERS,
    FormatName,
    TextTable,
    build_text_table,
    encode_rows,
    join_json,
    make_harmless,
    render_box,
    render_records,
)


class Output:
    r"""Where results go, and in which format.

    Attributes:
        format: of rows.
        is_expanded: rows are printed as records, in the format box.
        has_pager: what is longer than the terminal goes through $PAGER.

    """

    def __init__(self, format_: FormatName, *, has_pager: bool) -> None:
        self.format: FormatName = format_
        self.is_expanded = False
        self.has_pager = has_pager
        self._file: BinaryIO | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether results go to a terminal."""
        return self._file is None and sys.stdout.isatty()

    def redirect(self, path: str | None) -> None:
        """Write results into a file from now on; None: to standard output. Raises BadInputError."""
        if self._file is not None:
            with suppress(OSError):  # of a write that failed, which was reported then
                self._file.close()
            self._file = None
        if path is not None:
            try:
                self._file = Path(path).expanduser().open("wb")
            except OSError as error:
                raise BadInputError(f"{path} can't be written: {error.strerror}") from error

    def print_rows(self, table: Any) -> None:
        """Print a `pyarrow.Table`. Raises BadInputError for Arrow on a terminal."""
        match self.format:
            case "arrow":
                if self.is_terminal:
                    raise BadInputError(
                        r"Arrow is no text for a terminal: give a file by \o FILE first, or choose another \format"
                    )
                self._write(encode_rows(table, "arrow"))
            case "csv" | "ndjson":
                self.print_text(encode_rows(table, self.format).decode())
            case "json":
                self.print_text(join_json(encode_rows(table, "ndjson").decode()))
            case _:
                self.print_text(self._render(build_text_table(table)))

    def print_text(self, text: str) -> None:
        """Print a text, without control characters if it goes to a terminal."""
        self._write_text(make_harmless(text, self.format) if self.is_terminal else text)

    @contextmanager
    def describe(self) -> Iterator[bool]:
        """Take what the commands' descriptions print in the block; the value is whether they print JSON.

        Raises BadInputError where the format is Arrow.
        """
        if self.format == "arrow":
            raise BadInputError(r"Descriptions have no rows in Arrow: choose another \format")
        is_json = self.format in {"json", "ndjson"}
        caught = io.StringIO()
        printer = ROW_PRINTER.set(lambda *cells: print(self._render_description(TextTable(*cells)), end=""))
        try:
            with redirect_stdout(caught):
                yield is_json
        finally:
            ROW_PRINTER.reset(printer)
            text = caught.getvalue()
            self.print_text(join_json(text) if self.format == "json" and text else text)

    def _render(self, table: TextTable) -> str:
        if self.format in RENDERERS:
            return RENDERERS[self.format](table)
        if self.is_expanded:
            return render_records(table)
        return render_box(table, self._width)

    def _render_description(self, table: TextTable) -> str:
        if self.format in RENDERERS:
            return RENDERERS[self.format](table)
        return render_box(table, self._width, has_count=False)

    @property
    def _width(self) -> int | None:
        return shutil.get_terminal_size().columns if self.is_terminal else None

    def _write_text(self, text: str) -> None:
        if self._file is not None:
            self._write(text.encode())
        elif self.has_pager and self.is_terminal:
            page_text(text)
        else:
            sys.stdout.write(text)
            sys.stdout.flush()

    def _write(self, content: bytes) -> None:
        if self._file is not None:
            try:
                self._file.write(content)
                self._file.flush()
            except OSError as error:
                raise BadInputError(f"{self._file.name} can't be written: {error.strerror}") from error
        else:
            sys.stdout.buffer.write(content)
            sys.stdout.flush()
