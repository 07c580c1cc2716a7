"""Times as people write them."""

import re
from datetime import UTC, datetime, timedelta

from duckicelake.errors import InvalidRequest

_AGE = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
