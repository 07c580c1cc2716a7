import pytest

from duckicelake.postgres.queries import Queries, load_queries


def test_a_query_is_found_by_its_name_without_its_head():
    assert load_queries("lake", "snapshots").lock.startswith("SELECT pg_advisory_xact_lock")


def test_an_unknown_query_is_refused_with_the_known_ones():
    known = (
        "claim_snapshot, clock, correct_snapshot, duckdb_seen, insert_changes, insert_snapshots, keep_lane, "
        "last_snapshot, leave_lane, leave_queue, lock, queue, queue_alone, version"
    )
    with pytest.raises(AttributeError, match=f"no query 'unlock', only {known}$"):
        _ = load_queries("lake", "snapshots").unlock


def test_two_queries_of_one_name_are_refused():
    with pytest.raises(ValueError, match="same name"):
        Queries("twice", "-- a: one\nSELECT 1;\n\n-- a: two\nSELECT 2;\n")


def test_a_comment_inside_a_query_is_part_of_it():
    text = "-- a: one\n-- more: of the head\nSELECT 1\n-- note: of the query\nFROM x;\n\n-- b: two\nSELECT 2;\n"
    found = Queries("comment", text)
    assert found.a == "-- more: of the head\nSELECT 1\n-- note: of the query\nFROM x;"
    assert found.b == "SELECT 2;"


def test_a_head_without_a_query_is_refused():
    with pytest.raises(ValueError, match="a query is empty"):
        Queries("comment", "-- a: one\n\n-- b: two\nSELECT 1;\n")
