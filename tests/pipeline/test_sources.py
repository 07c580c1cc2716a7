"""What people say they want to read."""

import pytest

from duckicelake.errors import BadInputError, BadSourceError
from duckicelake.pipeline.sources import (
    PipelineSource,
    SourceFile,
    compute_fingerprint,
    drop_empty_files,
    escape_pattern,
    mask_secrets,
    parse_source,
)


@pytest.mark.parametrize(
    ("locations", "format_"),
    [
        (["a.csv", "b.CSV.gz"], "csv"),
        (["a.ndjson"], "json"),
        (["s3a://bucket/day=*/*.parquet"], "parquet"),
        (["folder.orc/"], "orc"),
        (["jdbc:postgresql://db/shop"], "jdbc"),
    ],
)
def test_format_is_reported_by_the_suffix(locations: list[str], format_: str) -> None:
    assert parse_source(locations).format == format_


@pytest.mark.parametrize(
    ("locations", "format_", "options"),
    [
        ([], None, ()),
        (["folder"], None, ()),
        (["a.csv", "b.json"], None, ()),
        (["a.csv"], "xlsx", ()),
        (["jdbc:a", "jdbc:b"], None, ()),
        (["a.csv"], None, ("sep",)),
        (["a.csv"], None, ("mode=DROPMALFORMED",)),
        (["a.csv"], None, ("columnNameOfCorruptRecord=x",)),
    ],
)
def test_what_cannot_be_read_or_would_lose_records_is_refused(
    locations: list[str], format_: str | None, options: tuple[str, ...]
) -> None:
    with pytest.raises(BadInputError):
        parse_source(locations, format_, options)


def test_csv_has_a_header_and_tabs_where_its_name_says_so_unless_the_options_differ() -> None:
    assert parse_source(["a.tsv"]).options == {"header": "true", "sep": "\t"}
    assert parse_source(["a.csv"], None, ("header=false", "nullValue=a=b")).options == {
        "header": "false", "nullValue": "a=b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("location", "report"),
    [
        ("jdbc:postgresql://me:secret@db/shop?user=me&password=secret", "jdbc:postgresql://db/shop"),
        ("jdbc:postgresql://me:sec@secret@db:5432/shop", "jdbc:postgresql://db:5432/shop"),
        ("jdbc:postgresql://me:secret/secret@db/shop", "jdbc:postgresql:…"),
        ("jdbc:postgresql://me:12?secret@db/shop", "jdbc:postgresql:…"),
        ("jdbc:sqlserver://db:1433;user=sa;password=secret", "jdbc:sqlserver://db:1433"),
        ("jdbc:sqlserver://db;user=sa;password=s@secret", "jdbc:sqlserver:…"),
        ("jdbc:oracle:thin:scott/secret@//db/shop", "jdbc:oracle:…"),
        ("jdbc:mysql://(host=db,password=secret)/shop", "jdbc:mysql:…"),
        ("jdbc:sqlite:/data/my.db", "jdbc:sqlite:…"),
        ("s3a://key:s@secret@bucket/a@b/part-?.csv", "s3a://bucket/a@b/part-?.csv"),
        ("/data//a@b.csv", "/data//a@b.csv"),
    ],
)
def test_passwords_are_not_shown(location: str, report: str) -> None:
    assert mask_secrets(location) == report
    assert parse_source([location], "jdbc").masked_locations == (report,)


def test_empty_files_are_left_out_only_where_they_can_be_whole() -> None:
    files = [SourceFile("a", 0, 1), SourceFile("b", 2, 1)]
    assert drop_empty_files(PipelineSource(("x",), "json"), files) == files[1:]
    with pytest.raises(BadSourceError, match="a is empty, which no file of parquet is"):
        drop_empty_files(PipelineSource(("x",), "parquet"), files)


def test_fingerprint_shows_other_content_but_not_another_order() -> None:
    files = [SourceFile("b", 1, 5), SourceFile("a", 2, 5)]
    source = PipelineSource(("x",), "csv")
    assert compute_fingerprint(source, files) == compute_fingerprint(source, files[::-1])
    others = [[*files, SourceFile("c", 1, 1)], files[:1], [SourceFile("b", 1, 6), files[1]]]
    assert len({compute_fingerprint(source, each) for each in [files, *others]}) == 4
    asked = [PipelineSource(("jdbc:x",), "jdbc", {"dbtable": table, "user": "me"}) for table in ("t", "u")]
    assert compute_fingerprint(asked[0], []) != compute_fingerprint(asked[1], [])


def test_paths_are_meant_as_they_are() -> None:
    assert escape_pattern("/a b/x[1]{2}*.csv") == r"/a b/x\[1\]\{2\}\*.csv"
