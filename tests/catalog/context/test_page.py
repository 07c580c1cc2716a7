import base64

import pytest

from duckicelake.catalog.context.page import DEFAULT_SIZE, ListPage, PageRequest, cut_page
from duckicelake.errors import InvalidRequestError


def page_of(names, request):
    after = sorted(name for name in names if name > request.after)
    return cut_page(after[: request.fetch], request, str)


def test_without_a_token_everything_is_on_one_page_whatever_the_size():
    names = [f"t{n:05d}" for n in range(DEFAULT_SIZE + 5)]

    assert page_of(names, PageRequest(size=2)) == ListPage(tuple(names), None)


def test_an_empty_token_starts_and_the_tokens_lead_through_every_item_once():
    names = ["a", "b", "ü", "漢", "z z"]
    seen, token = [], ""
    while token is not None:
        page = page_of(names, PageRequest(token, 2))
        assert len(page.items) <= 2
        seen += page.items
        token = page.next_token

    assert seen == sorted(names)


def test_the_last_page_has_no_token_even_if_it_is_full():
    assert page_of(["a", "b"], PageRequest("", 2)) == ListPage(("a", "b"), None)


def test_creating_and_dropping_between_pages_shifts_nothing():
    first = page_of(["b", "c", "d"], PageRequest("", 2))

    assert page_of(["a", "d", "e"], PageRequest(first.next_token, 2)) == ListPage(("d", "e"), None)


def test_an_empty_token_without_a_size_gives_the_default_size():
    assert PageRequest("").limit == DEFAULT_SIZE


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_below_one_is_refused(size):
    with pytest.raises(InvalidRequestError, match="at least 1"):
        PageRequest("", size)


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "!!!!",
        "YWJj",
        "ä",
        "YWZ0ZXI6/w",
        *(base64.urlsafe_b64encode(each).decode() for each in (b"after:\xff", b"after:a\0b")),
        " ",
    ],
)
def test_a_token_that_is_not_ours_is_refused(token):
    with pytest.raises(InvalidRequestError, match="pageToken"):
        PageRequest(token)


@pytest.mark.parametrize("key", ["x", "-1", "1.5", "³", str(2**63), "9" * 5000])
def test_a_token_of_another_list_is_refused_where_keys_are_numbers(key):
    token = base64.urlsafe_b64encode(f"after:{key}".encode()).decode()

    with pytest.raises(InvalidRequestError, match="pageToken"):
        _ = PageRequest(token).after_number


def test_a_token_of_a_list_of_numbers_names_the_last_one():
    assert PageRequest("").after_number is None
    assert PageRequest(base64.urlsafe_b64encode(b"after:17").decode()).after_number == 17
