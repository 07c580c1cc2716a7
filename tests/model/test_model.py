"""DuckDB, PyIceberg and server-side clients do whatever they like in any order, and all read what the model has."""

import os

import pytest

from duckicelake.catalog.context.services import Services
from tests.conftest import Attach
from tests.model.opening import new_lake
from tests.model.run import OPERATIONS, Step, chosen, run, shrunk

LAKES = [(mode, version) for mode in ("client", "ducklake") for version in (2, 3)]
RUNS_OF_EACH = 40 if os.environ.get("DUCKICELAKE_TEST_EVERYTHING") else 1
STEPS = 100
RUNS = [(*lake, seed) for seed, lake in enumerate(LAKES * RUNS_OF_EACH)]


@pytest.mark.model
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")  # PyIceberg's overwrite of nothing
@pytest.mark.parametrize(("mode", "version", "seed"), RUNS)
def test_any_order_of_operations_leaves_what_the_model_has(
    services: Services, attach: Attach, mode: str, version: int, seed: int
) -> None:
    with new_lake(services, attach, mode, version) as lake:
        run(lake, chosen(lake, seed, STEPS))


def test_there_are_forty_operations_and_more() -> None:
    clients = {name.split(".")[0] for name in OPERATIONS}
    assert clients == {"duckdb", "pyiceberg", "server"}
    assert len(OPERATIONS) >= 40


def test_shrunk_leaves_the_steps_that_matter() -> None:
    plan = [Step("duckdb.flush", number) for number in range(50)]
    needed = {3, 17, 44}
    found = shrunk(plan, lambda steps: needed <= {step.seed for step in steps})
    assert {step.seed for step in found} == needed
