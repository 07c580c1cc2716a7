"""From how tables are to what they need, each with its reason; nothing here asks anybody."""

from dataclasses import replace

import pytest

from duckicelake.errors import BadInputError
from duckicelake.maintenance.layout import parse_order
from duckicelake.maintenance.plan import MaintenanceState, format_size, parse_state, plan_jobs, plan_optimization
from duckicelake.maintenance.policy import AUTOMATIC, DAY_MS, HOUR_MS, JOB_KINDS, check_overrides, parse_policy
from duckicelake.properties import POLICY_NAMES, suggest_policy

NOW = 1_800_000_000_000
FRESH = MaintenanceState(
    ("ns",), "t", format_version=2, files=10, bytes=1000, current_ms=NOW, described_ms=NOW, cleaned_ms=NOW
)
"""A table that needs nothing."""


def planned(table: MaintenanceState, **policies: str) -> dict[str, str]:
    """The reasons by kind of job."""
    return {job.kind: job.why for job in plan_jobs([replace(table, policies=policies)], NOW).jobs}


def under(name: str, value: str) -> dict[str, str]:
    return {name: value}


def test_table_in_shape_needs_nothing() -> None:
    assert planned(FRESH) == {}


def test_empty_table_needs_nothing_but_a_look_for_orphans() -> None:
    assert list(planned(MaintenanceState(("ns",), "t", format_version=2))) == ["remove-orphans"]
    assert list(planned(MaintenanceState(("ns",), "t"))) == []


@pytest.mark.parametrize(
    ("rows", "age", "why"),
    [
        (999, DAY_MS - 1, None),
        (1000, 0, "1,000 rows in Postgres, from 1,000 on they go to a file"),
        (1, DAY_MS, "1 row in Postgres, the oldest for longer than 24 hours"),
        (0, DAY_MS, None),
    ],
)
def test_many_or_old_inlined_rows_are_flushed(rows: int, age: int, why: str | None) -> None:
    table = replace(FRESH, inlined_rows=rows, inlined_oldest_ms=NOW - age)
    assert planned(table).get("flush") == why


def test_inlined_rows_of_unknown_age_are_old() -> None:
    assert "flush" in planned(replace(FRESH, inlined_rows=1, inlined_oldest_ms=None))


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (150_000, "150 kB"),
        (512 << 20, "537 MB"),
        (10**16, "10,000 TB"),
    ],
)
def test_sizes_have_units_of_powers_of_1000(size: int, text: str) -> None:
    assert format_size(size) == text


def test_small_files_are_merged_where_a_partition_has_enough_of_them() -> None:
    scattered = replace(FRESH, small_by_partition={1: 1000, 4: 200})
    assert planned(scattered) == {}
    some = replace(FRESH, small_by_partition={1: 1000, 5: 2, 30: 1})
    assert planned(some) == {"compact": "40 files in 3 partitions are under 3/4 of the target size of 537 MB"}
    assert "compact" in planned(scattered, **under("maintenance.compaction.min-files", "4"))
    assert planned(replace(FRESH, small_by_partition={1: 9}), **under("maintenance.compaction.min-files", "1")) == {}
    assert planned(some, **under("maintenance.compaction.enabled", "false")) == {}


@pytest.mark.parametrize(
    ("ratio", "files"),
    [("0.3", 3), ("0.25", 3), ("0.1", 5), ("0.9", 1), ("0.95", 1), ("1", 1), ("0.01", 5), ("0", 5)],
)
def test_files_that_lost_many_rows_are_rewritten(ratio: str, files: int) -> None:
    thinned = replace(FRESH, by_deleted_tenths=(5, 4, 3, 2, 1, 1, 1, 1, 1))
    why = planned(thinned, **under("maintenance.compaction.delete-ratio", ratio))["compact"]
    assert why.startswith(f"{files} file")
    assert "or more" in why


def test_table_is_sorted_anew_once_enough_is_unsorted_and_merged_in_order_until_then() -> None:
    table = replace(FRESH, bytes=1000, unsorted_bytes=200, small_by_partition={9: 1})
    order = under("maintenance.sort.order", "zorder(x, y)")
    why = "20% of 1.0 kB aren't sorted by zorder(x, y), from 20% on all is sorted again"
    assert planned(table, **order) == {"sort": why}
    assert list(planned(replace(table, unsorted_bytes=199), **order)) == ["compact"]
    assert list(planned(table)) == ["compact"]


