"""`duckicelake migrate`: let DuckDB 2 migrate a served lake to DuckLake 1.1, while no one writes."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from duckicelake.catalog.context.services import Services
    from duckicelake.lake.doctor.findings import Finding
    from duckicelake.lake.setup.format_change import FormatChange, Migrated, Session

EXAMPLES: Final = (
    "duckicelake migrate --check",
    "duckicelake migrate",
    "duckicelake migrate --timeout 3600 --end-sessions",
)
_IN_THE_WAY, _NOT_MIGRATED, _INTERRUPTED = 1, 3, 130
_MAX_LISTED: Final = 20


@one_line_errors()
def migrate(
    lake: LakeOption = None,
    check: Annotated[bool, typer.Option("--check", help="Only say whether the migration would succeed.")] = False,
    end_sessions: Annotated[
        bool, typer.Option("--end-sessions", help="End sessions in Postgres that are in the way or must attach again.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for the ATTACH in DuckDB 2.")] = 900,
    drain: Annotated[float, typer.Option(min=0, help="Seconds for the writers under way to end.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a step, for programs.")] = False,
) -> None:
    """Migrate the lake from DuckLake 1.0 to 1.1: DuckDB 2 does it, by the ATTACH that this command prints.

    There is no way back but a backup, and DuckDB 1.5 can't attach the lake any more. The command checks the lake, has
    writers wait (REST clients get 503 with Retry-After), prints an ATTACH statement to run in DuckDB 2, waits until the
    lake is migrated, verifies the result and lets writers go on. Loads are served all the time.

    Ctrl-C, a kill or the timeout before the ATTACH leave the lake as it was, and writers go on.

    Exits with 0 if the lake is migrated, or could be (--check); 1 if something stands in the way or the result isn't
    right; 2 if the command can't run; 3 if no ATTACH came in time; 130 after Ctrl-C.
    """
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.lake.doctor.format_checks import OLD_VERSION, read_version
    from duckicelake.lake.setup.format_change import hold_format
    from duckicelake.settings.sources import read_settings

    steps = _Steps(as_json)
    with open_lake(read_settings({"lake": lake}), "migrate") as services:
        version = read_version(services.database)
        with hold_format(services.database.url, exclusive=not check) as change:
            if version != OLD_VERSION:
                raise typer.Exit(_verify(change, steps, version))
            if not _is_possible(change, steps):
                raise typer.Exit(_IN_THE_WAY)
            if check:
                return
            options = _Options(end_sessions, timeout, drain)
            raise typer.Exit(_Migration(services, change, steps, options).run())


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of the command; times in seconds."""

    end_sessions: bool
    attach_seconds: float
    drain_seconds: float


@dataclass(slots=True)
class _Steps:
    """Print what happens: lines for people, or JSON objects for programs."""

    as_json: bool
    _seen: set[str] = field(default_factory=set)

    def print(self, step: str, text: str, **facts: Any) -> None:
        if self.as_json:
            print_json({"step": step, "text": text, **facts})
        else:
            typer.echo(text)

    def print_once(self, step: str, text: str, **facts: Any) -> None:
        """Print a text that no earlier call had."""
        if text not in self._seen:
            self._seen.add(text)
            self.print(step, text, **facts)

    def print_finding(self, step: str, finding: Finding) -> None:
        text = f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name}: {finding.detail}"
        text += f"\n      {finding.advice}" if finding.advice else ""
        facts = {"ok": finding.ok, "name": finding.name, "detail": finding.detail, "advice": finding.advice}
        self.print(step, text, **facts)


def _is_possible(change: FormatChange, steps: _Steps) -> bool:
    """Print what the migration needs; return whether it would succeed."""
    from duckicelake.lake.doctor.format_checks import find_obstacles

    findings = find_obstacles(change)
    for finding in findings:
        steps.print_finding("check", finding)
    is_possible = all(finding.ok for finding in findings)
    verdict = "DuckDB 2 can migrate the lake" if is_possible else "the migration would fail, and change nothing"
    steps.print("verdict", verdict, possible=is_possible)
    return is_possible


def _verify(change: FormatChange, steps: _Steps, version: str) -> int:
    """Print whether a lake of the new format is complete; return the exit code."""
    from duckicelake.lake.doctor.format_checks import verify_migrated

    findings = verify_migrated(change)
    for finding in findings:
        steps.print_finding("verify", finding)
    is_right = all(finding.ok for finding in findings)
    outcome = "and is complete" if is_right else "but isn't as DuckDB leaves one"
    steps.print("result", f"the lake has DuckLake format {version} {outcome}", format=version, complete=is_right)
    return 0 if is_right else _IN_THE_WAY


