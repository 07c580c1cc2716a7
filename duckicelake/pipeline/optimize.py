"""PURE but for one question to the catalog. What is rewritten because somebody says so, not because it is due."""

from collections.abc import Iterator
from dataclasses import replace

from duckicelake.errors import BadInput, NoTable
from duckicelake.pipeline.layout import Order, SortKey, parse_order, parse_sort_keys
from duckicelake.pipeline.plan import Plan, PlannedJob
from duckicelake.pipeline.policy import policy_of
from duckicelake.pipeline.state import TableState
from duckicelake.rest.names import parse_table, shown

_ANY_DELETES = 1e-9


def order_of(sort_by: str | None, zorder_by: str | None) -> Order | None:
    """The order that rows are to be in within files; None: as they lie. BadInput."""
    if sort_by is not None and zorder_by is not None:
        raise BadInput("--sort-by and --zorder-by are two ways to lay out the same rows: give one of them")
    if zorder_by is None:
        return None if sort_by is None else parse_order(sort_by)
    keys = parse_sort_keys(zorder_by)
    if any(key != SortKey(key.part) or key.part.transform != "identity" for key in keys):
        raise BadInput(f"--zorder-by takes plain columns, as day,customer, not {zorder_by!r}")
    return Order(keys, is_zorder=True)


def optimization(
    tables: Iterator[TableState], name: str, order: Order | None, where: str | None, target_size: int | None
) -> Plan:
    """The one job: with an order all files are rewritten, without one those that are small or have deletes.

    `where` limits it to files that may hold such rows. NoTable if the catalog tells nothing of the table.
    """
    namespace, table = parse_table(name)
    state = next(tables, None)
    if state is None:
        raise NoTable(f"there is no table {shown(namespace, table)}")
    policy = policy_of(state.policies)
    wanted = replace(policy, order=order or policy.order, min_files=2, delete_ratio=_ANY_DELETES)
    return Plan(
        (
            PlannedJob(
                kind="compact" if order is None else "sort",
                namespace=namespace,
                table=table,
                why="asked for" + (f", where {where}" if where else ""),
                policy=wanted,
                target_size=target_size or state.target_size,
                where=where,
            ),
        )
    )
