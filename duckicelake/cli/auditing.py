"""What `duckicelake audit` prints of the trail, and how it shortens it."""

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.table import Table
from rich.text import Text

from duckicelake.cli.examination import reachable_postgres
from duckicelake.errors import InvalidRequest, StartupError
from duckicelake.lake import audit
from duckicelake.lake.audit import Entry, Wanted
from duckicelake.lake.migrate import is_up_to_date
from duckicelake.lake.postgres.database import Database
from duckicelake.settings import Settings

_AGE = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PAUSE_SECONDS = 0.5
_MOST = 10_000


def moment(text: str) -> datetime:
    """A time so long ago (`2h`, `90d`), or in ISO form, in UTC unless it says otherwise. InvalidRequest for others."""
    age = _AGE.fullmatch(text.strip())
    try:
        if age:
            return datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
        parsed = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{text!r} is neither an age, as 2h or 90d, nor a time, as 2026-05-01T12:00") from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def show(settings: Settings, wanted: Wanted, limit: int, *, as_json: bool, follow: bool) -> None:
    """Print the newest entries, newest last; with `follow` then those that come, until interrupted."""
    with _opened(settings) as database:
        found = _read(database, wanted, limit)
        _print(found, as_json=as_json)
        while follow:
            wanted = replace(wanted, after=max([wanted.after, *(entry.id or 0 for entry in found)]))
            time.sleep(_PAUSE_SECONDS)
            found = _read(database, wanted, _MOST)
            _print(found, as_json=as_json, heading=False)


def prune(settings: Settings, before: datetime) -> int:
    """Delete what is older; how many entries there were."""
    with _opened(settings) as database:
        return audit.prune(database, before)


@contextmanager
def _opened(settings: Settings) -> Iterator[Database]:
    with reachable_postgres(settings) as url, closing(Database(url, 1)) as database:
        database.check()
        with database.reading() as cursor:
            if not is_up_to_date(cursor):
                raise StartupError("the catalog has no audit trail yet: start this version of the server once")
        yield database


def _read(database: Database, wanted: Wanted, limit: int) -> list[Entry]:
    with database.reading() as cursor:
        return audit.entries(cursor, wanted, limit)


def _print(entries: Sequence[Entry], *, as_json: bool, heading: bool = True) -> None:
    if as_json:
        for entry in entries:
            sys.stdout.write(json.dumps(asdict(entry) | {"at": entry.at.isoformat()}) + "\n")
        sys.stdout.flush()
    elif entries or heading:
        _print_table(entries, heading=heading)


def _print_table(entries: Sequence[Entry], *, heading: bool) -> None:
    table = Table(box=None, show_header=heading, pad_edge=False)
    for column in ("when (UTC)", "who", "from", "operation", "what", "result", "snapshot", "detail"):
        table.add_column(column, justify="right" if column == "snapshot" else "left", overflow="fold")
    for entry in entries:
        table.add_row(
            f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            *map(plain, (entry.principal, entry.address, entry.operation, entry.resource)),
            Text(entry.result, style="" if entry.result in {audit.OK, audit.UNCHANGED} else "red"),
            "" if entry.snapshot_id is None else str(entry.snapshot_id),
            Text("" if entry.detail is None else json.dumps(entry.detail)),
        )
    console = Console(highlight=False)
    # A file or a pipe has no width: there every entry is one line.
    (console if console.is_terminal else Console(highlight=False, width=500)).print(table)


def plain(text: str) -> Text:
    """Names are whatever clients wrote: nothing in them may steer the terminal."""
    return Text("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))
