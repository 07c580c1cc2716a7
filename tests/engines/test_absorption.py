"""The law of test_interleaved in tables that have the small appends of Iceberg clients inlined."""

import os

import pytest

from tests.engines.engines import ALL, Engines, Model, assert_same, spark
from tests.engines.sequences import MERGE_ON_READ, SEQUENCES
from tests.engines.test_interleaved import assert_filtered

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

ABSORBING = "'ducklake.absorb-rows'='1000'"
PROPERTIES = {"v2": ABSORBING, "v3": f"'format-version'='3', {MERGE_ON_READ}, {ABSORBING}"}
EVERYTHING = bool(os.environ.get("DUCKICELAKE_TEST_EVERYTHING"))
CASES = [
    (name, version)
    for number, name in enumerate(SEQUENCES)
    for turn, version in enumerate(PROPERTIES)
    if EVERYTHING or (number + turn) % 2 == 0
]


@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")  # PyIceberg rewrites the files instead
@pytest.mark.parametrize(("sequence", "version"), CASES)
def test_all_engines_agree_after_every_step_where_small_appends_are_inlined(
    engines: Engines, namespace: str, sequence: str, version: str, pyiceberg_v3: None
) -> None:
    model = Model()
    for number, step in enumerate(SEQUENCES[sequence]):
        engines.do(step, f"{namespace}.t")
        if number == 0:
            engines.do(spark(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({PROPERTIES[version]})"), f"{namespace}.t")
        model.do(step)
        assert_same(engines, f"{namespace}.t", model, by=("PyIceberg", "DuckDB"))
    assert_filtered(engines, f"{namespace}.t", model, by=ALL)
