"""PURE. Txns in the summaries of snapshots: versions of apps, each of which a table has once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from duckicelake.errors import InvalidRequestError
from duckicelake.properties import DELTA_TXN_PREFIX, RUN_EPOCH_KEY, RUN_ID_KEY, TXN_APP_ID_KEY, TXN_VERSION_KEY

MAX_APP_ID_CHARS: Final = 500
_MAX_VERSION_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class TxnApp:
    """A writer of one table that numbers what it writes.

    Attributes:
        app_id: a producer's own name, or the id of a run.
        is_run: whether the app is a run. Runs and producers of the same name are different apps.

    """

    table_id: int
    app_id: str
    is_run: bool = False


@dataclass(frozen=True, slots=True)
class TxnId:
    """A version of an app, in Delta's words. A table has it if the app's last version there is not below it."""

    app_id: str
    version: int
    is_run: bool = False

    def get_app(self, table_id: int) -> TxnApp:
        return TxnApp(table_id, self.app_id, self.is_run)

    def describe_applied(self, latest: int) -> str:
        """Build the message of the errors for a txn that the table has. latest: the app's last version there."""
        named = f"Epoch {self.version} of run" if self.is_run else f"Version {self.version} of"
        applied = f"{named} {self.app_id} was already applied (latest: {latest})"
        return f"{applied}. No changes were made; no retry is needed"


def check_app_id(app_id: str, name: str) -> str:
    """Return the app id. Raises InvalidRequestError, with the name of the parameter, if it can't be stored."""
    if not _is_app_id(app_id):
        raise InvalidRequestError(f"{name} takes 1 to {MAX_APP_ID_CHARS} letters, none of them NUL")
    return app_id


def parse_txns(summary: Mapping[str, str]) -> list[TxnId]:
    """Parse the producer's batch and the run that a client's snapshot is. Raises InvalidRequestError if one is invalid.

    A run id without an epoch is no txn: snapshots of other jobs have one too.
    """
    found = []
    if TXN_APP_ID_KEY in summary or TXN_VERSION_KEY in summary:
        found.append(_parse_txn(summary, TXN_APP_ID_KEY, TXN_VERSION_KEY))
    if RUN_EPOCH_KEY in summary:
        found.append(_parse_txn(summary, RUN_ID_KEY, RUN_EPOCH_KEY, is_run=True))
    return found


def _parse_txn(summary: Mapping[str, str], app_key: str, version_key: str, *, is_run: bool = False) -> TxnId:
    app_id = check_app_id(summary.get(app_key, ""), f"{app_key}, beside {version_key},")
    version = parse_version(summary.get(version_key, ""))
    if version is None:
        raise InvalidRequestError(
            f"{version_key} takes a whole number beside {app_key}, not {summary.get(version_key)!r}"
        )
    return TxnId(app_id, version, is_run)


def find_txns(summary: Mapping[str, str]) -> Iterator[TxnId]:
    """Find the valid txns of any snapshot, those of Delta logs included."""
    named = [(summary.get(TXN_APP_ID_KEY, ""), summary.get(TXN_VERSION_KEY, ""), False)]
    named.append((summary.get(RUN_ID_KEY, ""), summary.get(RUN_EPOCH_KEY, ""), True))
    named += [
        (key.removeprefix(DELTA_TXN_PREFIX), text, False)
        for key, text in summary.items()
        if key.startswith(DELTA_TXN_PREFIX)
    ]
    for app_id, text, is_run in named:
        version = parse_version(text)
        if version is not None and _is_app_id(app_id):
            yield TxnId(app_id, version, is_run)


def parse_version(text: str) -> int | None:
    """Parse a version; None if it is no whole number, or Postgres can't store it."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_VERSION_DIGITS else None


def _is_app_id(text: str) -> bool:
    return 0 < len(text) <= MAX_APP_ID_CHARS and "\0" not in text
