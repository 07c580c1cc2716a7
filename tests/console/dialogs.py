"""Dialogs of the console by name, and how they open: tests try each, scripts/console_pictures shows them."""

from collections.abc import Callable

from playwright.sync_api import Page

BASE = "w/duckicelake"


def open_menu(menu: str, act: str) -> Callable[[Page], None]:
    """Return what opens an act's dialog from a menu."""

    def open_it(page: Page) -> None:
        page.locator("summary", has_text=menu).first.click()
        page.get_by_role("button", name=act).first.click()

    return open_it


def make_of_result(act: str) -> Callable[[Page], None]:
    """Return what opens the dialog that makes a thing of a query's result."""

    def open_it(page: Page) -> None:
        page.get_by_role("button", name="Run", exact=True).click()
        open_menu("Make", act)(page)
        page.get_by_label("Name, with its namespace").fill("sales.saved")
        page.get_by_label("What will change").wait_for()

    return open_it


def press(name: str) -> Callable[[Page], None]:
    """Return what presses a button."""
    return lambda page: page.get_by_role("button", name=name).first.click()


SQL = f"{BASE}/sql?q=SELECT region, count(*) AS n FROM sales.orders GROUP BY ALL"
DIALOGS: dict[str, tuple[str, Callable[[Page], None]]] = {
    "sql result": (SQL, press("Run")),
    "save as": (SQL, make_of_result("A table of the result")),
    "materialize": (SQL, make_of_result("A materialized view")),
    "refresh": (f"{BASE}/tables/sales.shown", open_menu("Refresh", "Refresh now")),
    "schedule": (f"{BASE}/tables/sales.shown", open_menu("Refresh", "Set the schedule")),
    "create table": (f"{BASE}/tables?in=sales", open_menu("New", "Table")),
    "restore": (f"{BASE}/tables/sales.orders", open_menu("Change", "Restore")),
    "upkeep act": (f"{BASE}/upkeep", press("Do what is due")),
    "issuer": (f"{BASE}/issuers", press("Trust an issuer")),
    "storage profile": (f"{BASE}/warehouses", press("Create a profile")),
    "warehouse act": (f"{BASE}/warehouses", press("Create a warehouse")),
    "grant": (f"{BASE}/grants", press("Grant")),
    "principal act": (f"{BASE}/people", press("Register")),
    "palette": (BASE, lambda page: page.keyboard.press("/")),
}
"""What stands above a page after a click, each with the address of the page."""