@pytest.mark.parametrize(
    ("before", "order", "is_due"),
    [
        ("id", "id", False),
        ("id", " ID DESC ", True),
        ("Id", "iD", False),
        ("a dropped column", "id", True),
        ("id", "zorder(id)", True),
        ("id NULLS LAST", "id", True),
        ("id DESC NULLS FIRST", "id desc nulls first", False),
        (None, "id", False),
    ],
)
def test_table_is_sorted_anew_once_its_order_has_changed(before: str | None, order: str, is_due: bool) -> None:
    found = planned(replace(FRESH, bytes=1000, sorted_by=before), **under("maintenance.sort.order", order))
    assert (list(found) == ["sort"]) == is_due, found
    assert not is_due or f"are sorted by {before}, and the table asks for {parse_order(order.strip())}" in found["sort"]


@pytest.mark.parametrize(("order", "noted"), [("id", {"order": "id"}), ("name", {}), ("zorder(id)", {}), (None, {})])
def test_optimization_notes_no_order_but_the_policys(order: str | None, noted: dict[str, str]) -> None:
    """Plans would take another one for a change of the policy, and sort anew."""
    state = replace(FRESH, policies=under("maintenance.sort.order", "id"))
    wanted = None if order is None else parse_order(order)
    (task,) = plan_optimization(iter([state]), "ns.t", wanted, None, None).jobs
    assert (task.kind, task.parameters) == ("compact" if order is None else "sort", {"why": "asked for"} | noted)


def test_files_wait_for_no_sort_that_does_not_run() -> None:
    table = replace(FRESH, bytes=1000, unsorted_bytes=1000, unfiltered_bytes=1000, small_by_partition={9: 1})
    ordered = {"maintenance.sort.order": "x", "write.parquet.bloom-filter-enabled.column.x": "true"}
    rewrites = ["compact", "bloom-filters"]
    assert list(planned(table, **ordered)) == ["sort"]
    assert list(planned(table, **ordered, **under(AUTOMATIC, "sort,compact,bloom-filters"))) == ["sort"]
    assert list(planned(table, **ordered, **under(AUTOMATIC, "flush,compact"))) == ["sort", "compact"]
    assert list(planned(table, **ordered, **under(AUTOMATIC, "compact,bloom-filters"))) == ["sort", *rewrites]
    asked = replace(table, policies=ordered)
    assert [job.kind for job in plan_jobs([asked], NOW, rewrites).jobs] == rewrites
    assert list(planned(replace(table, sortable_columns=["x"]), **ordered)) == ["sort"]
    assert list(planned(replace(table, sortable_columns=["xx"]), **ordered)) == ["sort", *rewrites]
    assert [job.kind for job in plan_jobs([asked], NOW, ["sort", *rewrites]).jobs] == ["sort"]


def test_delete_files_are_merged_where_there_are_more_than_data_files_need() -> None:
    assert planned(replace(FRESH, delete_files=19, files_with_deletes=10)) == {}
    many = replace(FRESH, delete_files=20, files_with_deletes=10)
    assert planned(many) == {"rewrite-deletes": "20 delete files for 10 data files with deletes"}
    assert planned(replace(many, format_version=3)) == planned(many), "those from before an upgrade become vectors"
    assert planned(replace(many, format_version=1)) == planned(replace(many, format_version=None)) == {}


def test_files_get_filters_where_the_table_asks_for_them_and_enough_has_come() -> None:
    table = replace(FRESH, bytes=1000, unfiltered_bytes=200)
    asked = {f"write.parquet.bloom-filter-enabled.column.{name}": "True" for name in ("b", "a")}
    why = "20% of 1.0 kB may have no Bloom filters, which the table asks for: a, b"
    assert planned(table) == {}
    assert planned(table, **asked) == {"bloom-filters": why}
    assert planned(replace(table, unfiltered_bytes=199), **asked) == {}
    often = {"maintenance.bloom-filters.min-share": "0.1"}
    assert list(planned(replace(table, unfiltered_bytes=199), **asked, **often)) == ["bloom-filters"]
    sorting = {"maintenance.sort.order": "a"}
    assert list(planned(replace(table, unsorted_bytes=200), **asked, **sorting)) == ["sort"], "it writes filters, too"


def test_small_manifests_are_packed() -> None:
    assert planned(replace(FRESH, manifests=80, small_manifests=49)) == {}
    assert list(planned(replace(FRESH, manifests=80, small_manifests=50))) == ["pack-manifests"]


def test_statistics_are_made_once_and_again_when_they_are_old_and_the_table_has_changed() -> None:
    assert list(planned(replace(FRESH, described_ms=None))) == ["statistics"]
    old = NOW - 7 * DAY_MS
    assert planned(replace(FRESH, current_ms=old, described_ms=old)) == {}
    assert list(planned(replace(FRESH, described_ms=old))) == ["statistics"]
    assert planned(replace(FRESH, described_ms=old + 1)) == {}


