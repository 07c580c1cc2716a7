"""Dialogs of acts: sent once, beaten by others, refused at the field, by keys alone, with any name, for everybody."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from duckicelake.changelog.writer import write_all_changes
from tests.console.conftest import HOSTILE, ShownLake
from tests.console.test_access import AXE, find_violations
from tests.console.test_acts import choose, load, metadata, run_shell, space
from tests.console.test_session import sign_in
from tests.support.browsers import Visit, visit
from tests.support.logins import NOW

__all__ = ["space"]
pytestmark = pytest.mark.console
NAMES = {
    "markup": HOSTILE,
    "quotes": """it's "a" `b`""",
    "dots": "-a.b~c..d",
    "right to left": "\u202e\u05d8\u05d1\u05dc\u05d4 \u05e9\u05dc\u05d9",
    "long": "x" * 255,
    "shell": "$(id);&|<>*?[a]{b}\\",
}


def write_name(*levels: str) -> str:
    """As the console has it."""
    return ".".join(level.replace("~", "~~").replace(".", "~.") for level in levels)


def watch_posts(page: Page) -> list[Any]:
    found: list[Any] = []
    page.on("request", lambda request: found.append(request) if request.method == "POST" else None)
    return found


def test_double_click_sends_an_act_once(lake: ShownLake, window: Visit, space: str) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}&new=namespace")
    posts = watch_posts(page)
    page.get_by_role("dialog").get_by_label("Name").fill(f"{space}.twice")
    page.get_by_role("button", name="Create").dblclick()
    expect(page.get_by_role("heading", name="twice")).to_be_visible()
    assert len([one for one in posts if one.url.endswith("/v1/namespaces")]) == 1


def test_act_without_an_answer_is_sent_again_and_takes_effect_once(lake: ShownLake, window: Visit, space: str) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}&new=namespace")
    posts = watch_posts(page)

    def lose(route: Route) -> None:
        if route.request.method == "POST":
            route.fetch()
            route.abort()
        else:
            route.continue_()

    page.route("**/v1/namespaces", lose)
    page.get_by_role("dialog").get_by_label("Name").fill(f"{space}.lost")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("No answer")
    page.unroute("**/v1/namespaces")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="lost")).to_be_visible()
    keys = {one.headers["idempotency-key"] for one in posts}
    assert len(keys) == 1
    window.complaints.clear()


def test_refusal_stands_at_its_field(lake: ShownLake, window: Visit, space: str) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}&new=table")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name, with its namespace").fill(f"{space}.t")
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("already exists")
    expect(dialog.locator(".field-trouble")).to_have_count(1)
    dialog.get_by_label("Name, with its namespace").fill(f"{space}.other")
    dialog.get_by_label("Type of column 1", exact=True).fill("decimal(99, 2)")
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("99")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    window.complaints.clear()


def test_lost_race_says_who_was_faster_and_keeps_what_was_typed(lake: ShownLake, window: Visit, space: str) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables/{space}.t")
    dialog = choose(page, "Change", "Edit columns")
    dialog.get_by_label("Comment of column 2", exact=True).fill("mine")
    dialog.get_by_role("button", name="Add a column", exact=True).click()
    dialog.get_by_label("Name of column 4").fill("mine")
    dialog.get_by_label("Type of column 4").fill("date")
    with load(lake, space).update_schema() as update:
        update.rename_column("note", "theirs")
    write_all_changes(lake.services)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Another writer was faster")
    expect(dialog.get_by_role("alert")).to_contain_text("Alter table")
    dialog.get_by_role("button", name="Look at what there is now").click()
    expect(dialog.get_by_label("Name of column 2", exact=True)).to_have_value("theirs")
    expect(dialog.get_by_label("Comment of column 2", exact=True)).to_have_value("mine")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    schema = load(lake, space).schema()
    assert [one.name for one in schema.fields] == ["id", "theirs", "place", "mine"]
    assert schema.find_field("theirs").doc == "mine"
    window.complaints.clear()


def test_namespace_and_table_are_made_by_keys_alone(lake: ShownLake, window: Visit, space: str) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}")
    expect(page.get_by_role("heading", name=space)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("new namespace")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Name")).to_be_focused()
    page.keyboard.type(f"{space}.keys")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="keys")).to_be_visible()
    page.get_by_role("link", name="New table").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Name, with its namespace")).to_be_focused()
    page.keyboard.type("t")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="t", exact=True)).to_be_visible()
    assert metadata(lake, f"{space}%1Fkeys", "t")["schemas"][0]["fields"][0]["name"] == "id"


@pytest.mark.parametrize("name", NAMES.values(), ids=list(NAMES))
def test_any_name_is_made_and_changed_as_it_is(
    lake: ShownLake, window: Visit, space: str, tmp_path: Path, name: str
) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}&new=table")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name, with its namespace").fill(write_name(space, name))
    dialog.get_by_label("Name of column 1", exact=True).fill(name)
    dialog.get_by_text("The same by command").click()
    command = dialog.get_by_label("the command", exact=True).inner_text()
    page.keyboard.press("Escape")
    run_shell(command, tmp_path)
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}")
    page.get_by_role("region", name="Tables and views").get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    dialog = choose(page, "Change", "Edit columns")
    dialog.get_by_label("Comment of column 1", exact=True).fill(name)
    dialog.get_by_text("The same by command").click()
    command = dialog.get_by_label("the command", exact=True).inner_text()
    page.keyboard.press("Escape")
    run_shell(command, tmp_path)
    page.reload()
    expect(page.get_by_role("group", name="Columns")).to_contain_text(name)
    choose(page, "Change", "Drop").get_by_label("Type").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Drop", exact=True).click()
    expect(page.get_by_role("heading", name="Dropped")).to_be_visible()
    assert page.locator("img").count() == 0
    found = lake.ask("GET", f"/v1/dropped?namespace={space}")["dropped"]
    assert [one["name"] for one in found] == [name]


