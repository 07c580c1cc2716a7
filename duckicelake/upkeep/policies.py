"""Policies of upkeep: those of the whole lake, and what a table's come to, with who says each."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.errors import BadInputError, InvalidRequestError, NoSuchNamespaceError, NoSuchTableError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, to_schema_name
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.maintenance.policy import parse_policy
from duckicelake.postgres.queries import load_queries
from duckicelake.properties import GC_ENABLED, is_like_policy, is_policy, suggest_policy
from duckicelake.upkeep import queue

_SQL = load_queries("upkeep", "policies")
_DUCKLAKES: Final = frozenset({"expire_older_than", "parquet_compression", GC_ENABLED})
"""Beside those that `is_like_policy` knows."""


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """A policy of a table or namespace. source: who says it: settings, lake, a DuckLake option, namespace, or table."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class EffectivePolicies:
    """The policies of a table or namespace that are set; others have their defaults. problem: what is wrong."""

    values: tuple[PolicyValue, ...]
    problem: str | None = None


def find_policies(services: Services, namespace: Namespace, table: str | None) -> EffectivePolicies:
    """Find the policies of a table, or those that a namespace hands on, and who says each.

    Raises NoSuchTableError, NoSuchNamespaceError.
    """
    names = {"schema_name": to_schema_name(namespace), "table_name": table}
    with services.database.reading() as cursor:
        ((is_live,),) = cursor.execute(_SQL.is_live, names).fetchall()
        layers = cursor.execute(_SQL.layers, names).fetchall()
    if not is_live and table is None:
        raise NoSuchNamespaceError(f"Namespace does not exist: {names['schema_name']}")
    if not is_live:
        raise NoSuchTableError(f"Table does not exist: {format_full_name(namespace, table or '')}")
    said = {name: PolicyValue(name, value, "settings") for name, value in services.maintenance.items()}
    said |= {name: PolicyValue(name, value, source) for source, name, value in layers if _decides(name)}
    values = tuple(said[name] for name in sorted(said))
    try:
        parse_policy({value.name: value.value for value in values})
    except BadInputError as error:
        return EffectivePolicies(values, str(error))
    return EffectivePolicies(values)


def find_nearest(
    services: Services, policy: str, tables: Collection[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, str | None]]:
    """Find the id of each live table of these names of schema and table, and what the nearest says of one policy."""
    schemas, names = zip(*tables, strict=True) if tables else ((), ())
    parameters = {"schemas": list(schemas), "tables": list(names), "policy": policy}
    with services.database.statement(only_reads=True) as cursor:
        rows = cursor.execute(_SQL.nearest, parameters).fetchall()
    default = services.maintenance.get(policy)
    return {(schema, name): (table_id, default if said is None else said) for schema, name, table_id, said in rows}


def read_lake_policies(services: Services) -> dict[str, str]:
    """Read the policies of the whole lake."""
    with services.database.reading() as cursor:
        return queue.read_policies(cursor)


def set_lake_policies(services: Services, policies: Mapping[str, str]) -> dict[str, str]:
    """Replace the policies of the whole lake. Raises InvalidRequestError for those that can't be."""
    wrong = next((name for name in policies if not is_policy(name)), None)
    if wrong is not None:
        raise InvalidRequestError(f"{wrong!r} is no policy of a lake: {suggest_policy(wrong)}")
    try:
        parse_policy(policies)
    except BadInputError as error:
        raise InvalidRequestError(f"The policies can't be: {error}") from error
    with services.database.transaction() as cursor:
        queue.write_policies(cursor, policies)
        services.settle(cursor, [AuditedResource("", detail={"policies": dict(policies)})])
    return dict(policies)


def _decides(name: str) -> bool:
    return is_like_policy(name) or name in _DUCKLAKES
