import pytest

from duckicelake.server.http.headers import build_conditional_response, is_unchanged, quote_entity_tag


@pytest.mark.parametrize(
    ("if_none_match", "unchanged"),
    [
        (None, False),
        ("", False),
        ('"v1"', True),
        ('W/"v1"', True),
        ('"v2"', False),
        ('"v2", "v1"', True),
        ('"v2",W/"v1"  ,"v3"', True),
        ("*", True),
        (" * ", True),
        ("v1", False),
        ('"v1', False),
        ('"a,b", "c"', False),
        ('"x\\"v1"', False),
    ],
)
def test_if_none_match_compares_weakly_with_each_listed_tag(if_none_match: str | None, unchanged: bool) -> None:
    assert is_unchanged(if_none_match, "v1") is unchanged


def test_tag_with_a_comma_is_one_tag() -> None:
    assert is_unchanged('"a,b"', '"a,b"')


def test_weak_tag_of_ours_matches_its_strong_spelling() -> None:
    assert is_unchanged('"v1"', 'W/"v1"')


def test_answer_without_tag_is_never_unchanged() -> None:
    assert not is_unchanged("*", None)


@pytest.mark.parametrize(("etag", "tag"), [("v1", '"v1"'), ('"v1"', '"v1"'), ('W/"v1"', 'W/"v1"')])
def test_tags_are_quoted_once(etag: str, tag: str) -> None:
    assert quote_entity_tag(etag) == tag


def test_304_has_no_body_and_sends_the_validators_again() -> None:
    response = build_conditional_response(b"{}", "v1", '"v1"')
    assert (response.status_code, response.body) == (304, b"")
    assert response.headers["etag"] == '"v1"'
    assert response.headers["cache-control"] == "private"
    assert response.headers["vary"] == "Authorization, X-Iceberg-Access-Delegation"


def test_200_has_body_and_validators() -> None:
    response = build_conditional_response(b"{}", "v1", '"v0"')
    assert (response.status_code, response.body) == (200, b"{}")
    assert response.headers["etag"] == '"v1"'
    assert response.headers["content-type"] == "application/json"


def test_staged_table_has_no_etag() -> None:
    assert "etag" not in build_conditional_response(b"{}", None).headers
