"""Who looks: the console asks where the server wants to know, shows what may be read, and ends with the token."""

import pytest
from playwright.sync_api import Browser, expect

from tests.console.conftest import ShownLake
from tests.support.browsers import Visit, visit
from tests.support.logins import NOW, SECRET

pytestmark = pytest.mark.console


@pytest.fixture
def stranger(lake: ShownLake, browser: Browser) -> Visit:
    lake.server.clock.now = NOW
    window = visit(browser)
    window.page.goto(f"{lake.guarded}/ui/w/duckicelake/tables?in=sales")
    return window


def sign_in(window: Visit, secret: str = SECRET) -> None:
    window.page.get_by_label("Client id").fill("ana")
    window.page.get_by_label("Client secret").fill(secret)
    window.page.get_by_role("button", name="Sign in").click()


def test_user_signs_in_where_they_were_sees_what_they_may_and_signs_out(stranger: Visit) -> None:
    page = stranger.page
    sign_in(stranger, "wrong")
    expect(page.get_by_role("alert")).to_contain_text("client")
    sign_in(stranger)
    expect(page.get_by_role("region", name="Tables and views").get_by_role("link", name="orders")).to_be_visible()
    expect(page.get_by_role("region", name="Namespaces").get_by_role("link", name="labs")).to_have_count(0)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    stranger.context.close()


def test_token_that_has_expired_takes_the_pages_away(lake: ShownLake, stranger: Visit) -> None:
    page = stranger.page
    sign_in(stranger)
    expect(page.get_by_role("heading", name="sales")).to_be_visible()
    lake.server.clock.now = NOW + 7200
    page.get_by_role("region", name="Tables and views").get_by_role("link", name="orders").click()
    expect(page.get_by_role("alert")).to_contain_text("expired")
    expect(page.get_by_role("heading", name="orders")).to_have_count(0)
    lake.server.clock.now = NOW
    sign_in(stranger)
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    stranger.context.close()


def test_what_may_not_be_read_is_refused_in_words(lake: ShownLake, stranger: Visit) -> None:
    page = stranger.page
    sign_in(stranger)
    expect(page.get_by_role("heading", name="sales")).to_be_visible()
    page.goto(f"{lake.guarded}/ui/w/duckicelake/tables/labs.secret")
    expect(page.get_by_role("alert")).to_contain_text("Not allowed")
    stranger.context.close()


def test_server_that_does_not_answer_is_asked_again(lake: ShownLake, browser: Browser) -> None:
    window = visit(browser)
    page = window.page
    page.route("**/v1/namespaces/sales/tables/orders*", lambda route: route.abort())
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables/sales.orders")
    expect(page.get_by_role("alert")).to_contain_text("No answer")
    page.unroute("**/v1/namespaces/sales/tables/orders*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("group", name="Columns")).to_be_visible()
    window.context.close()


def test_keys_alone_lead_to_a_page(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui")
    expect(page.get_by_text("Postgres and the object store answer.")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("tab")
    expect(page.get_by_role("option", name="Home")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Tables")).to_be_visible()
