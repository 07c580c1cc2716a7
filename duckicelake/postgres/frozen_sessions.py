"""End sessions whose client is frozen while Postgres reads from it, or writes to it: no limit of Postgres's does.

Neither `statement_timeout` nor a limit of idle time ends a session amid a COPY, an answer or a notification. Its locks
would last until the client wakes.
"""

from time import monotonic
from typing import Final

from psycopg import Cursor

from duckicelake.postgres.queries import Row

UNLIMITED_KEY: Final = 0x756E6C69
"""The first part of the key of the advisory lock ("unli") that a transaction without a limit of time holds."""
_OVERDUE: Final = 2
"""How many times the limit of a statement a session is in the same state before it is ended."""
_LOOK_SECONDS: Final = 5.0

_END_SQL: Final = """\
SELECT count(pg_terminate_backend(a.pid))
FROM (SELECT setting::bigint AS milliseconds FROM pg_settings WHERE name = 'statement_timeout') s
JOIN pg_stat_activity a
    ON a.state_change < clock_timestamp() - make_interval(secs => %(overdue)s * s.milliseconds / 1000.0)
WHERE s.milliseconds > 0 AND a.datname = current_database() AND a.usename = current_user
  AND a.application_name = current_setting('application_name') AND a.pid <> pg_backend_pid()
  AND a.wait_event_type = 'Client' AND (a.state = 'active' OR a.wait_event = 'ClientWrite')
  AND NOT EXISTS (SELECT FROM pg_locks l
                  WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.classid = %(unlimited)s AND l.objsubid = 2)"""


def end_frozen_sessions(cursor: Cursor[Row]) -> int:
    """End sessions of this login and program whose clients have been frozen for longer than a statement may take.

    Returns their number; 0 if statements may take any time. Transactions without a limit are left alone.
    """
    ((count,),) = cursor.execute(_END_SQL, {"overdue": _OVERDUE, "unlimited": UNLIMITED_KEY}).fetchall()
    return int(count)


class FrozenSessionWatch:
    """Ends frozen sessions every few seconds, as its owner looks."""

    def __init__(self) -> None:
        self._look_at = 0.0

    def look(self, cursor: Cursor[Row]) -> None:
        """Look if it is time to. The cursor is in no transaction, or one that has nothing else to do."""
        if monotonic() >= self._look_at:
            end_frozen_sessions(cursor)
            self._look_at = monotonic() + _LOOK_SECONDS
