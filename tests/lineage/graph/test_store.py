"""Events as they are kept, in any order, and what graph they come to."""

import random
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from duckicelake.lineage.graph.store import count_kept, forget_runs, record_events
from duckicelake.postgres.database import Database
from tests.support.lineage_events import (
    CATALOG,
    START,
    Json,
    at,
    columns,
    dataset_event,
    event,
    facet,
    foreign,
    job_event,
    run_id,
    table,
)

ORDERS, RAW, SUMS = table("sales.orders"), table("sales.raw"), table("sales.sums")
EDGES = """SELECT s.name, t.name, e.until IS NOT NULL, e.confidence FROM duckicelake_lineage_edge e
           JOIN duckicelake_lineage_dataset s ON s.id = e.source JOIN duckicelake_lineage_dataset t ON t.id = e.target
           ORDER BY 1, 2"""
COLUMNS = """SELECT s.name, source_field, t.name, target_field, c.kind, subtype, c.confidence
             FROM duckicelake_lineage_column c JOIN duckicelake_lineage_dataset s ON s.id = c.source
             JOIN duckicelake_lineage_dataset t ON t.id = c.target WHERE until IS NULL ORDER BY 1, 2, 3, 4, 5"""
TABLES = ("event", "dataset", "name", "job", "run", "io", "job_io", "edge", "column")


class Store:
    def __init__(self, database: Database) -> None:
        self.database = database

    def record(self, *events: Json, origin: str = "catalog") -> int:
        with self.database.transaction() as cursor:
            return record_events(cursor, events, origin=origin)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.database.reading() as cursor:
            return cursor.execute(query).fetchall()

    def edges(self) -> list[tuple[str, str]]:
        return [(source, target) for source, target, is_over, _ in self.rows(EDGES) if not is_over]

    def everything(self) -> dict[str, list[str]]:
        """All rows without the ids that depend on the order in which they came."""
        hidden = {"id", "event_id", "dataset_id", "source", "target", "job_id", "recorded", "key"}
        report = {}
        for name in TABLES:
            with self.database.reading() as cursor:
                rows = cursor.execute(f"SELECT * FROM duckicelake_lineage_{name}").fetchall()  # type: ignore[arg-type]
                names = [column.name for column in cursor.description or ()]
            kept = [number for number, column in enumerate(names) if column not in hidden]
            report[name] = sorted(repr([row[number] for number in kept]) for row in rows)
        return report


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


def test_run_that_completes_makes_an_edge_from_each_input_to_its_output(store: Store) -> None:
    store.record(event(1, "START", inputs=(RAW, ORDERS)), event(1, outputs=(SUMS,)))
    assert store.edges() == [("/lake/sales.orders", "/lake/sales.sums"), ("/lake/sales.raw", "/lake/sales.sums")]


@pytest.mark.parametrize("kinds", [("START",), ("START", "FAIL"), ("START", "ABORT")])
def test_run_by_which_nothing_flows_makes_no_edge_but_is_kept(store: Store, kinds: tuple[str, ...]) -> None:
    store.record(*(event(1, kind, inputs=(RAW,), outputs=(SUMS,), minutes=n) for n, kind in enumerate(kinds)))
    assert store.edges() == []
    assert store.rows("SELECT state FROM duckicelake_lineage_run") == [(kinds[-1],)]


def test_same_event_twice_changes_nothing(store: Store) -> None:
    report = event(1, inputs=(RAW,), outputs=(SUMS,))
    assert store.record(report, report) == 1
    before = store.everything()
    assert store.record(report) == 0
    assert store.record(report, origin="received") == 0
    assert store.everything() == before


def story() -> list[Json]:
    """Runs whose parts may come in any order."""
    made = columns(("total", ORDERS, "amount", "DIRECT", "AGGREGATION"), ("", ORDERS, "day", "INDIRECT", "FILTER"))
    return [
        event(1, "START", minutes=1, inputs=(RAW,), outputs=(table("sales.orders", schema=facet(fields=[])),)),
        event(1, "RUNNING", minutes=2, job="job"),
        event(1, "COMPLETE", minutes=3, outputs=(table("sales.orders", version=facet(datasetVersion="7")),)),
        event(2, "START", minutes=4, inputs=(ORDERS,), job="sums"),
        event(2, "COMPLETE", minutes=5, outputs=(table("sales.sums", columnLineage=made),), job="sums"),
        event(3, "START", minutes=6, inputs=(SUMS,), outputs=(RAW,), job="back"),
        event(3, "FAIL", minutes=7, job="back", errorMessage=facet(message="no", programmingLanguage="SQL")),
    ]