OLD = replace(FRESH, snapshots=9, oldest_ms=NOW - 10 * DAY_MS)
"""A table whose oldest snapshot is ten days old."""
EXPIRING = {"maintenance.expire.enabled": "true"}


def test_snapshots_are_kept_for_ever_unless_a_policy_asks_for_their_expiry() -> None:
    assert planned(OLD) == {}
    why = "some of 9 snapshots are older than 5 days, which is how long they are kept"
    assert planned(OLD, **EXPIRING) == {"expire": why}
    assert planned(OLD, **under("history.expire.min-snapshots-to-keep", "8")) == {"expire": why}
    assert list(planned(OLD, **under("history.expire.max-snapshot-age-ms", str(10 * DAY_MS)))) == ["expire"]
    assert list(planned(OLD, **under("expire_older_than", "10 days"))) == ["expire"]
    assert planned(OLD, **under("expire_older_than", "10 days"), **under("maintenance.expire.enabled", "false")) == {}
    assert planned(OLD, **under("expire_older_than", "")) == {}


def test_snapshots_expire_when_neither_iceberg_nor_ducklake_wants_them_any_more() -> None:
    assert planned(OLD, **EXPIRING, **under("history.expire.max-snapshot-age-ms", str(11 * DAY_MS))) == {}
    assert planned(OLD, **EXPIRING, **under("expire_older_than", "11 days")) == {}
    both = {"history.expire.max-snapshot-age-ms": "1", "expire_older_than": "11 days"}
    assert planned(OLD, **both) == {}
    assert planned(OLD, **EXPIRING, **under("history.expire.min-snapshots-to-keep", "9")) == {}
    assert planned(OLD, **EXPIRING, **under("gc.enabled", "false")) == {}
    assert planned(OLD, **EXPIRING, **under("gc.enabled", "shared")).keys() == planned(OLD, **EXPIRING).keys()
    assert planned(replace(OLD, oldest_ms=None), **EXPIRING) == {}


def test_branches_and_tags_expire_by_their_own_ages() -> None:
    why = "a branch or tag is older than it may be"
    table = replace(FRESH, snapshots=2, refs_end_ms=NOW - 1)
    assert planned(table) == {}
    assert planned(table, **EXPIRING) == {"expire": why}
    assert planned(replace(table, refs_end_ms=NOW), **EXPIRING) == {}
    short = replace(OLD, oldest_ms=NOW - 2 * DAY_MS, branch_age_ms=2 * DAY_MS)
    why = "some of 9 snapshots are older than 2 days, which is how long they are kept"
    assert planned(short, **EXPIRING) == {"expire": why}
    assert planned(replace(short, branch_age_ms=3 * DAY_MS), **EXPIRING) == {}
    assert planned(short, **EXPIRING, **under("expire_older_than", "3 days")) == {}
    assert planned(replace(OLD, branch_age_ms=11 * DAY_MS), **EXPIRING).keys() == {"expire"}, "others have no such age"


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("7 DAYS", 7 * DAY_MS),
        ("1 month 3 days", 33 * DAY_MS),
        ("1d12h", 36 * HOUR_MS),
        ("90 minutes", 90 * 60_000),
        ("30m", 30 * 60_000),
        ("2 weeks", 14 * DAY_MS),
        ("1 year", 365 * DAY_MS),
        ("45 seconds", 45_000),
    ],
)
def test_intervals_of_ducklake_are_read(text: str, age: int) -> None:
    assert parse_policy({"expire_older_than": text}).snapshot_age == age


def test_orphans_are_looked_for_every_week() -> None:
    assert planned(replace(FRESH, cleaned_ms=NOW - 7 * DAY_MS + 1)) == {}
    table = replace(FRESH, cleaned_ms=NOW - 7 * DAY_MS)
    assert planned(table) == {"remove-orphans": "files of writers that failed were last looked for 7 days ago"}
    assert planned(table, **under("gc.enabled", "false")) == {}
    assert planned(table, **under("gc.enabled", "shared")) == {}


def test_jobs_of_a_table_come_in_the_order_in_which_they_must_run() -> None:
    table = MaintenanceState(
        ("ns",),
        "t",
        format_version=2,
        files=9,
        inlined_rows=5000,
        small_by_partition={9: 1},
        delete_files=99,
        small_manifests=99,
        snapshots=9,
        oldest_ms=0,
        policies=EXPIRING,
    )
    other = replace(table, table="a")
    jobs = plan_jobs([table, other], NOW).jobs
    assert [job.table for job in jobs] == ["a"] * 7 + ["t"] * 7
    assert [job.kind for job in jobs[:7]] == [kind for kind in JOB_KINDS if kind not in {"sort", "bloom-filters"}]
    assert [job.kind for job in plan_jobs([table], NOW, ["expire", "flush"]).jobs] == ["flush", "expire"]
    assert planned(table, **under("maintenance.enabled", "false")) == {}
    with pytest.raises(BadInputError, match="no job 'vacuum': choose of flush"):
        plan_jobs([table], NOW, ["vacuum"])


