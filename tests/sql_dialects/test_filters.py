"""Conditions in SQL as Iceberg's filters: what they mean, and what is left to engines."""

from typing import Any

import pytest

from duckicelake.iceberg.expressions import ColumnTest, ConstantPredicate, Junction, NotPredicate, Predicate
from duckicelake.iceberg.schema import Schema
from duckicelake.sql_dialects.filters import InvalidConditionError, parse_row_filter, parse_sql_filter

_TYPES = {"id": "long", "name": "string", "x": "double", "day": "date", "ts": "timestamp", "flag": "boolean"}
SCHEMA = Schema.model_validate(
    {
        "type": "struct",
        "fields": [
            *(
                {"id": n, "name": name, "type": kind, "required": False}
                for n, (name, kind) in enumerate(_TYPES.items(), 1)
            ),
            {
                "id": 7,
                "name": "s",
                "required": False,
                "type": {"type": "struct", "fields": [{"id": 8, "name": "My a", "type": "int", "required": False}]},
            },
        ],
    }
)


def show(predicate: Predicate) -> Any:
    """The predicate in short."""
    match predicate:
        case ConstantPredicate():
            return predicate.holds
        case Junction():
            return (show(predicate.left), predicate.operator, show(predicate.right))
        case NotPredicate():
            raise AssertionError("negations are pushed down")
        case ColumnTest():
            return (predicate.column, predicate.operator, *(constant.json for constant in predicate.values))


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("id = 5", ("id", "eq", 5)),
        ("5 < ID", ("id", "gt", 5)),
        ("id >= -5", ("id", "gt-eq", -5)),
        ("x < 1.5e3", ("x", "lt", "1.5e3")),
        ("id <> 5", (("id", "not-null"), "and", ("id", "not-eq", 5))),
        ("NOT (id < 5)", ("id", "gt-eq", 5)),
        ("NOT id = 5", (("id", "not-null"), "and", ("id", "not-eq", 5))),
        ("id IN (1, 2)", ("id", "in", 1, 2)),
        ("id NOT IN (1, 2)", (("id", "not-null"), "and", ("id", "not-in", 1, 2))),
        ("id BETWEEN 1 AND 2", (("id", "gt-eq", 1), "and", ("id", "lt-eq", 2))),
        ("id NOT BETWEEN 1 AND 2", (("id", "lt", 1), "or", ("id", "gt", 2))),
        ("name IS NULL", ("name", "is-null")),
        ("name IS NOT NULL", ("name", "not-null")),
        ("isnan(x)", ("x", "is-nan")),
        ("name LIKE 'ab%'", ("name", "starts-with", "ab")),
        ("name LIKE 'ab%c'", ("name", "starts-with", "ab")),
        ("name LIKE 'ab'", ("name", "eq", "ab")),
        ("name NOT LIKE 'ab%'", (("name", "not-null"), "and", ("name", "not-starts-with", "ab"))),
        ("starts_with(name, 'ab')", ("name", "starts-with", "ab")),
        ("day = DATE '2026-11-01'", ("day", "eq", "2026-11-01")),
        ("ts < TIMESTAMP '2026-11-01 03:04'", ("ts", "lt", "2026-11-01T03:04:00")),
        ("ts < '2026-11-01'", ("ts", "lt", "2026-11-01T00:00:00")),
        ("ts < '2026-11-01 03:04:05.123456'", ("ts", "lt", "2026-11-01T03:04:05.123456")),
        ("flag", ("flag", "eq", True)),
        ("NOT flag", ("flag", "eq", False)),
        ('s."My a" = 1', ("s.My a", "eq", 1)),
        ("id = NULL", False),
        (
            "NOT (id = 1 OR name = 'a')",
            (
                (("id", "not-null"), "and", ("id", "not-eq", 1)),
                "and",
                (("name", "not-null"), "and", ("name", "not-eq", "a")),
            ),
        ),
        ("true", True),
        ("NOT true", False),
    ],
)
def test_a_condition_is_a_filter(sql: str, wanted: Any) -> None:
    found = parse_sql_filter(sql, SCHEMA)
    assert (show(found.predicate), found.ignored) == (wanted, ())


