"""What commits know of a version, which threads share."""

from collections.abc import Iterator
from typing import Any

from duckicelake.catalog.context.cache import ManifestCache
from duckicelake.lake.state import ManifestRow


def row(manifest_id: int) -> ManifestRow:
    return ManifestRow(manifest_id, 0, 2, 0, 0, 1, 1, 1, 1, f"/m{manifest_id}.avro", 1, {})


class Shared(dict[int, ManifestRow]):
    """Another thread adds to it whenever someone goes through it."""

    def items(self) -> Any:
        def one_by_one() -> Iterator[tuple[int, ManifestRow]]:
            for each in dict.items(self):
                self[len(self)] = row(len(self))
                yield each

        return one_by_one()


def test_newer_version_takes_over_the_last_of_what_is_known_while_others_add_to_it() -> None:
    before, after = ManifestCache(Shared((number, row(number)) for number in range(300))), ManifestCache({1: row(1)})
    after.inherit(before)
    assert after.manifests == {number: row(number) for number in (1, *range(250, 300))}
