"""Bodies of multi-object deletes: what S3 would delete is what is read, or nothing is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckicelake.errors import ForbiddenError, InvalidRequestError
from duckicelake.storage.s3_requests import MAX_DELETE_CHARACTERS, MAX_DELETED_KEYS, parse_deleted_keys

XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'

PRETTY = f"""<?xml version='1.0' encoding='UTF-8'?>
<Delete {XMLNS}>
  <Quiet>true</Quiet>
  <Object>
    <Key>größe</Key>
  </Object>
</Delete>
"""


def body(*keys: str) -> str:
    return "<Delete>" + "".join(f"<Object><Key>{key}</Key></Object>" for key in keys) + "</Delete>"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (body("a"), ("a",)),
        (body("a/b", "c d"), ("a/b", "c d")),
        (body("a &amp; b&#x20AC;&lt;"), ("a & b\u20ac<",)),
        (PRETTY, ("größe",)),
    ],
)
def test_keys_are_read(text: str, keys: tuple[str, ...]) -> None:
    assert parse_deleted_keys(text) == keys


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "<Delete>",
        "<Delete/>",
        "<Delete><Object/></Delete>",
        "<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
        "<Delete>a<Object><Key>a</Key></Object></Delete>",
        "<Delete><Object>text<Key>a</Key></Object></Delete>",
        body("a") + body("b"),
        body(*("k" for _ in range(MAX_DELETED_KEYS + 1))),
        body("a" * MAX_DELETE_CHARACTERS),
        body("\ud800"),
    ],
)
def test_what_is_no_such_body_is_a_bad_request(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_deleted_keys(text)


@pytest.mark.parametrize(
    "text",
    [
        "<!DOCTYPE Delete [<!ENTITY e 'a'>]>" + body("&e;"),
        '<!DOCTYPE Delete SYSTEM "file:///etc/passwd">' + body("a"),
        body("a<!-- -->b"),
        body("a<?x y?>b"),
        body("<![CDATA[a]]>"),
        body(" a"),
        body("a\n"),
        body(""),
        "<Delete><Object><Key>a</Key><VersionId>1</VersionId></Object></Delete>",
        '<Delete><Object><Key x="y">a</Key></Object></Delete>',
        "<Remove><Object><Key>a</Key></Object></Remove>",
        "<s:Delete xmlns:s='x'><s:Object><s:Key>a</s:Key></s:Object></s:Delete>",
        "<Delete><Object><Key>a<b/></Key></Object></Delete>",
    ],
)
def test_what_two_readers_may_take_differently_is_refused(text: str) -> None:
    with pytest.raises(ForbiddenError):
        parse_deleted_keys(text)


@given(st.text())
def test_no_body_breaks_the_reader(text: str) -> None:
    with pytest.raises((InvalidRequestError, ForbiddenError)):
        parse_deleted_keys(text)
