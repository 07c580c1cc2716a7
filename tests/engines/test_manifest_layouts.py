"""Spark's `rewrite_manifests`: manifests become what Spark makes of them, entries stay, and once is enough."""

import pytest

from tests.engines.engines import Engines, sorted_rows

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]

ENTRIES = (
    "SELECT snapshot_id, sequence_number, file_sequence_number, data_file.file_path, data_file.first_row_id,"
    " data_file.content_offset, data_file.record_count FROM {t}.entries WHERE status < 2 ORDER BY ALL"
)
MANIFESTS = "SELECT content, partition_spec_id, added_data_files_count + existing_data_files_count FROM {t}.manifests"
COUNTS = ("manifests-created", "manifests-kept", "manifests-replaced")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_manifests_are_rewritten_once_by_spec_and_sorted(engines: Engines, namespace: str, version: int) -> None:
    name, spark = f"lake.{namespace}.t", engines.spark
    spark.sql(
        f"CREATE TABLE {name} (id bigint, p int) PARTITIONED BY (p) TBLPROPERTIES ('format-version'='{version}',"
        " 'commit.manifest-merge.enabled'='false', 'write.delete.mode'='merge-on-read')"
    )
    for number in range(4):
        engines.duck.execute(
            f"INSERT INTO {name} SELECT range, range % 3 FROM range({20 * number}, {20 * number + 20})"
        )
        spark.sql(f"INSERT INTO {name} VALUES ({1000 + number}, {number % 3})")
    if version > 1:
        spark.sql(f"DELETE FROM {name} WHERE id IN (5, 25, 45)")
    spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD p")
    spark.sql(f"INSERT INTO {name} VALUES (2000, 1)")
    spark.sql(f"INSERT INTO {name} VALUES (2001, 2)")
    rows, entries = sorted_rows(engines.duck.sql(f"FROM {name}").to_arrow_table()), found(engines, ENTRIES, name)

    def rewrite(more: str) -> tuple[int, int]:
        (row,) = spark.sql(f"CALL lake.system.rewrite_manifests(table => '{name}', {more})").collect()
        return int(row[0]), int(row[1])

    assert rewrite("use_caching => true") == (2, 1)
    assert rewrite("use_caching => false") == (0, 0)
    before = found(engines, MANIFESTS, name)
    data = [int(str(files)) for content, spec, files in before if (content, spec) == (0, 0)]
    rewritten, added = rewrite("spec_id => 0, sort_by => array('p')")
    assert (rewritten, added) == (len(data), 1)
    after = found(engines, MANIFESTS, name)
    assert sorted(after) == sorted([(0, 1, 2), (0, 0, sum(data)), *([(1, 0, 0)] if version > 1 else [])])
    assert rewrite("spec_id => 0, use_caching => false") == (0, 0)
    assert found(engines, ENTRIES, name) == entries
    table = engines.catalog.load_table(f"{namespace}.t")
    summary = table.snapshots()[-1].summary
    assert summary is not None
    assert [summary[count] for count in COUNTS] == [str(added), str(len(after) - added), str(rewritten)]
    for engine, read in engines.read(f"{namespace}.t").items():
        assert sorted_rows(read) == rows, engine


def found(engines: Engines, query: str, name: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in engines.spark.sql(query.replace("{t}", name)).collect()]
