"""The bounds of a load's DuckDB: no more threads than its memory has room for, and those that were asked for."""

import duckdb
import pytest

from duckicelake.file_import.duckdb_session import open_duckdb, read_in_order
from duckicelake.file_import.load_request import FileLoad
from duckicelake.pipeline.destination import Target, build_load_request
from tests.file_import.conftest import Loads


def count_threads(duck: duckdb.DuckDBPyConnection) -> int:
    return int(duck.sql("SELECT current_setting('threads')").fetchall()[0][0])


@pytest.mark.parametrize(
    ("memory", "threads", "taken"),
    [("300MB", 64, 4), ("700MB", 64, 10), ("10GB", 64, 64), ("700MB", 1, 1), ("20MB", 8, 1), ("1.5GiB", 2, 2)],
)
def test_threads_are_those_that_the_memory_has_room_for(memory: str, threads: int, taken: int) -> None:
    load = build_load_request(Target(("loads",), "t"), "append", (), may_change=True)
    with open_duckdb(FileLoad((), load, memory=memory, threads=threads)) as (duck, _):
        assert count_threads(duck) == taken
        with read_in_order(duck):
            assert count_threads(duck) == 1
        assert count_threads(duck) == taken


@pytest.mark.commands
@pytest.mark.parametrize("threads", [1, 2, 8, 64])
@pytest.mark.parametrize(("name", "record"), [("csv", "1,x\n"), ("jsonl", '{"id": 1, "t": "x"}\n')])
def test_small_files_need_little_memory_on_many_cores(
    loads: Loads, table: str, name: str, record: str, threads: int
) -> None:
    folder = loads.new_folder()
    for number in range(100):
        (folder / f"{number}.{name}").write_text(("id,t\n" if name == "csv" else "") + record)
    found = loads.run(str(folder), "--table", table, "--yes", "--memory", "300MB", "--threads", str(threads))
    assert (found["rows"], found["quarantined"]) == (100, 0)


@pytest.mark.commands
@pytest.mark.parametrize("layout", [(), ("--partition-by", "bucket(2, id)"), ("--sort-by", "c3")])
def test_wide_rows_need_little_memory_on_many_cores(loads: Loads, table: str, layout: tuple[str, ...]) -> None:
    file = loads.new_folder() / "a.parquet"
    texts = ", ".join(f"CAST(hash(range + {number}) AS VARCHAR) AS c{number}" for number in range(20))
    duckdb.sql(f"COPY (SELECT range AS id, {texts} FROM range(300000)) TO '{file}' (ROW_GROUP_SIZE 20000)")
    found = loads.run(str(file), "--table", table, "--yes", "--memory", "300MB", "--threads", "4", *layout)
    assert found["rows"] == 300_000
    assert loads.rows(f"SELECT count(DISTINCT id), count(c19) FROM lake.{table}") == [(300_000, 300_000)]
