"""`duckicelake delta import`: what it prints, and how it says what is wrong."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from duckicelake.cli.main import app
from duckicelake.delta.commands import format_ranges, format_summary
from duckicelake.delta.import_.importer import DeltaImportResult
from tests.cli.test_commands import lake, serving

__all__ = ["lake"]


def run(lake: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["delta", "import", *arguments, "--lake", str(lake)])
    return done.exit_code, done.output


def test_summary_is_a_line_and_errors_say_what_to_do(lake: Path, tmp_path: Path) -> None:
    folder = lake / "warehouse" / "delta" / "t"
    for number in range(3):
        write_deltalake(folder, pa.table({"id": [number]}), mode="overwrite")
    DeltaTable(str(folder)).vacuum(0, enforce_retention_duration=False, dry_run=False)
    with serving(lake):
        assert run(lake, str(folder), "--table", "main.t") == (
            0,
            "main.t: 3 versions, 1 file, 1 row, up to version 4; left out: 0-1, whose files are gone\n",
        )
        assert run(lake, str(folder), "--table", "t")[0] == 2
        for arguments, said in (
            ([str(folder), "--table", "main.t"], "already exists"),
            ([str(folder), "--table", "t"], "write it as sales.orders"),
            ([str(folder), "--table", "nowhere.t"], "Namespace does not exist"),
            ([str(tmp_path), "--table", "main.u"], "DUCKICELAKE_ALLOWED_LOCATIONS"),
            ([str(folder.parent), "--table", "main.u"], "isn't a Delta table"),
            ([str(folder), "--table", "main.u", "--from-version", "9"], "9"),
        ):
            status, output = run(lake, *arguments)
            assert (status, output.count("\n")) == (2, 1), output
            assert said in output


@pytest.mark.commands
def test_timestamps_in_the_old_form_are_noted(lake: Path) -> None:
    at = pa.table({"at": pa.array([0], pa.timestamp("us", tz="UTC"))})
    folder = lake / "warehouse" / "delta"
    for name in ("new", "old"):
        write_deltalake(folder / name, at)
    (file,) = (folder / "old").glob("*.parquet")
    pq.write_table(at, file, use_deprecated_int96_timestamps=True)
    with serving(lake):
        assert run(lake, str(folder / "new"), "--table", "main.new")[1].count("\n") == 1
        status, output = run(lake, str(folder / "old"), "--table", "main.old")
    assert (status, output.count("\n")) == (0, 2)
    assert "main.old: its timestamps are in Parquet's old form INT96" in output


def test_versions_left_out_are_drawn_together() -> None:
    assert format_ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert format_ranges([]) == ""
    assert format_summary(DeltaImportResult(1, 0, 1, 1200, 1, ())) == "1 version, 1,200 files, 1 row, up to version 0"
