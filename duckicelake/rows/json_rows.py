"""PURE. Rows that come as JSON objects."""

from collections.abc import Mapping, Sequence
from itertools import chain, compress, repeat
from operator import itemgetter
from typing import Any

from duckicelake.rows.batch import Batch, check_count
from duckicelake.rows.bounds import check_inside, inside_json
from duckicelake.rows.json_columns import JsonColumn, check_names
from duckicelake.rows.layout import Layout
from duckicelake.rows.problems import MISSING, MOST_NAMED, MisfitError, OnUnknown, Problem, problem, refuse


def read_objects(rows: Sequence[Any], layout: Layout, on_unknown: OnUnknown) -> Batch:
    """The objects as rows of the layout; InvalidRequest names what doesn't fit."""
    check_count(len(rows), layout)
    columns = layout.json_columns(on_unknown)
    problems: list[Problem] = []
    _check_objects(rows, columns, on_unknown, problems)
    refuse(problems)
    for column in layout.widening:
        check_inside(chain.from_iterable(inside_json(row.get(column.name), column) for row in rows))
    pairs = zip(columns.values(), _gathered(rows, columns), strict=True)
    read = [column.read_all(values, problems) for column, values in pairs]
    refuse(problems)
    return Batch(layout, len(rows), values=list(compress(read, layout.is_stored)))


def _check_objects(
    rows: Sequence[Any], columns: Mapping[str, JsonColumn], on_unknown: OnUnknown, problems: list[Problem]
) -> None:
    """Find rows that are no objects, and names of no column."""
    names = columns.keys()
    for index, row in enumerate(rows):
        if type(row) is dict and row.keys() <= names:
            continue
        try:
            _check_object(row, columns, on_unknown)
        except MisfitError as misfit:
            problems.append(problem(index, None, misfit))
            if len(problems) > MOST_NAMED:
                return


def _check_object(row: Any, columns: Mapping[str, JsonColumn], on_unknown: OnUnknown) -> None:
    if type(row) is not dict:
        raise MisfitError(row, "write an object, of names and values")
    check_names(row, columns, on_unknown)


def _gathered(rows: Sequence[dict[str, Any]], columns: Mapping[str, JsonColumn]) -> list[Sequence[Any]]:
    """The values of each column."""
    if not rows:
        return [()] * len(columns)
    names = list(columns)
    if len(names) > 1:
        try:
            return list(zip(*map(itemgetter(*names), rows), strict=True))
        except KeyError:
            pass
    return [list(map(dict.get, rows, repeat(name), repeat(MISSING))) for name in names]
