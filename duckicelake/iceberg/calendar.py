"""Days and ticks since 1970-01-01 as ISO 8601 text and back.

For every year that the types hold: Python's own stop at 9999.
"""

import re
from typing import Final

from duckicelake.errors import InvalidRequestError

DAY_SECONDS: Final = 86_400
_DATE: Final = re.compile(r"(\d{4}|[+-]\d{4,9})-(\d\d)-(\d\d)", re.ASCII)
_TIME: Final = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)


def format_date(days: int) -> str:
    year, month, day = split_days(days)
    text = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{text}-{month:02d}-{day:02d}"


def parse_date(text: str) -> int:
    """Parse an ISO date to days since the epoch. InvalidRequestError: it is none."""
    match = _DATE.fullmatch(text)
    if match:
        year, month, day = (int(part) for part in match.groups())
        if 1 <= month <= 12 and 1 <= day <= 31:
            days = count_days(year, month, day)
            if split_days(days) == (year, month, day):
                return days
    raise InvalidRequestError(f"{text!r} isn't a date: write it as 2026-08-31")


def format_time(ticks: int, digits: int) -> str:
    """Format a time of day. ticks: since midnight, 10**digits of them a second. A fraction of zero is left out."""
    seconds, fraction = divmod(ticks, 10**digits)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:0{digits}d}" if fraction else text


def parse_time(text: str, digits: int) -> int:
    """Parse a time of day to ticks since midnight, 10**digits of them a second.

    InvalidRequestError: it is no time, or finer than a tick.
    """
    match = _TIME.fullmatch(text)
    if match:
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[:3])
        fraction = (match[4] or "").rstrip("0")
        if hours < 24 and minutes < 60 and seconds < 60 and len(fraction) <= digits:
            ticks: int = 10**digits
            return (hours * 3600 + minutes * 60 + seconds) * ticks + int(fraction.ljust(digits, "0"))
    raise InvalidRequestError(f"{text!r} isn't a time of at most {digits} decimals: write it as 13:45:07.5")


def format_timestamp(ticks: int, digits: int) -> str:
    """Format date and time without zone. ticks: since the epoch, 10**digits of them a second."""
    days, rest = divmod(ticks, DAY_SECONDS * 10**digits)
    return f"{format_date(days)}T{format_time(rest, digits)}"


def parse_timestamp(text: str, digits: int) -> int:
    """Parse an ISO date and time without zone to ticks since the epoch. InvalidRequestError: it is none."""
    date, separator, time = text.partition("T")
    if not separator:
        raise InvalidRequestError(f"{text!r} isn't a timestamp: write it as 2026-08-31T13:45:07.5")
    ticks: int = 10**digits
    return parse_date(date) * DAY_SECONDS * ticks + parse_time(time, digits)


def split_days(days: int) -> tuple[int, int, int]:
    """Split days since the epoch into year, month and day (proleptic Gregorian).

    The computation goes by eras of 400 years that start on 1 March.
    """
    era, day_of_era = divmod(days + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def count_days(year: int, month: int, day: int) -> int:
    era, year_of_era = divmod(year - (month <= 2), 400)
    day_of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
