"""Which versions of a Delta table can be read, and what each changes of the one before."""

from duckicelake.delta.import_.versions import DeltaVersion, ReadableVersions, build_summary, name_operation
from duckicelake.delta.log.actions import AddFile, DeltaCommit, RemoveFile, Txn


def add(path: str, *, data_change: bool = True) -> AddFile:
    return AddFile(path, {}, 1, 1, data_change)


def commit(version: int, *actions: AddFile | RemoveFile) -> DeltaCommit:
    adds = tuple(each for each in actions if isinstance(each, AddFile))
    removes = tuple(each for each in actions if isinstance(each, RemoveFile))
    return DeltaCommit(version, 1000 * version, adds, removes)


def changes(readable: ReadableVersions, *commits: DeltaCommit) -> list[tuple[int, set[str], set[str]]]:
    first = DeltaVersion(0, 0, {"a": add("a")}, is_rewrite=False)
    return [(each.version, set(each.added), set(each.gone)) for each in readable.of(first, commits)]


def test_each_version_says_what_it_changes() -> None:
    found = changes(ReadableVersions(frozenset()), commit(1, add("b")), commit(2, RemoveFile("a", True), add("c")))
    assert found == [(0, {"a"}, set()), (1, {"b"}, set()), (2, {"c"}, {"a"})]


def test_versions_that_lack_files_are_left_out_and_the_next_has_what_they_did() -> None:
    readable = ReadableVersions(frozenset({"b", "x"}))
    found = changes(
        readable,
        commit(1, add("b"), add("c")),
        commit(2, add("x")),
        commit(3, RemoveFile("b", True)),
        commit(4, RemoveFile("x", True), RemoveFile("a", True), add("d")),
        commit(5, add("a")),
    )
    assert found[:2] == [(0, {"a"}, set()), (4, {"c", "d"}, {"a", "b", "x"})]
    assert found[2:] == [(5, {"a"}, set())]
    assert (readable.left_out, readable.absent) == ([1, 2, 3], set())


def test_newest_version_that_lacks_a_file_is_absent() -> None:
    readable = ReadableVersions(frozenset({"b"}))
    assert [version for version, _, _ in changes(readable, commit(1, add("b")))] == [0]
    assert (readable.left_out, readable.absent) == ([1], {"b"})


def test_a_rewrite_is_one_only_if_no_commit_of_it_changes_rows() -> None:
    version = DeltaVersion(0, 0)
    version.take(commit(1, RemoveFile("a", False), add("b", data_change=False)))
    assert name_operation(version, adds=True, removes=True) == "replace"
    version.take(commit(2, add("c")))
    assert name_operation(version, adds=True, removes=True) == "overwrite"
    assert name_operation(version, adds=False, removes=True) == "delete"
    assert name_operation(version, adds=False, removes=False) == "append"


def test_summary_says_what_the_commit_said() -> None:
    info = {"operation": "MERGE", "userMetadata": "why", "engineInfo": None}
    version = DeltaVersion(7, 5, txns={"job": Txn("job", 3)}, info=info)
    assert build_summary(version) == {
        "delta.version": "7",
        "delta.timestamp": "5",
        "delta.operation": "MERGE",
        "delta.user-metadata": "why",
        "delta.txn.job": "3",
    }