def test_events_in_any_order_and_in_any_portions_come_to_the_same_graph(store: Store, database: Database) -> None:
    store.record(*story())
    expected = store.everything()
    chance = random.Random(7)
    for _ in range(8):
        with database.transaction() as cursor:
            for name in TABLES:
                cursor.execute(f"TRUNCATE duckicelake_lineage_{name}")  # type: ignore[arg-type]
        events = story()
        chance.shuffle(events)
        while events:
            portion = chance.randint(1, 3)
            store.record(*events[:portion])
            del events[:portion]
        assert store.everything() == expected


def test_columns_reported_at_the_start_count_once_the_run_completes(store: Store) -> None:
    made = table("sales.sums", columnLineage=columns(("a", RAW, "b")))
    store.record(event(1, "START", inputs=(RAW,), outputs=(made,)))
    assert store.rows(COLUMNS) == []
    store.record(event(1, "COMPLETE"))
    assert [row[1:6] for row in store.rows(COLUMNS)] == [("b", "/lake/sales.sums", "a", "DIRECT", "IDENTITY")]


def test_columns_of_the_first_versions_of_the_facet_are_direct_with_the_type_of_their_field(store: Store) -> None:
    given = {"namespace": "file", "name": "/lake/sales.raw", "field": "b"}
    old = facet(
        fields={"a": {"inputFields": [given], "transformationType": "MASKED", "transformationDescription": "x"}}
    )
    store.record(event(1, inputs=(RAW,), outputs=(table("sales.sums", columnLineage=old),)))
    assert [row[4:6] for row in store.rows(COLUMNS)] == [("DIRECT", "MASKED")]


def test_one_of_several_outputs_that_shows_its_columns_comes_only_from_what_they_name(store: Store) -> None:
    report = table("sales.sums", columnLineage=columns(("a", RAW, "a")))
    store.record(event(1, inputs=(RAW, table("sales.x")), outputs=(report, ORDERS)))
    assert store.edges() == [
        ("/lake/sales.raw", "/lake/sales.orders"),
        ("/lake/sales.raw", "/lake/sales.sums"),
        ("/lake/sales.x", "/lake/sales.orders"),
    ]


def inferred(dataset: Json, confidence: float) -> Json:
    return dataset | {"inputFacets": {"duckicelake_inferred": facet(confidence=confidence)}}


def test_run_with_too_many_inputs_and_outputs_is_kept_without_edges(store: Store) -> None:
    inputs = tuple(foreign("pg://x", f"in{number}") for number in range(501))
    outputs = tuple(foreign("pg://x", f"out{number}") for number in range(500))
    store.record(event(1, "START", inputs=inputs), event(1, outputs=outputs, minutes=2))
    assert store.edges() == []
    assert store.rows("SELECT count(*) FROM duckicelake_lineage_io") == [(1001,)]


def test_inferred_input_says_how_sure_it_is_until_it_is_reported(store: Store) -> None:
    made = table("sales.sums", columnLineage=columns(("a", RAW, "a")))
    store.record(event(1, inputs=(inferred(RAW, 0.5), ORDERS), outputs=(made,)))
    store.record(event(2, inputs=(inferred(RAW, 0.75),), outputs=(made,)))
    assert {source: sure for source, _, _, sure in store.rows(EDGES)} == {
        "/lake/sales.raw": 0.75,
        "/lake/sales.orders": None,
    }
    assert [row[6] for row in store.rows(COLUMNS)] == [0.75]
    store.record(event(3, inputs=(RAW,), outputs=(made,)))
    assert [row[3] for row in store.rows(EDGES)] == [None, None]
    assert [row[6] for row in store.rows(COLUMNS)] == [None]


def named(store: Store) -> dict[str, str]:
    """Which place each table's name leads to now."""
    query = """SELECT n.name, d.name FROM duckicelake_lineage_name n JOIN duckicelake_lineage_dataset d
               ON d.id = n.dataset_id WHERE n.is_table AND n.until IS NULL"""
    return dict(store.rows(query))