@pytest.mark.parametrize(
    ("name", "value", "should_be"),
    [
        ("maintenance.enabled", "yes", "true or false"),
        ("maintenance.flush.min-rows", "many", "a number from 1 on"),
        ("maintenance.flush.min-rows", "0", "a number from 1 on"),
        ("maintenance.flush.max-age", "3 weeks", "an age as 90m, 12h or 3d"),
        ("maintenance.compaction.delete-ratio", "1.5", "a share from 0 to 1"),
        ("maintenance.compaction.delete-ratio", "nan", "a share from 0 to 1"),
        ("maintenance.sort.min-share", "1.5", "a share between 0 and 1"),
        ("maintenance.sort.order", "zorder(x DESC)", "columns as"),
        ("maintenance.sort.order", "x sideways", "columns as"),
        ("maintenance.orphans.older-than", "10m", "an age of an hour or more"),
        ("expire_older_than", "soon", "an interval as `7 days`"),
        ("expire_older_than", "2 decades", "an interval as `7 days`"),
        ("expire_older_than", "1.5 days", "an interval as `7 days`"),
        ("expire_older_than", "-3 days", "an interval as `7 days`"),
        ("expire_older_than", "500ms", "an interval as `7 days`"),
        ("expire_older_than", "36:00:00", "an interval as `7 days`"),
    ],
)
def test_wrong_policy_is_named_and_the_other_tables_are_still_maintained(name: str, value: str, should_be: str) -> None:
    table = replace(FRESH, table="wrong", policies={name: value}, small_by_partition={9: 1})
    result = plan_jobs([table, replace(FRESH, small_by_partition={9: 1})], NOW)
    assert [job.table for job in result.jobs] == ["t"]
    (problem,) = result.problems
    assert problem.startswith(f"ns.wrong is left alone: the property {name} is {value!r}: it should be {should_be}")


def test_policy_that_there_is_not_is_a_problem_and_no_silence() -> None:
    table = replace(FRESH, policies={"maintenance.flush.min-row": "7"})
    why = "ns.t is left alone: there is no property maintenance.flush.min-row; did you mean maintenance.flush.min-rows?"
    assert plan_jobs([table], NOW).problems == (why,)
    with pytest.raises(BadInputError, match="there is no property maintenance"):
        check_overrides({"maintenance.x": "1"})
    with pytest.raises(
        BadInputError, match=r"expire\.max-snapshot-age; did you mean history\.expire\.max-snapshot-age-ms"
    ):
        check_overrides({"history.expire.max-snapshot-age": "1"})
    with pytest.raises(BadInputError, match="target-file-size-bytes can't be given for one run"):
        check_overrides({"write.target-file-size-bytes": "1"})
    with pytest.raises(BadInputError, match=r"order can't be given for one run: .*, or run `pipeline optimize"):
        check_overrides({"maintenance.sort.order": "id"})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("maintenance.flush.Min_Rows", "did you mean maintenance.flush.min-rows?"),
        ("maintenance.sort.by", "did you mean maintenance.sort.order?"),
        ("maintenance.x", "expected maintenance.…, history.expire.max-ref-age-ms, "),
        ("gc.enabled", "expected maintenance.…, history.expire.max-ref-age-ms, "),
        ("history.expire.max-snapshot-age", "did you mean history.expire.max-snapshot-age-ms?"),
        (
            "history.expire.max-age",
            "did you mean history.expire.max-ref-age-ms or history.expire.max-snapshot-age-ms?",
        ),
    ],
)
def test_misspelt_policy_brings_all_that_it_may_mean(wrong: str, says: str) -> None:
    """One of several would be a guess: a limit for branches isn't one for snapshots."""
    assert suggest_policy(wrong).startswith(says)


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_every_policy_is_read(name: str) -> None:
    with pytest.raises(BadInputError, match=f"the property {name} is "):
        parse_policy({name: "?,"})


def test_state_is_what_the_catalog_shows() -> None:
    report = {
        "namespace": ["a", "b"],
        "table": "t",
        "by-deleted-tenths": [1] * 9,
        "small-by-partition": {"5": 2},
        "cleaned-ms": 7,
        "table-id": 3,
    }
    state = parse_state(report)
    assert (state.namespace, state.small_by_partition, state.cleaned_ms) == (("a", "b"), {5: 2}, 7)
