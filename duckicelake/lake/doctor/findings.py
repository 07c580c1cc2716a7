"""What an examination of a lake comes to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check; `advice` says what to do and is empty where nothing is to be done."""

    name: str
    ok: bool
    detail: str
    advice: str


def finding(name: str, ok: bool, detail: str, advice: str) -> Finding:
    """One whose advice is for where it isn't well."""
    return Finding(name, ok, detail, "" if ok else advice)
