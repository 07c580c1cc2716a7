"""Run what is typed, one statement or meta-command after the other, and print errors in one line each."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duckicelake.cli.console.command import join_lines
from duckicelake.cli.console.terminal import replace_controls
from duckicelake.cli.pipeline.app import INTERRUPTED_EXIT_CODE, find_exit_code
from duckicelake.errors import BadInputError, NotAllowedError, PipelineError
from duckicelake.pipeline.failures import explain_failure
from duckicelake.shell.metacommands import find_command
from duckicelake.shell.output import Output
from duckicelake.shell.session import LakeSession, open_session
from duckicelake.shell.statements import MetaCommand, Statement, split_input
from duckicelake.shell.view_statements import parse_view_statement, run_view_statement

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake

_MAX_INCLUDED_FILES: Final = 16


class Interpreter:
    r"""Runs statements and meta-commands in a session.

    Attributes:
        session: the lake.
        output: where results go.
        at: the snapshot of queries; None is the newest.
        has_timing: print how long statements take.
        stops_on_error: leave out what follows an error, except on a prompt.
        exit_code: that of the first error; 0 if there was none.
        is_ended: `\q` was typed.

    """

    def __init__(self, session: LakeSession, output: Output, options: Mapping[str, str | None]) -> None:
        self.session = session
        self.output = output
        self.at: str | None = None
        self.has_timing = False
        self.stops_on_error = False
        self.exit_code = 0
        self.is_ended = False
        self.last_sql: str | None = None
        self._options = options
        self._included = 0

    def connect(self, target: str) -> None:
        """Connect to another lake, with the options of the first one except its secrets and its address."""
        session = open_session(target, {})
        self.session.close()
        self.session, self.at = session, None

    def run_text(self, text: str) -> bool:
        """Run what a text has; return whether there was no error. `stops_on_error` leaves out what follows one."""
        try:
            pieces = split_input(text)
        except BadInputError as error:
            return self._report(error)
        is_clean = True
        for piece in pieces:
            if self.is_ended:
                break
            is_clean = self._run_piece(piece) and is_clean
            if not is_clean and self.stops_on_error:
                break
        return is_clean

    def run_file(self, path: str) -> bool:
        """Run the statements of a file. Raises BadInputError if it can't be read."""
        if self._included == _MAX_INCLUDED_FILES:
            raise BadInputError(
                f"{path} is the {_MAX_INCLUDED_FILES + 1}th file within files: does one include itself?"
            )
        try:
            text = sys.stdin.read() if path == "-" else Path(path).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error
        self._included += 1
        try:
            return self.run_text(text)
        finally:
            self._included -= 1

    def run_sql(self, sql: str) -> None:
        """Run a statement, and print its rows, or what it did to a materialized view."""
        self.last_sql = sql
        with self.measure():
            statement = parse_view_statement(sql)
            if statement is not None:
                self.check_may_change(f"{statement.act} MATERIALIZED VIEW")
                done = run_view_statement(self.find_duckicelake("A materialized view"), statement)
                print(replace_controls(done), file=sys.stderr)
                return
            table = self.session.run(sql)
            self.output.print_rows(table)

    @contextmanager
    def measure(self) -> Iterator[None]:
        r"""Print how long the block took, where `\timing` is on."""
        began = time.monotonic()
        yield
        if self.has_timing:
            print(f"Time: {(time.monotonic() - began) * 1000:,.0f} ms", file=sys.stderr)

    def check_may_change(self, what: str) -> None:
        """Raise NotAllowedError if the lake is read-only."""
        if self.session.read_only_by is not None:
            raise NotAllowedError(f"{self.session.read_only_by} is read-only: {what} is refused")

    def find_catalog(self, what: str) -> Lake:
        """Return the client of the lake's catalog. Raises BadInputError of a lake without one."""
        if self.session.rest is None:
            raise BadInputError(f"{what} needs an Iceberg REST catalog, and {self.session.name} is attached by DuckDB")
        return self.session.rest

    def find_duckicelake(self, what: str) -> Lake:
        """Return the client of this server. Raises BadInputError for other catalogs, and lakes without one."""
        lake = self.session.rest
        if lake is None or not lake.client.is_duckicelake():
            other = "attached by DuckDB" if lake is None else "another catalog"
            raise BadInputError(f"{what} needs a server of duckicelake, and {self.session.name} is {other}")
        return lake

    def _run_piece(self, piece: Statement | MetaCommand) -> bool:
        try:
            if isinstance(piece, Statement):
                self.run_sql(piece.sql)
            else:
                self._run_command(piece)
        except KeyboardInterrupt:
            self._print_error("interrupted")
            self.exit_code = self.exit_code or INTERRUPTED_EXIT_CODE
            if not sys.stdin.isatty():
                self.is_ended = True
            return False
        except Exception as error:
            failure = explain_failure(error)
            if failure is None:
                raise
            return self._report(failure)
        return True

    def _run_command(self, piece: MetaCommand) -> None:
        command, has_plus = find_command(piece.name)
        if piece.before and not command.takes_statement:
            raise BadInputError(f"The statement before \\{piece.name} has no semicolon: end it first")
        if piece.before:
            self.last_sql = piece.before
        words = piece.words
        command.check(words)
        if command.changes:
            self.check_may_change(f"\\{piece.name}")
        command.run(self, words, has_plus)

    def _report(self, error: PipelineError) -> bool:
        self._print_error(join_lines(error))
        self.exit_code = self.exit_code or find_exit_code(error)
        return False

    def _print_error(self, message: str) -> None:
        sys.stdout.flush()
        print(f"duckicelake: {replace_controls(message)}", file=sys.stderr)
