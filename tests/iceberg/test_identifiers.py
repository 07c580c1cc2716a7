from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import check_name, decode_name, decode_namespace, parse_schema_name, to_schema_name

# Letters that the encodings treat specially, and any other text.
levels = st.text(
    st.sampled_from("ab.%25E/+ é") | st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9
).filter(lambda level: level not in (".", ".."))  # which lead to another path
namespaces = st.lists(levels, min_size=1, max_size=4).map(tuple)


@given(namespaces)
def test_namespace_is_found_again_from_its_schema(namespace: tuple[str, ...]) -> None:
    assert parse_schema_name(to_schema_name(namespace)) == namespace


@given(st.lists(st.text("ab%2", min_size=1, max_size=5), min_size=1, max_size=3).map(".".join))
def test_schema_that_duckdb_made_is_found_again_from_its_namespace(schema: str) -> None:
    if "%25" not in schema:
        assert to_schema_name(parse_schema_name(schema)) == schema


@pytest.mark.parametrize(
    ("namespace", "schema"),
    [
        (("a", "b"), "a.b"),
        (("a.b",), "a%2Eb"),
        (("100%", "x"), "100%.x"),
        (("a%2Eb",), "a%252Eb"),
        (("%%25",), "%%2525"),
    ],
)
def test_namespace_is_the_schema_of_its_joined_levels(namespace: tuple[str, ...], schema: str) -> None:
    assert to_schema_name(namespace) == schema
    assert parse_schema_name(schema) == namespace


@pytest.mark.parametrize("encode", [quote_plus, lambda text: quote(text, safe="")], ids=["java", "pyiceberg"])
@given(namespace=namespaces)
def test_namespace_in_a_path_is_read_as_its_client_wrote_it(encode: object, namespace: tuple[str, ...]) -> None:
    assert callable(encode)
    for separator in ("%1F", "%1f"):
        assert decode_namespace(separator.join(encode(level) for level in namespace)) == namespace


@pytest.mark.parametrize("raw", ["", "a%1F", "%1Fa", "a%1F%1fb", "%FF", "a%00b", "a%0Ab"])
def test_namespace_in_a_path_that_is_none_is_refused(raw: str) -> None:
    with pytest.raises(InvalidRequestError):
        decode_namespace(raw)


def test_encoded_percent_is_not_decoded_twice() -> None:
    assert decode_namespace("a%251Fb") == ("a%1Fb",)
    assert decode_name("a%2Fb+c") == "a/b c"


@pytest.mark.parametrize("name", ["", "a\x00b", "tab\t", "\ud800", "a\x1fb"])
def test_name_that_no_database_holds_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="table name"):
        check_name(name, "table name")


def test_name_with_spaces_dots_and_slashes_is_fine() -> None:
    assert check_name("a b.c/d ü", "table name") == "a b.c/d ü"
