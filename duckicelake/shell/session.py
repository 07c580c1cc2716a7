"""What the shell is connected to: a lake that is described and queried, behind a catalog's REST API or attached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from duckicelake.client.lake import Lake
from duckicelake.errors import BadInputError
from duckicelake.extras import import_extra
from duckicelake.rest.connection import DEFAULT_URI
from duckicelake.rest.profiles import read_connection

if TYPE_CHECKING:
    from duckicelake.client.models import LakeReader
    from duckicelake.rest.connection import Connection
    from duckicelake.shell.local_duckdb import LocalDuckDB

_ATTACHED: Final = ("ducklake:", "postgres:", "postgresql:")
_DEFAULT_FOLDER: Final = Path("lake")
_EXPLAIN: Final = re.compile(r"\s*EXPLAIN\s+(?=SELECT|WITH|FROM|VALUES|TABLE|\()", re.IGNORECASE)


class LakeSession(Protocol):
    """A lake that the shell is connected to.

    Attributes:
        name: for the prompt.
        lake: describes it.
        read_only_by: what forbids changes, as `profile work`; None allows them.

    """

    name: str
    read_only_by: str | None

    @property
    def lake(self) -> LakeReader:
        """What describes it."""
        ...

    @property
    def rest(self) -> Lake | None:
        """The client of its catalog; None of a lake without one."""
        ...

    def set_snapshot(self, at: str | None) -> None:
        """Read the lake at a snapshot from now on; None: the newest. Raises BadInputError."""
        ...

    def run(self, sql: str) -> Any:
        """Run a statement and return its rows as a `pyarrow.Table`. Raises PipelineError, KeyboardInterrupt."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class RestSession:
    """A lake behind an Iceberg REST catalog.

    Queries run in the server if it is duckicelake, else in a local DuckDB that attaches the catalog.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self.read_only_by = connection.read_only_by
        self._lake = Lake(connection)
        self._engine: LocalDuckDB | None = None
        self._at: str | None = None

    @property
    def lake(self) -> Lake:
        """The client, which describes the lake."""
        return self._lake

    @property
    def rest(self) -> Lake:
        """The client."""
        return self._lake

    def set_snapshot(self, at: str | None) -> None:
        """Set the snapshot of queries: DuckLake's number, a time, or a tag."""
        if at is not None and not self._lake.client.is_duckicelake():
            raise BadInputError(
                r"\at needs duckicelake or DuckLake: write AT (VERSION => 42) behind each table instead"
            )
        self._at = at

    def run(self, sql: str) -> Any:
        """Run a query."""
        if self._lake.client.is_duckicelake():
            explained = _EXPLAIN.match(sql)
            if explained is None:
                return self._lake.sql(sql, at=self._at).to_arrow()
            return _build_lines(self._lake.explain_sql(sql[explained.end() :], at=self._at).lines())
        if self._engine is None:
            from duckicelake.shell.local_duckdb import attach_iceberg

            self._engine = attach_iceberg(self._lake)
        return self._engine.run(sql)

    def close(self) -> None:
        """Close the connections to the server, and DuckDB."""
        self._lake.close()
        if self._engine is not None:
            self._engine.close()


def _build_lines(lines: list[str]) -> Any:
    return import_extra("pyarrow").table({"plan": lines})


def open_session(target: str | None, options: Mapping[str, str | None]) -> LakeSession:
    """Connect to a lake. The first request or statement does it, so an address that doesn't answer is no error yet.

    Args:
        target: a URI or the name of a profile; None takes the options, the default profile, the server of `./lake`, or
            that at the default address.
        options: of `duckicelake.connect`.

    Raises:
        BadInputError: there is no such profile.
        MissingRequirementError: DuckDB's extensions aren't installed, for a lake that DuckDB attaches.

    """
    given = dict(options)
    if target is not None:
        given |= {"profile": None, "uri": target} if ":" in target else {"profile": target, "uri": None}
    profile = given.pop("profile", None)
    connection = read_connection(profile, **given)
    if connection.uri.startswith(_ATTACHED):
        from duckicelake.shell.ducklake import DuckLakeSession

        return DuckLakeSession(connection, profile or "lake")
    if profile is None and connection.uri == DEFAULT_URI and given.get("uri") is None:
        from dataclasses import replace

        from duckicelake.cli.serve.address import read_noted_uri

        connection = replace(connection, uri=read_noted_uri(_DEFAULT_FOLDER) or DEFAULT_URI)
    return RestSession(connection, profile or connection.uri.partition("://")[2].rstrip("/"))
