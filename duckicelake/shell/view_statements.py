"""SQL statements on materialized views, which the shell sends to the server's routes: its queries only read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

from duckicelake.errors import BadInputError, MissingTableError, PipelineError, format_count
from duckicelake.rest.client import encode_namespace, encode_segment
from duckicelake.rest.names import format_name, parse_name
from duckicelake.shell.statements import list_tokens

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake

_SECONDS: Final = 3660.0
"""For which contents are waited for; the server ends a refresh after an hour."""
VIEW_STATEMENTS: Final = (
    ("CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS] NAMESPACE.NAME AS QUERY", "keep a query's result"),
    ("REFRESH MATERIALIZED VIEW NAMESPACE.NAME [WHOLE]", "bring it up to date; WHOLE computes all of it"),
    ("DROP MATERIALIZED VIEW [IF EXISTS] NAMESPACE.NAME", "drop it"),
)
"""What `\\?` says of them."""
Act = Literal["CREATE", "REFRESH", "DROP"]


@dataclass(frozen=True, slots=True)
class ViewStatement:
    """A statement on a materialized view.

    Attributes:
        namespace, name: of the view.
        query: of CREATE, as it was typed.
        is_replacing: OR REPLACE.
        is_lenient: IF EXISTS, or IF NOT EXISTS.
        is_whole: WHOLE.

    """

    act: Act
    namespace: tuple[str, ...]
    name: str
    query: str = ""
    is_replacing: bool = False
    is_lenient: bool = False
    is_whole: bool = False

    @property
    def full_name(self) -> str:
        return format_name(self.namespace, self.name)


def parse_view_statement(sql: str) -> ViewStatement | None:
    """Parse a statement on a materialized view; None for any other. Raises BadInputError for one that is incomplete."""
    reader = _TokenReader(sql)
    act = next((act for act in _ACTS if reader.take(act)), None)
    is_replacing = act == "CREATE" and reader.take("OR", "REPLACE")
    if act is None or not reader.take("MATERIALIZED", "VIEW"):
        return None
    is_lenient = (act == "CREATE" and reader.take("IF", "NOT", "EXISTS")) or (
        act == "DROP" and reader.take("IF", "EXISTS")
    )
    if is_replacing and is_lenient:
        raise BadInputError("OR REPLACE and IF NOT EXISTS exclude each other")
    namespace, name = reader.read_name()
    statement = ViewStatement(act, namespace, name, is_replacing=is_replacing, is_lenient=is_lenient)
    if act == "CREATE":
        return ViewStatement(act, namespace, name, reader.read_query(), is_replacing, is_lenient)
    is_whole = act == "REFRESH" and reader.take("WHOLE")
    reader.check_end()
    return ViewStatement(act, namespace, name, is_whole=True) if is_whole else statement


def run_view_statement(lake: Lake, statement: ViewStatement) -> str:
    """Run a statement, and return what to print. Raises PipelineError."""
    views = _Views(lake, statement)
    match statement.act:
        case "REFRESH":
            return _describe(views.refresh(), f"refreshed {statement.full_name}")
        case "DROP":
            return views.drop()
    return views.replace() if statement.is_replacing else views.create()


@dataclass(slots=True)
class _TokenReader:
    """Reads a statement word by word; comments are left out."""

    sql: str
    tokens: Sequence[tuple[str, int, int]] = field(init=False)
    at: int = 0

    def __post_init__(self) -> None:
        self.tokens = list_tokens(self.sql)

    def take(self, *words: str) -> bool:
        """Go on behind words, if they are next, whatever their case."""
        found = [text.upper() for text, *_ in self.tokens[self.at : self.at + len(words)]]
        is_next = found == list(words)
        self.at += len(words) if is_next else 0
        return is_next

    def read_name(self) -> tuple[tuple[str, ...], str]:
        """Read namespace and name: `sales.x`, or `"sales.eu".x` for a namespace of several levels."""
        parts = [self._read_identifier()]
        while self.take("."):
            parts.append(self._read_identifier())
        if len(parts) != 2:
            raise BadInputError(
                f"Invalid name {'.'.join(parts)!r}: expected NAMESPACE.NAME, with a namespace of several levels as "
                '"sales.eu".orders'
            )
        return parse_name(parts[0]), parts[1]

    def read_query(self) -> str:
        """Read what follows AS."""
        if not self.take("AS") or self.at == len(self.tokens):
            raise BadInputError("CREATE MATERIALIZED VIEW expects AS and a query behind the name")
        return self.sql[self.tokens[self.at][1] :]

    def check_end(self) -> None:
        """Raise BadInputError if there is more."""
        if self.at < len(self.tokens):
            raise BadInputError(f"Unexpected {self.sql[self.tokens[self.at][1] :][:40]!r} behind the name of the view")

    def _read_identifier(self) -> str:
        text = self.tokens[self.at][0] if self.at < len(self.tokens) else ""
        self.at += 1
        if text.startswith('"'):
            return text[1:-1].replace('""', '"')
        if not text.isidentifier():
            raise BadInputError(f"Expected the name of a materialized view, as sales.by_region, and got {text!r}")
        return text


@dataclass(frozen=True, slots=True)
class _Views:
    """The server's materialized views, and a statement on one of them."""

    lake: Lake
    statement: ViewStatement

    def create(self) -> str:
        """Create the view; with IF NOT EXISTS, leave one that is there."""
        found = self._find() if self.statement.is_lenient else None
        if found is not None:
            return f"{self.statement.full_name} exists: nothing was done"
        return _describe(self._create(self.statement.name, {}), f"created {self.statement.full_name}")

    def replace(self) -> str:
        """Create another view beside the one that is there, drop that, and give the other one its name.

        The schedule stays. A query that fails leaves the old view, as does one that reads it.
        """
        found = self._find()
        if found is None:
            return _describe(self._create(self.statement.name, {}), f"created {self.statement.full_name}")
        kept = {key: found[key] for key in ("refresh-every", "refresh-on-change") if key in found}
        other = f"{self.statement.name}_{uuid4().hex[:12]}"
        made = self._create(other, {**kept, "replaces": self.statement.name})
        try:
            self._change("DELETE", self.statement.name)
        except PipelineError:
            self._change("DELETE", other)
            raise
        ends = {"source": other, "destination": self.statement.name}
        namespace = list(self.statement.namespace)
        body = {end: {"namespace": namespace, "name": name} for end, name in ends.items()}
        try:
            self.lake.client.change("POST", self.lake.client.iceberg("tables", "rename"), body)
        except PipelineError as error:
            old, new = self.statement.full_name, format_name(self.statement.namespace, other)
            raise PipelineError(
                f"The old {old} is dropped, and the new one is still called {new}: free the name, then run "
                f"duckicelake rename table {new} {old}. {error}"
            ) from error
        return _describe(made, f"replaced {self.statement.full_name}")

    def refresh(self) -> Any:
        """Bring the view up to date."""
        return self._change("POST", self.statement.name, "refresh", body={"whole": self.statement.is_whole})

    def drop(self) -> str:
        """Drop the view; with IF EXISTS, do nothing if there is none."""
        try:
            self._change("DELETE", self.statement.name)
        except MissingTableError:
            if not self.statement.is_lenient:
                raise
            return f"{self.statement.full_name} doesn't exist: nothing was done"
        return f"dropped {self.statement.full_name}"

    def _find(self) -> Any:
        """Find the view as the server describes it; None if there is none."""
        try:
            return self.lake.client.get(self._build_path(self.statement.name))
        except MissingTableError:
            return None

    def _create(self, name: str, options: dict[str, Any]) -> Any:
        return self._change("POST", body={"name": name, "query": self.statement.query, **options})

    def _change(self, method: str, *segments: str, body: Any = None) -> Any:
        return self.lake.client.change(method, self._build_path(*segments), body, seconds=_SECONDS)

    def _build_path(self, *segments: str) -> str:
        encoded = map(encode_segment, segments)
        return self.lake.client.iceberg(
            "namespaces", encode_namespace(self.statement.namespace), "materialized-views", *encoded
        )


def _describe(view: Any, what: str) -> str:
    rows = f"{format_count(view['rows-written'], 'row')} in {view['seconds']:.1f} s"
    return f"{what}: {view['mode']}, {view['reason']}; {rows}"


_ACTS: Final[Sequence[Act]] = ("CREATE", "REFRESH", "DROP")
