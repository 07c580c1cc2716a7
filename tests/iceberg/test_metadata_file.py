import gzip

import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg import metadata_file
from duckicelake.iceberg.metadata_file import read_document


@pytest.mark.parametrize("encode", [bytes, gzip.compress])
def test_document_is_read_plain_and_gzipped(encode):
    assert read_document(encode(b'{"a": [1, null]}'), "f") == {"a": [1, None]}


@pytest.mark.parametrize("data", [b"", b"{", b"\x1f\x8bnot gzip", gzip.compress(b"{}", mtime=0)[:-4], b"[" * 100_000])
def test_file_that_is_no_document_is_refused_by_name(data):
    with pytest.raises(InvalidRequestError, match=r"file:///f isn't a metadata\.json"):
        read_document(data, "file:///f")


def test_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(metadata_file, "MAX_METADATA_BYTES", 1000)
    assert read_document(gzip.compress(b'"' + b"x" * 990 + b'"'), "f") == "x" * 990
    with pytest.raises(InvalidRequestError, match="more than 1000 bytes"):
        read_document(gzip.compress(b" " * 100_000 + b"{}"), "f")


def test_document_too_deep_to_be_written_again_is_refused():
    assert read_document(b"[" * 150 + b"]" * 150, "f")
    with pytest.raises(InvalidRequestError, match="nested more than 150 levels"):
        read_document(b"[" * 151 + b"]" * 151, "f")


def test_document_with_a_character_that_postgres_has_not_is_refused_by_name():
    assert read_document(b'{"a": "\\\\u0000"}', "f") == {"a": "\\u0000"}
    with pytest.raises(InvalidRequestError, match="f holds a NUL character"):
        read_document(b'{"a": "\\\\\\u0000"}', "f")
