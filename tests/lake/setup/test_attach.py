"""What DuckDB's ATTACH is given, quoted for SQL and for libpq."""

import pytest

from duckicelake.errors import InvalidSettingsError
from duckicelake.lake.ducklake.database import build_attach_source, build_duckdb_attach


def test_attach_quotes_what_sql_and_conninfo_need_quoted() -> None:
    sql = build_duckdb_attach("postgresql://u:pass%27w%20d@host/db", alias='my "lake"', data_path="/it's/")

    assert sql.startswith("ATTACH 'ducklake:postgres:")
    assert "password=''pass\\''w d''" in sql
    assert sql.endswith(' AS "my ""lake""" (DATA_PATH \'/it\'\'s/\')')


def test_parameters_follow_the_options_of_the_url() -> None:
    parameters = {"client_encoding": "UTF8", "options": "-c b=2"}
    source = build_attach_source("postgresql://host/db?options=-c%20a%3D1", parameters)
    assert source == "ducklake:postgres:dbname=db host=host options='-c a=1 -c b=2' client_encoding=UTF8"


def test_attach_names_a_url_that_libpq_cannot_read() -> None:
    with pytest.raises(InvalidSettingsError, match="not a Postgres URL"):
        build_duckdb_attach("elsewhere")