@pytest.mark.parametrize(
    ("sql", "wanted", "ignored"),
    [
        ("id = 5 AND length(name) > 3", (("id", "eq", 5), "and", True), ("LENGTH(name) > 3",)),
        ("id = 5 OR length(name) > 3", True, ("id = 5 OR LENGTH(name) > 3",)),
        (
            "NOT (id = 5 OR id = id)",
            ((("id", "not-null"), "and", ("id", "not-eq", 5)), "and", True),
            ("NOT (id = id)",),
        ),
        ("name LIKE '%a'", True, ("name LIKE '%a'",)),
        ("name NOT LIKE 'a%b'", True, ("name NOT LIKE 'a%b'",)),
        ("name ILIKE 'a%'", True, ("name ILIKE 'a%'",)),
        ("id IN (SELECT 1)", True, ("id IN (SELECT 1)",)),
        ("CAST(ts AS DATE) = '2026-11-01'", True, ("CAST(ts AS DATE) = '2026-11-01'",)),
    ],
)
def test_what_no_statistics_decide_is_left_out_and_named(sql: str, wanted: Any, ignored: tuple[str, ...]) -> None:
    found = parse_sql_filter(sql, SCHEMA)
    assert (show(found.predicate), found.ignored) == (wanted, ignored)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("nme = 1", "Cannot find column 'nme': expected one of id, name"),
        ("id = ", "expected what follows WHERE in DuckDB's SQL"),
        ("WHERE id = 1", "expected what follows WHERE in DuckDB's SQL"),
        ("id = 1; DROP TABLE t", "anything but one query"),
        ("SELECT 1", "expected what follows WHERE"),
        ("(" * 300 + "id = 1" + ")" * 300, "nested this deep"),
        (" OR ".join(["id = 1"] * 1001), "up to 1000 predicates"),
    ],
)
def test_what_is_no_condition_is_refused_by_name(sql: str, reason: str) -> None:
    with pytest.raises(InvalidConditionError) as refusal:
        parse_sql_filter(sql, SCHEMA)
    assert reason in str(refusal.value)


def test_a_thousand_conditions_make_a_flat_tree() -> None:
    found = parse_sql_filter(" OR ".join(f"id = {number}" for number in range(900)), SCHEMA)
    depth, level = 0, [found.predicate]
    while level:
        depth += 1
        level = [part for node in level if isinstance(node, Junction) for part in (node.left, node.right)]
    assert depth <= 12


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("name = 'EU' AND id < 5", (("name", "eq", "EU"), "and", ("id", "lt", 5))),
        ("name LIKE 'a%'", ("name", "starts-with", "a")),
        ('s."My a" IS NULL OR flag', (("s.My a", "is-null"), "or", ("flag", "eq", True))),
        ("name <> 'EU'", (("name", "not-null"), "and", ("name", "not-eq", "EU"))),
    ],
)
def test_row_filter_is_read_whole(sql: str, wanted: Any) -> None:
    assert show(parse_row_filter(sql, SCHEMA)) == wanted


@pytest.mark.parametrize(
    "sql",
    [
        "name LIKE 'a%b'",
        "name LIKE 'a_'",
        "name ILIKE 'a%'",
        "id = 5 AND length(name) > 3",
        "id = x",
        "id IN (SELECT 1)",
        "day > current_date",
        "name = 'a' AND (name = current_user OR id = 5)",
        "id % 2 = 0",
    ],
)
def test_row_filter_that_iceberg_cannot_say_is_refused_naming_the_part(sql: str) -> None:
    """What engines leave out of a WHERE, they evaluate; what a row filter left out would show more rows."""
    with pytest.raises(InvalidConditionError, match=r"Iceberg's filters can't say .+: expected comparisons"):
        parse_row_filter(sql, SCHEMA)
