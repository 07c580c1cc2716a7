"""End sessions whose client is frozen while Postgres reads from it, or writes to it: no limit of Postgres's does.

Neither `statement_timeout` nor a limit of idle time ends a session amid a COPY, an answer or a notification. Its locks
would last until the client wakes.
"""

from threading import Lock
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
  AND a.wait_event_type = 'Client'
  AND (a.state = 'active' OR a.wait_event = 'ClientWrite' AND EXISTS (
      SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory'))
  AND NOT EXISTS (SELECT FROM pg_locks l
                  WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.classid = %(unlimited)s AND l.objsubid = 2)"""


def end_frozen_sessions(cursor: Cursor[Row]) -> int:
    """End sessions of this login and program whose clients have been frozen for longer than a statement may take.

    Returns their number; 0 if statements may take any time. Transactions without a limit are left alone.
    """
    ((count,),) = cursor.execute(_END_SQL, {"overdue": _OVERDUE, "unlimited": UNLIMITED_KEY}).fetchall()
    return int(count)


class FrozenSessionWatch:
    """Ends the frozen sessions of a login every few seconds, whichever lake's thread of this process looks first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._look_at: dict[tuple[str, int, str, str], float] = {}

    def look(self, cursor: Cursor[Row]) -> None:
        """Look if it is time to. The cursor is in no transaction, or one that has nothing else to do."""
        info, now = cursor.connection.info, monotonic()
        login = info.host, info.port, info.dbname, info.user
        with self._lock:
            if now < self._look_at.get(login, 0.0):
                return
            self._look_at[login] = now + _LOOK_SECONDS
        end_frozen_sessions(cursor)


WATCH: Final = FrozenSessionWatch()
"""The watch of this process."""