def test_dataset_known_by_its_tables_name_becomes_one_with_its_place(store: Store) -> None:
    store.record(event(1, inputs=(foreign(CATALOG, "sales.raw"),), outputs=(SUMS,)))
    store.record(event(2, inputs=(foreign("file", "/lake/sales.raw"),), outputs=(SUMS,)))
    store.record(event(3, inputs=(RAW,), outputs=(SUMS,)))
    assert store.edges() == [("/lake/sales.raw", "/lake/sales.sums")]
    assert len(store.rows("SELECT FROM duckicelake_lineage_dataset")) == 2


def renamed(old: str, new: str) -> Json:
    change = facet(lifecycleStateChange="RENAME", previousIdentifier={"namespace": CATALOG, "name": old})
    return table(new, f"/lake/{old}", lifecycleStateChange=change)


def test_renamed_table_keeps_its_edges_and_its_old_name_is_free(store: Store) -> None:
    store.record(event(1, inputs=(RAW,), outputs=(ORDERS,)))
    store.record(event(2, outputs=(renamed("sales.orders", "sales.former"),)))
    store.record(event(3, inputs=(RAW,), outputs=(table("sales.orders", "/lake/other"),)))
    assert named(store) == {
        "sales.former": "/lake/sales.orders",
        "sales.orders": "/lake/other",
        "sales.raw": "/lake/sales.raw",
    }
    store.record(event(4, inputs=(RAW,), outputs=(ORDERS,), minutes=1.5))
    assert named(store)["sales.orders"] == "/lake/other", "what comes late doesn't take a name back"
    names = "SELECT schema_name, table_name FROM duckicelake_lineage_dataset ORDER BY 2"
    assert store.rows(names) == [("sales", "former"), ("sales", "orders"), ("sales", "raw")]


def test_other_tools_rename_is_followed_by_the_names_alone(store: Store) -> None:
    change = facet(lifecycleStateChange="RENAME", previousIdentifier={"namespace": "pg://x", "name": "a"})
    store.record(event(1, outputs=(foreign("pg://x", "a"),)), origin="received")
    store.record(event(2, outputs=(foreign("pg://x", "b", lifecycleStateChange=change),)), origin="received")
    assert store.rows("SELECT DISTINCT dataset_id = 1 FROM duckicelake_lineage_name") == [(True,)]


def lifecycle(kind: str) -> Json:
    return facet(lifecycleStateChange=kind)


def test_table_made_anew_at_the_same_place_is_another(store: Store) -> None:
    store.record(event(1, inputs=(RAW,), outputs=(ORDERS,)))
    store.record(event(2, outputs=(table("sales.orders", lifecycleStateChange=lifecycle("DROP")),)))
    made = table("sales.orders", lifecycleStateChange=lifecycle("CREATE"))
    store.record(event(3, "START", outputs=(made,)), event(3, outputs=(made,)))
    rows = store.rows(
        "SELECT name, lifecycle FROM duckicelake_lineage_dataset WHERE name <> '/lake/sales.raw' ORDER BY id"
    )
    assert rows == [("/lake/sales.orders", "DROP"), ("/lake/sales.orders", "CREATE")]


def native(name: str, catalog: str = CATALOG, kind: str = "TABLE", **facets: Any) -> Json:
    """A table of which only DuckDB knows where it lies, or a view, as the catalog tells of it."""
    symlinks = facet(identifiers=[{"namespace": catalog, "name": name, "type": kind}])
    schema_name, _, table_name = name.rpartition(".")
    exact = facet(namespace=schema_name, name=table_name)
    return {"namespace": catalog, "name": name, "facets": {"symlinks": symlinks, "duckicelake_table": exact, **facets}}


def test_native_table_is_the_same_when_it_is_known_where_it_lies(store: Store) -> None:
    store.record(event(1, inputs=(native("sales.raw"),), outputs=(native("sales.orders"),)))
    store.record(event(2, inputs=(RAW,), outputs=(SUMS,)))
    assert store.edges() == [("/lake/sales.raw", "/lake/sales.sums"), ("/lake/sales.raw", "sales.orders")]


