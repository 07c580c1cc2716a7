"""No literal and no comment is left in masked SQL, whatever it looks like."""

import re

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckicelake.lineage.sql.dialects import mask_message, mask_sql, may_show_values
from tests.support.examples import count_examples


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 'x', 1, 1.5, .5, 1e5, -3 FROM t", "SELECT ?, ?, ?, .?, ?, -? FROM t"),
        ("SELECT 'it''s', $$a$$, $q$ 'b' $q$, E'\\'c'", "SELECT ?, ?, ?, ?"),
        ("SELECT 0xFF, 1_000, x'AB', DATE '2020-01-01'", "SELECT ?, ?, x?, DATE ?"),
        ('SELECT a1, "b 2", t.c3 -- secret\nFROM t /* secret */ WHERE a', 'SELECT a1, "b 2", t.c3 FROM t WHERE a'),
        ("SELECT  a,\n       b\nFROM t", "SELECT  a,\n       b\nFROM t"),
        ("SELECT :name, $1, ?", "SELECT :name, $?, ?"),
        ("COPY t TO 's3://bucket/key?token=x' (HEADER true)", "COPY t TO ? (HEADER true)"),
        ("SELECT INTERVAL 3 DAY, CAST(a AS DECIMAL(10, 2))", "SELECT INTERVAL ? DAY, CAST(a AS DECIMAL(?, ?))"),
    ],
)
def test_duckdbs_literals_are_masked_and_the_rest_stays_as_it_was(sql: str, expected: str) -> None:
    assert mask_sql(sql, "duckdb") == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT \"text\", `name`, r'x\\', X'1A' FROM t", "SELECT ?, `name`, ?, ? FROM t"),
        ("SELECT 10L, 1.0BD, 5Y", "SELECT ?, ?, ?"),
        ("SELECT 'it\\'s' -- secret", "SELECT ?"),
    ],
)
def test_sparks_literals_are_masked(sql: str, expected: str) -> None:
    assert mask_sql(sql, "spark") == expected


@pytest.mark.parametrize("sql", ["SELECT 'secret", "SELECT $$secret", "/* secret", 'SELECT "secret'])
def test_text_that_does_not_end_is_kept_out(sql: str) -> None:
    assert "secret" not in (mask_sql(sql, "duckdb") or "")


def test_text_in_an_unknown_dialect_is_kept_out() -> None:
    assert mask_sql("SELECT 1", "cobol") is None


def test_very_long_text_is_kept_out_or_cut() -> None:
    assert mask_sql(f"SELECT '{'x' * 1_000_000}'", "duckdb") is None
    assert len(mask_sql(f"SELECT {', '.join(['a'] * 50_000)}", "duckdb") or "") == 20_000


VALUE = "xq7Zz"
QUOTES = st.sampled_from(
    ["'{}'", "$${}$$", "$t${}$t$", "E'{}'", "E'\\'{}'", "'''{}'", "/*{}*/ 1", "--{}\n1", "'--{}'", "'/*{}'"]
)


@settings(max_examples=count_examples(300), deadline=None)
@given(st.lists(QUOTES | st.sampled_from(["a", "1", "t.b", "NULL", "f(x)", '"c"']), min_size=1, max_size=8))
def test_value_is_masked_however_it_is_quoted(parts: list[str]) -> None:
    sql = f"SELECT {', '.join(parts)}".replace("{}", VALUE)
    duckdb.extract_statements(sql)
    found = mask_sql(sql, "duckdb")
    assert found is not None
    assert VALUE not in found
    assert found.count("?") == sum(not re.fullmatch(r'a|t\.b|NULL|f\(x\)|"c"', each) for each in parts)


@settings(max_examples=count_examples(300), deadline=None)
@given(st.text(alphabet="'\"$\\-/* \nEexXab19_.;()", max_size=40))
def test_statement_of_any_text_keeps_neither_quotes_nor_numbers(text: str) -> None:
    """But in names; DuckDB says what is a statement."""
    sql = f"SELECT {text}"
    try:
        duckdb.extract_statements(sql)
    except duckdb.Error:
        return
    rest = re.sub(r'"(?:[^"]|"")*"', "", mask_sql(sql, "duckdb") or "")
    assert "'" not in rest
    assert re.search(r"(?<![\w$])\d", rest) is None


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT 'secret'::INT", "ConversionException"),
        ("SELECT error('secret')", "InvalidInputException"),
        ("SELECT 'secret' 'x'", "ParserException"),
        ("FROM read_csv('secret.csv')", "IOException"),
        ("SELECT nope FROM range(3)", 'Binder Error: Referenced column "nope" not found in FROM clause!'),
        ("SELECT 'secret' FROM nowhere_5", "Catalog Error: Table with name nowhere_5 does not exist!"),
    ],
)
def test_message_shows_names_but_no_values(statement: str, message: str) -> None:
    with pytest.raises(duckdb.Error) as raised:
        duckdb.connect().execute(statement).fetchall()
    assert mask_message(raised.value) == message
    assert mask_message(raised.value, keep=True) == str(raised.value)


@pytest.mark.parametrize("name", ["a", "größe", "col_1", "count_star()", "a b", "x2"])
def test_plain_names_show_no_values(name: str) -> None:
    assert not may_show_values(name)


@pytest.mark.parametrize("name", ["(a = 42)", "'x'", "42", "(a || 'x')", "concat(a, 'x"])
def test_names_of_expressions_may_show_values(name: str) -> None:
    assert may_show_values(name)
