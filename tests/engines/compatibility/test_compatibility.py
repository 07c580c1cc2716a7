"""Every engine is tried at every ability on a lake on S3 that asks for logins; docs/engines.md says how it went."""

from collections.abc import Iterator

import pytest

from scripts.backends_job.minio import Minio
from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import RunningLake
from scripts.engines_job.packages import EngineError
from tests.engines.compatibility.abilities import ABILITIES, Lake
from tests.engines.compatibility.acts import Fails, Lacks
from tests.engines.compatibility.drivers import ENGINES, Engine, Place, Run
from tests.engines.compatibility.results import Cell, keep_cell, read_cells
from tests.engines.conftest import new_folder
from tests.engines.guarded import guarded_lake

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def guarded(minio: Minio) -> Iterator[RunningLake]:
    with guarded_lake(minio, "for-engines") as lake:
        yield lake


@pytest.fixture(scope="module")
def lake(guarded: RunningLake) -> Iterator[Lake]:
    with duckdb_lake(guarded) as duck, pyiceberg_catalog(guarded) as catalog:
        duck.execute("CREATE SCHEMA lake.zoo")
        duck.execute("CREATE TABLE lake.zoo.birds AS FROM (VALUES ('duck', 2), ('ostrich', 2)) t (name, legs)")
        yield Lake(duck, catalog)


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: engine.name.replace(" ", "-").replace("`", ""))
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    return found


@pytest.fixture(scope="module")
def run(engine: Engine, guarded: RunningLake, minio: Minio, lake: Lake) -> Iterator[Run]:
    """Run the engine, with a namespace of its own."""
    lake.catalog.create_namespace_if_not_exists(namespace_of(engine))
    with new_folder() as folder, engine.run(Place(guarded, minio, folder)) as running:
        yield running


def namespace_of(engine: Engine) -> str:
    return "for_" + "".join(letter if letter.isalnum() else "_" for letter in engine.name.lower())


@pytest.mark.parametrize("name", ABILITIES)
def test_an_engine_does_what_the_table_says(engine: Engine, run: Run, lake: Lake, name: str) -> None:
    act = engine.acts[name]
    if isinstance(act, Lacks):
        cell = Cell("cannot", act.why)
    else:
        ability, table = ABILITIES[name], f"{namespace_of(engine)}.t_{name}"
        ability.make(lake, table)
        if isinstance(act, Fails):
            with pytest.raises(EngineError, match=act.match) as failure:
                run_act(engine, run, lake, table, act.statements)
            print(failure.value)
            cell = Cell("refused" if act.by_server else "fails", act.why)
        else:
            answer = run_act(engine, run, lake, table, act)
            if ability.answer is not None:
                assert answer == list(ability.answer)
            if ability.left is not None:
                assert lake.rows(table) == list(ability.left)
            assert ability.check(lake, table)
            cell = Cell("works")
    keep_cell(engine, name, cell)
    known = read_cells(engine.name).get(name)
    if known != cell:
        pytest.fail(f"results.json has {known}, found {cell}: python -m tests.engines.compatibility writes it", False)


def run_act(engine: Engine, run: Run, lake: Lake, table: str, statements: tuple[str, ...]) -> list[tuple[object, ...]]:
    """Run an act on a table; return the rows of its last statement."""
    namespace, _, name = table.partition(".")
    places = {
        "t": engine.table.format(namespace, name),
        "v": engine.view.format(namespace, name),
        "table": table,
        "snapshot": "",
    }
    if any("{snapshot}" in statement for statement in statements):
        snapshot = lake.catalog.load_table(table).current_snapshot()
        assert snapshot is not None
        places["snapshot"] = str(snapshot.snapshot_id)
        lake.duck.execute(f"INSERT INTO lake.{table} VALUES (9, 'Ida')")
    rows: list[tuple[object, ...]] = []
    for statement in statements:
        rows = [tuple(row) for row in run(statement.format(**places))]
    return rows