def test_catalog_with_another_uri_is_the_same_catalog(store: Store) -> None:
    store.record(event(1, inputs=(native("sales.raw"),), outputs=(ORDERS,)))
    store.record(event(2, inputs=(native("sales.raw", "http://elsewhere"),), outputs=(SUMS,)))
    assert store.edges() == [("sales.raw", "/lake/sales.orders"), ("sales.raw", "/lake/sales.sums")]


def test_table_with_the_name_of_a_view_that_was_dropped_is_another(store: Store) -> None:
    store.record(event(1, inputs=(RAW,), outputs=(native("sales.orders"),)))
    store.record(event(2, outputs=(native("sales.orders", lifecycleStateChange=lifecycle("DROP")),)))
    made = table("sales.orders", lifecycleStateChange=lifecycle("CREATE"))
    store.record(
        event(3, "START", outputs=(made,)), event(3, inputs=(SUMS,), outputs=(made,)), event(4, outputs=(ORDERS,))
    )
    assert store.edges() == [("/lake/sales.raw", "sales.orders"), ("/lake/sales.sums", "/lake/sales.orders")]
    assert named(store)["sales.orders"] == "/lake/sales.orders"


def test_name_with_dots_is_the_table_that_is_said_exactly(store: Store) -> None:
    exact = facet(namespace="a", name="b.c")
    store.record(event(1, outputs=(table("a.b.c", duckicelake_table=exact),)))
    store.record(event(2, inputs=(table("a.b.c"),), outputs=(table("a.d"),)))
    rows = store.rows("SELECT schema_name, table_name FROM duckicelake_lineage_dataset ORDER BY 2")
    assert rows == [("a", "b.c"), ("a", "d")]


def test_inferred_columns_are_as_sure_as_each_says(store: Store) -> None:
    source = {"namespace": "file", "name": "/lake/sales.raw", "field": "a"}
    sure = facet(confidence=0.8, columns=[{"output": "x", "input": source, "type": "DIRECT", "confidence": 0.25}])
    made = table("sales.sums", columnLineage=columns(("x", RAW, "a"), ("y", RAW, "a")), duckicelake_inferred=sure)
    store.record(event(1, inputs=(RAW,), outputs=(made,)))
    assert [(row[3], row[6]) for row in store.rows(COLUMNS)] == [("x", 0.25), ("y", None)]


def test_view_is_one_however_it_is_reported(store: Store) -> None:
    store.record(event(1, outputs=(native("sales.shown", kind="VIEW"),)))
    store.record(event(2, inputs=(foreign(CATALOG, "sales.shown"),), outputs=(ORDERS,)))
    kinds = store.rows("SELECT name, kind FROM duckicelake_lineage_dataset ORDER BY 1")
    assert kinds == [("/lake/sales.orders", "TABLE"), ("sales.shown", "VIEW")]


def test_new_definition_ends_the_edges_that_it_leaves_out(store: Store) -> None:
    view = {"namespace": CATALOG, "name": "sales.view"}
    ours = facet(namespace="sales", name="view")
    for minutes, source in ((1, RAW), (2, ORDERS), (3, ORDERS)):
        facets = {"columnLineage": columns(("a", source, "a")), "duckicelake_table": ours}
        facets["datasetType"] = facet(datasetType="VIEW")
        store.record(dataset_event(minutes, view | {"facets": facets}))
    assert [(s, over) for s, _, over, _ in store.rows(EDGES)] == [
        ("/lake/sales.orders", False),
        ("/lake/sales.raw", True),
    ]
    assert store.rows("SELECT kind, schema_name FROM duckicelake_lineage_dataset WHERE name = 'sales.view'") == [
        ("VIEW", "sales")
    ]
    assert store.rows("SELECT count(*) FROM duckicelake_lineage_column WHERE until IS NULL") == [(1,)]


def test_job_event_makes_edges_without_a_run(store: Store) -> None:
    store.record(job_event(1, "nightly", (RAW,), (SUMS,)), job_event(2, "nightly", (ORDERS,), (SUMS,)))
    assert store.edges() == [("/lake/sales.orders", "/lake/sales.sums")]


def test_what_is_received_changes_nothing_that_the_catalog_has_recorded(store: Store) -> None:
    store.record(event(1, inputs=(RAW,), outputs=(ORDERS,)))
    before = store.everything()
    forged = event(1, "FAIL", inputs=(SUMS,), outputs=(ORDERS,), minutes=9)
    store.record(forged, origin="received")
    assert store.everything() | {"event": []} == before | {"event": []}


