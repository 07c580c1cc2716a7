"""Named SQL. Each file `sql/<topic>.sql` holds queries headed by a line `-- name: purpose`."""

import re
from functools import cache
from importlib.resources import files

_NAMES: dict[str, str] = {}
_HEAD = re.compile(r"^-- (\w+): .+$", re.MULTILINE)


class Queries:
    """The queries of one file, as attributes: `queries("schemas").insert_schema`."""

    def __init__(self, topic: str, text: str) -> None:
        self._topic = topic
        self._by_name = _split(text)

    def __getattr__(self, name: str) -> str:
        """Return the SQL of the query called `name`; an unknown one is an AttributeError that lists the known."""
        if name.startswith("_") or name not in self._by_name:
            known = ", ".join(sorted(self._by_name))
            raise AttributeError(f"sql/{self._topic}.sql has no query {name!r}, only {known}")
        return self._by_name[name]


@cache
def queries(topic: str) -> Queries:
    """Load `sql/<topic>.sql` once; FileNotFoundError if there is none."""
    text = files("duckicelake.lake").joinpath("sql", f"{topic}.sql").read_text(encoding="utf-8")
    _NAMES.update({sql: f"{topic}.{name}" for name, sql in _split(text).items()})
    return Queries(topic, text)


def name_of(statement: object) -> str:
    """What a statement is called, `snapshots.lock`; its first word if it is in no file."""
    if not isinstance(statement, str):
        return "SQL"
    return _NAMES.get(statement) or statement.split(maxsplit=1)[0]


def _split(text: str) -> dict[str, str]:
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    found = {head[1]: text[head.end() : end].strip() for head, end in zip(heads, ends, strict=True)}
    if len(found) != len(heads):
        raise ValueError("two queries of one file have the same name")
    if not all(found.values()):
        raise ValueError("a query is empty: a comment may have a line like a head")
    return found