@dataclass(frozen=True, slots=True)
class _Migration:
    """The steps from the first refused writer to the last check."""

    services: Services
    change: FormatChange
    steps: _Steps
    options: _Options

    def run(self) -> int:
        """Migrate, and return the exit code; on every way out writers go on."""
        from duckicelake.lake.doctor.format_checks import read_stored_version

        code = _NOT_MIGRATED
        try:
            migrated = self._wait()
        except KeyboardInterrupt:
            code, migrated = _INTERRUPTED, None
        migrated = self.change.close() or migrated
        version = read_stored_version(self.change)
        self._note("ok" if migrated else "unchanged", version)
        if migrated is None:
            self.steps.print("result", "nothing was changed; the guard is closed, and writers go on", migrated=False)
            return code
        self.steps.print("migrated", "DuckDB has migrated the lake; writers go on", migrated=True)
        self._list_attached(migrated)
        return _verify(self.change, self.steps, version)

    def _wait(self) -> Migrated | None:
        """Stop writers and wait for the ATTACH; None if there was none."""
        options, steps = self.options, self.steps
        backup = self._build_backup()
        steps.print("backup", f"there is no way back but a backup; in another terminal:\n  {backup}", command=backup)
        token = self.change.begin(options.drain_seconds)
        steps.print("drain", "writers get 503 with Retry-After from now on; waiting for those under way")
        if not self._drain():
            return None
        self.change.open(options.attach_seconds)
        attach = self._build_attach(token)
        steps.print(
            "attach",
            f"run this in DuckDB 2 within {options.attach_seconds:g} seconds, and DETACH it again:\n  {attach}",
            statement=attach,
            seconds=options.attach_seconds,
        )
        with _show_progress("Waiting for the ATTACH", options.attach_seconds) as advance:

            def note(blockers: list[Session]) -> None:
                advance()
                self._handle("wait", "the ATTACH waits for", blockers, may_end=options.end_sessions)

            migrated = self.change.wait_for_attach(options.attach_seconds, note)
        if migrated is None:
            steps.print("timeout", f"no ATTACH has migrated the lake within {options.attach_seconds:g} seconds")
        return migrated

    def _drain(self) -> bool:
        """Wait for the writers under way; return whether all have ended."""
        seconds = self.options.drain_seconds
        with _show_progress("Waiting for writers", seconds) as advance:
            left = self.change.wait_for_writers(seconds, lambda _: advance())
        if left and self.options.end_sessions:
            self._handle("drain", "still writes:", left, may_end=True)
            left = self.change.wait_for_writers(min(seconds, 10), lambda _: None)
        self._handle("drain", "still writes:", left, may_end=False)
        return not left

    def _handle(self, step: str, text: str, sessions: list[Session], *, may_end: bool) -> None:
        """Print sessions that are in the way, once each; end those that aren't a server's, if the operator wants it."""
        for session in sessions[:_MAX_LISTED]:
            is_ended = may_end and not session.is_ours and self.change.end_session(session)
            words = f"{text} {session.identity}" + ("; its session was ended" if is_ended else "")
            self.steps.print_once(step, words, pid=session.pid, ended=is_ended)

    def _list_attached(self, migrated: Migrated) -> None:
        """Print the sessions that were attached before, and end them if the operator wants it."""
        sessions = self.change.find_attached(migrated.at, migrated.backend)
        for session in sessions:
            is_ended = self.options.end_sessions and self.change.end_session(session)
            done = "its session was ended" if is_ended else "DETACH and ATTACH the lake there"
            self.steps.print("reattach", f"was attached before: {session}; {done}", pid=session.pid, ended=is_ended)
        if sessions:
            self.steps.print(
                "advice",
                "a DuckDB that was attached before keeps the old format in its memory: DETACH and ATTACH the lake in "
                "each. DuckDB 1.5 can't attach it any more",
            )

    def _note(self, outcome: str, version: str) -> None:
        """Add an entry to the audit trail; none to that of a lake of a format that this version doesn't know."""
        from duckicelake.errors import UnknownFormatError
        from duckicelake.lake.side_tables.audit import AuditedResource

        with suppress(UnknownFormatError):
            self.services.note([AuditedResource("", detail={"format": version})], outcome)

    def _build_attach(self, token: str) -> str:
        from duckicelake.lake.doctor.format_checks import find_owner
        from duckicelake.lake.setup.format_change import build_migrating_attach

        return build_migrating_attach(self.services.database.url, token, find_owner(self.change))

    def _build_backup(self) -> str:
        """Return the command that dumps the lake's database, without the password: PGPASSWORD or ~/.pgpass has it."""
        from duckicelake.lake.ducklake.database import build_dump_source

        source = shlex.quote(build_dump_source(self.services.database.url))
        return f"pg_dump --format custom --file lake-before-1.1.dump --dbname {source}"


def _show_progress(text: str, seconds: float) -> AbstractContextManager[Callable[[], None]]:
    """Show on a terminal how much of the time has passed; the function that the block gets redraws it."""
    import time
    from contextlib import contextmanager

    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    from duckicelake.cli.console.terminal import open_progress

    @contextmanager
    def show() -> Iterator[Callable[[], None]]:
        with open_progress(TextColumn(text), BarColumn(), TimeElapsedColumn()) as progress:
            task, start = progress.add_task("", total=seconds), time.monotonic()
            yield lambda: progress.update(task, completed=time.monotonic() - start)

    return show()