def test_what_is_received_gives_no_names_to_datasets_of_the_catalog(store: Store) -> None:
    store.record(event(1, outputs=(table("secret.t"), table("open.t"))))
    disguised = table("open.t", "/lake/secret.t", schema=facet(fields=[{"name": "forged"}]))
    store.record(event(2, outputs=(disguised,), minutes=5), origin="received")
    assert named(store) == {"secret.t": "/lake/secret.t", "open.t": "/lake/open.t"}
    rows = store.rows("SELECT schema_name, table_name FROM duckicelake_lineage_dataset ORDER BY 1")
    assert rows == [("open", "t"), ("secret", "t")]


def test_the_catalog_takes_over_a_run_that_was_received_first(store: Store) -> None:
    store.record(event(1, "FAIL", inputs=(SUMS,)), origin="received")
    store.record(event(1, "COMPLETE", inputs=(RAW,), outputs=(ORDERS,), minutes=2))
    assert store.rows("SELECT state, origin FROM duckicelake_lineage_run") == [("COMPLETE", "catalog")]


def test_names_as_long_as_they_may_be_are_kept(store: Store) -> None:
    noise = random.Random(1)
    long = "".join(chr(noise.randint(0x100, 0x2000)) for _ in range(2000))
    wide = table(f"{long}.{long}", columnLineage=columns((long, RAW, long)))
    store.record(event(1, inputs=(RAW,), outputs=(wide,), job=long, job_namespace=long))
    assert store.edges() == [("/lake/sales.raw", f"/lake/{long}.{long}")]


def test_facets_are_those_sent_last_and_one_that_is_deleted_is_gone(store: Store) -> None:
    gone = facet(_deleted=True)
    newer, older = facet(fields=[{"name": "b"}]), facet(fields=[{"name": "a"}])
    store.record(event(1, outputs=(table("sales.t", schema=newer, ownership=facet(owners=[])),), minutes=5))
    store.record(event(2, outputs=(table("sales.t", schema=older, documentation=facet(description="x")),), minutes=4))
    store.record(event(3, outputs=(table("sales.t", ownership=gone),), minutes=6))
    (facets,) = store.rows("SELECT facets FROM duckicelake_lineage_dataset")[0]
    assert facets == {"schema": newer, "documentation": facet(description="x"), "ownership": gone}


def test_recorders_wait_for_each_other_so_that_ids_are_in_the_order_of_commits(store: Store, database_url: str) -> None:
    with psycopg.connect(database_url) as first:
        record_events(first.cursor(), [event(1)], origin="catalog")
        with psycopg.connect(database_url, options="-c lock_timeout=100ms") as second, pytest.raises(psycopg.Error):
            record_events(second.cursor(), [event(2)], origin="catalog")
    assert store.rows("SELECT run_id::text FROM duckicelake_lineage_event") == [(run_id(1),)]


def test_time_of_an_event_is_kept_whatever_its_zone(store: Store) -> None:
    store.record(event(1) | {"eventTime": "2026-11-01T01:00:00+01:00"})
    assert store.rows("SELECT started FROM duckicelake_lineage_run")[0][0].isoformat() == at(0)


def test_old_runs_and_events_are_forgotten_and_the_graph_stays(store: Store) -> None:
    store.record(*(event(number, inputs=(RAW,), outputs=(ORDERS,)) for number in range(1, 6)))
    before = store.edges()
    assert forget_runs(store.database, START + timedelta(minutes=3), batch=1) == (2, 2)
    assert store.rows("SELECT count(*), count(DISTINCT run_id) FROM duckicelake_lineage_io") == [(6, 3)]
    assert forget_runs(store.database, START + timedelta(days=1)) == (2, 3), "the newest event stays"
    assert store.edges() == before


def test_events_that_a_receiver_is_yet_to_get_are_not_forgotten(store: Store) -> None:
    store.record(event(1), event(2), event(3))
    with store.database.transaction() as cursor:
        cursor.execute("INSERT INTO duckicelake_delivery (transport, event_id) VALUES ('http://slow', 1)")
    tomorrow = START + timedelta(days=1)
    assert forget_runs(store.database, tomorrow).events == 1
    assert count_kept(store.database, tomorrow) == [("http://slow", 2)]
    assert count_kept(store.database, START) == []
