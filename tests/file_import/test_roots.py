"""Files are read below the roots alone that an operator sets, whatever links lead elsewhere."""

from pathlib import Path

import pytest

from duckicelake.errors import BadInputError, BadSourceError
from duckicelake.file_import.roots import Roots
from duckicelake.file_import.source_files import InputFile
from tests.file_import.conftest import Loads
from tests.file_import.test_watch import list_states
from tests.support.commands import invoke

ROWS = "id\n1\n2\n"


@pytest.fixture
def places(loads: Loads) -> tuple[Path, Path]:
    """A folder from which files may be loaded, and one beside it whose name begins alike."""
    inside = loads.new_folder() / "in"
    outside = inside.with_name("in-private")
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "rows.csv").write_text(ROWS)
    return inside, outside


def test_files_outside_of_the_roots_are_refused(loads: Loads, table: str, places: tuple[Path, Path]) -> None:
    inside, outside = places
    (inside / "link.csv").symlink_to(outside / "rows.csv")
    (inside / "linked").symlink_to(outside)
    bounded = ("--table", table, "--yes", "--roots", f"s3://bucket, {inside}/")
    for path in (outside / "rows.csv", inside / ".." / "in-private" / "rows.csv", inside / "linked" / "rows.csv"):
        error = loads.run(str(path), *bounded, code=2)["message"]
        assert f"outside of what may be loaded: files below s3://bucket, {inside} (--roots)" in error, error
    error = loads.run(str(inside), *bounded, code=2)["message"]
    assert f"{inside / 'link.csv'} leads to {outside / 'rows.csv'}, which lies outside" in error, error
    assert not loads.has(table)
    (inside / "link.csv").unlink()
    (inside / "same.csv").symlink_to(inside / "rows.csv")
    assert loads.run(str(inside / "*.csv"), *bounded)["rows"] == 4


def test_setting_bounds_loads(loads: Loads, table: str, places: tuple[Path, Path]) -> None:
    inside, outside = places
    settings = {"DUCKICELAKE_CLIENT_ROOTS": str(inside)}
    for folder, code in ((outside, 2), (inside, 0)):
        ran = invoke("load", str(folder), "--table", table, "--yes", "--uri", loads.lake.uri, **settings)
        assert (ran.exit_code, "(--roots)" in ran.output) == (code, code == 2), ran.output


def test_watch_leaves_out_files_outside_of_the_roots(loads: Loads, table: str, places: tuple[Path, Path]) -> None:
    inside, outside = places
    (inside / "link.csv").symlink_to(outside / "rows.csv")
    events = loads.watch(inside, table, "--roots", str(inside))
    failed = {
        (Path(event["file"]).name, "which lies outside" in event["text"]) for event in events if event.get("file")
    }
    assert failed == {("link.csv", True)}
    assert (events[-1]["files"], events[-1]["rows"]) == (1, 2)
    assert list_states(loads, table) == {"link.csv": "failed", "rows.csv": "loaded"}


@pytest.mark.parametrize(
    ("name", "is_inside"),
    [
        ("s3://bucket/in/a.csv", True),
        ("s3://bucket/in", True),
        ("s3://bucket/in-private/a.csv", False),
        ("s3://bucket/a.csv", False),
        ("gs://bucket/in/a.csv", False),
        ("az://whole/any/a.csv", True),
    ],
)
def test_prefixes_of_buckets(name: str, is_inside: bool) -> None:
    roots = Roots.parse("s3a://bucket/in/,az://whole")
    if is_inside:
        roots.check(InputFile(name, 1, "1"))
        return
    with pytest.raises(BadSourceError, match="outside of what may be loaded"):
        roots.check(InputFile(name, 1, "1"))


@pytest.mark.parametrize("text", ["relative/folder", "http://example.org/x", "/data, ftp://x"])
def test_wrong_roots_are_named(text: str) -> None:
    with pytest.raises(BadInputError, match="expected absolute folders, or s3://"):
        Roots.parse(text)


def test_roots_that_name_nothing_are_refused() -> None:
    with pytest.raises(BadInputError, match="names no folder or prefix"):
        Roots.parse(" , ")
