"""Names as people write them are names as Spark's SQL and the catalog have them."""

import pytest

from duckicelake.errors import BadInputError
from duckicelake.pipeline.destination import format_sql_name
from duckicelake.rest.names import format_name, parse_name, parse_table


@pytest.mark.parametrize(
    ("text", "namespace", "table", "sql"),
    [
        ("ns.t", ("ns",), "t", "`lake`.`ns`.`t`"),
        ("a.b.c", ("a", "b"), "c", "`lake`.`a`.`b`.`c`"),
        ("`a.b`.c", ("a.b",), "c", "`lake`.`a.b`.`c`"),
        ("a.`b``c.d`", ("a",), "b`c.d", "`lake`.`a`.`b``c.d`"),
        ("größe.1 2", ("größe",), "1 2", "`lake`.`größe`.`1 2`"),
    ],
)
def test_table_is_read_and_shown_again(text: str, namespace: tuple[str, ...], table: str, sql: str) -> None:
    assert parse_table(text) == (namespace, table)
    assert format_sql_name(namespace, table) == sql
    assert format_name(namespace, table) == text


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "a`b", "`a`b.c", "``.t"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        parse_name(text)


def test_table_needs_a_namespace() -> None:
    with pytest.raises(BadInputError, match=r"ns\.table"):
        parse_table("t")
