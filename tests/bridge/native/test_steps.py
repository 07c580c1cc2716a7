from duckicelake.bridge import main_diff
from duckicelake.bridge.native.steps import LiveDeletes
from duckicelake.lake.additions import NewDeletion
from duckicelake.lake.state import LiveFile, LiveFiles

DATA = tuple(LiveFile(file_id, 0, 1, file_id, "PARQUET") for file_id in (1, 2, 3))


def live(**targets: set[int]) -> LiveDeletes:
    """The delete files d10, d11, … with the data files that they delete from."""
    delete_targets = {int(name[1:]): frozenset(files) for name, files in targets.items()}
    return LiveDeletes(LiveFiles(DATA, {}, {1: frozenset({7})}, delete_targets))


def test_delete_file_leaves_with_its_last_data_file() -> None:
    deletes = live(d10={1, 2}, d11={1}, d12={3})
    assert deletes.find_idle({1, 3}) == {11, 12}
    assert deletes.leave({1}) == {11}
    assert deletes.leave({1}) == frozenset()
    assert deletes.leave({2}) == {10}


def test_delete_file_of_data_that_left_before_is_idle_from_the_start() -> None:
    deletes = live(d10={1}, d11={4})
    assert deletes.find_idle(frozenset()) == {11}
    assert deletes.leave(frozenset()) == {11}


def test_vector_leaves_older_deletes_of_its_data_file_idle() -> None:
    vector = LiveFile(20, 1, 5, None, "PUFFIN")
    targets = {10: frozenset({1, 2}), 11: frozenset({1}), 20: frozenset({1})}
    deletes = LiveDeletes(LiveFiles((*DATA, vector), {}, {}, targets))
    assert deletes.find_idle(frozenset()) == {11}
    assert deletes.leave({2}) == {10, 11}
    assert deletes.leave({1}) == {20}


def test_new_delete_files_are_followed_too() -> None:
    deletes = live(d10={1})
    deletes.join(
        [NewDeletion(20, 1, main_diff.encode_positions({3})), NewDeletion(20, 2, main_diff.encode_positions({4, 5}))]
    )
    assert deletes.deleted == {1: {3, 7}, 2: {4, 5}}
    assert deletes.leave({1}) == {10}
    assert deletes.leave({2}) == {20}