DIALOGS = {
    "table": ("tables/sales.orders", "Change", "Edit columns"),
    "arrangement": ("tables/sales.orders", "Change", "Edit partitions and order"),
    "properties": ("tables/sales.orders", "Change", "Edit properties"),
    "restore": ("tables/sales.orders", "Change", "Restore"),
    "clone": ("tables/sales.orders", "Change", "Clone"),
    "constraint": ("tables/sales.orders", "Change", "Add a constraint"),
    "reference": ("tables/sales.orders", "Change", "Make a branch or tag"),
    "rename": ("tables?in=sales", "Change", "Rename"),
    "new namespace": ("tables?in=sales", "New", "New namespace"),
    "new table": ("tables?in=sales", "New", "New table"),
    "new view": ("tables?in=sales", "New", "New view"),
}


@pytest.mark.skipif(not AXE.exists(), reason="axe comes with the libraries that scripts/ui/build fetches")
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_in_dialogs(lake: ShownLake, browser: Browser, colours: str) -> None:
    window = visit(browser, color_scheme=colours, reduced_motion="reduce")
    for name, (path, menu, act) in DIALOGS.items():
        window.page.goto(f"{lake.uri}/ui/w/duckicelake/{path}")
        choose(window.page, menu, act)
        window.page.get_by_text("The same by command").click()
        window.page.wait_for_load_state("networkidle")
        assert find_violations(window.page) == [], name
    window.context.close()


def test_dialogs_fit_a_narrow_screen(lake: ShownLake, browser: Browser) -> None:
    window = visit(browser)
    window.page.set_viewport_size({"width": 360, "height": 740})
    for name, (path, menu, act) in DIALOGS.items():
        window.page.goto(f"{lake.uri}/ui/w/duckicelake/{path}")
        window.page.locator("summary", has_text=menu).click()
        box = window.page.locator(".menu[open] ul").bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        window.page.locator("summary", has_text=menu).click()
        choose(window.page, menu, act)
        window.page.get_by_text("The same by command").click()
        wide = "(() => { const one = document.querySelector('dialog'); return one.scrollWidth - one.clientWidth })()"
        assert window.page.evaluate(wide) <= 1, name
    window.context.close()


def test_request_goes_with_the_login_of_the_variable(lake: ShownLake, browser: Browser) -> None:
    """The token itself is shown nowhere."""
    lake.server.clock.now = NOW
    window = visit(browser)
    page = window.page
    page.goto(f"{lake.guarded}/ui/w/duckicelake/tables?in=sales&new=table")
    sign_in(window)
    page.get_by_text("The same by command").click()
    shown = page.get_by_role("dialog").inner_text()
    assert "$DUCKICELAKE_CLIENT_TOKEN" in shown
    assert page.evaluate("sessionStorage.getItem('duckicelake.token')") not in shown
    window.context.close()


def test_change_of_one_tab_is_seen_in_the_other_which_keeps_what_is_typed(
    lake: ShownLake, window: Visit, space: str
) -> None:
    other = window.context.new_page()
    other.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}")
    listed = other.get_by_role("region", name="Tables and views")
    expect(listed).to_be_visible()
    typed = choose(other, "New", "New table").get_by_label("Name").first
    typed.fill("half_a_name")
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}&new=namespace")
    page.get_by_role("dialog").get_by_label("Name").fill(f"{space}.of_one_tab")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="of_one_tab")).to_be_visible()
    expect(listed.get_by_text("of_one_tab")).to_be_visible()
    expect(typed).to_have_value("half_a_name")


def test_act_without_a_network_fails_at_once_and_can_be_tried_again(
    lake: ShownLake, browser: Browser, space: str
) -> None:
    window = visit(browser)
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}&new=namespace")
    page.get_by_role("dialog").get_by_label("Name").fill(f"{space}.later")
    page.wait_for_load_state("networkidle")
    window.context.set_offline(True)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("No answer")
    window.context.set_offline(False)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="later")).to_be_visible()
    window.context.close()


def test_token_that_ends_in_an_act_leaves_it_undone_and_leads_back_to_it(lake: ShownLake, browser: Browser) -> None:
    window = visit(browser)
    page = window.page
    lake.server.clock.now = NOW
    page.goto(f"{lake.guarded}/ui/w/duckicelake/tables?in=sales&new=namespace")
    sign_in(window)
    page.get_by_role("dialog").get_by_label("Name").fill("sales.too_late")
    lake.server.clock.now = NOW + 7200
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("expired")
    expect(page.get_by_role("dialog")).to_have_count(0)
    lake.server.clock.now = NOW
    sign_in(window)
    expect(page.get_by_role("dialog")).to_be_visible()
    assert ["sales", "too_late"] not in lake.ask("GET", "/v1/namespaces?parent=sales")["namespaces"]
    window.context.close()
