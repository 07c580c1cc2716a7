import pytest

from duckicelake.postgres.queries import Queries, load_queries


def test_a_query_is_found_by_its_name_without_its_head():
    assert load_queries("lake", "snapshots").lock.startswith("SELECT pg_advisory_xact_lock")


def test_an_unknown_query_is_refused_with_the_known_ones():
    known = (
        "claim_snapshot, correct_snapshot, duckdb_seen, insert_changes, insert_snapshots, keep_lane, last_snapshot, "
        "leave_lane, leave_queue, lock, queue, queue_alone, version"
    )
    with pytest.raises(AttributeError, match=f"no query 'unlock', only {known}$"):
        _ = load_queries("lake", "snapshots").unlock


def test_two_queries_of_one_name_are_refused():
    with pytest.raises(ValueError, match="same name"):
        Queries("twice", "-- a: one\nSELECT 1;\n-- a: two\nSELECT 2;\n")


def test_a_comment_that_looks_like_a_head_is_refused():
    with pytest.raises(ValueError, match="a query is empty"):
        Queries("comment", "-- a: one\n-- or: two\nSELECT 1;\n")
