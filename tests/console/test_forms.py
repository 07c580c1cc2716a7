"""Forms of administration: what the server refuses stands at its field, is led to, and what was typed stays."""

import re
from dataclasses import dataclass

import pytest
from playwright.sync_api import expect

from tests.console.test_administration import GovernedServer, dialog_of, governed, window
from tests.support.browsers import Visit

__all__ = ["governed", "window"]
pytestmark = pytest.mark.console


@dataclass(frozen=True, slots=True)
class Refused:
    """A form, what is typed, and the field that the server refuses. opened: what is unfolded to type, then folded."""

    page: str
    button: str
    verb: str
    typed: dict[str, str]
    field: str
    words: str
    opened: str = ""


ISSUER = {"Name": "corp", "Audience": "lake", "URL": "https://id.example"}
PROFILE = {"Name": "eu", "Folder": "s3://bucket/lakes", "Key id": "AKIA", "Secret": "very secret"}
CLOCK = "Keys and clock"
CONSOLE = "Sign in to the console there"
REFUSALS = {
    "issuer, name": Refused("issuers", "Trust an issuer", "Trust it", ISSUER | {"Name": "A B"}, "Name", "issuer name"),
    "issuer, URL": Refused("issuers", "Trust an issuer", "Trust it", ISSUER | {"URL": "id"}, "URL", "Invalid url"),
    "issuer, scopes": Refused(
        "issuers", "Trust an issuer", "Trust it", ISSUER | {"Scopes": "what"}, "Scopes", "is not a scope"
    ),
    "issuer, leeway": Refused(
        "issuers", "Trust an issuer", "Trust it", ISSUER | {"Leeway": "soon"}, "Leeway", "valid integer", CLOCK
    ),
    "issuer, parameters": Refused(
        "issuers",
        "Trust an issuer",
        "Trust it",
        ISSUER | {"Client": "console", "Other parameters": "prompt"},
        "Other parameters",
        "web-parameters",
        CONSOLE,
    ),
    "principal, name": Refused("people", "Register", "Register", {"Name": "admin"}, "Name", "already"),
    "principal, scopes": Refused(
        "people", "Register", "Register", {"Name": "eve", "Scopes": "what"}, "Scopes", "is not a scope"
    ),
    "warehouse, name": Refused("warehouses", "Create a warehouse", "Create", {"Name": "A B"}, "Name", "warehouse name"),
    "warehouse, folder": Refused(
        "warehouses",
        "Create a warehouse",
        "Create",
        {"Name": "w", "Folder of its files": "/etc"},
        "Folder of its files",
        "location",
    ),
    "warehouse, profile": Refused(
        "warehouses", "Create a warehouse", "Create", {"Name": "w", "Storage profile": "x"}, "Storage profile", "x"
    ),
    "warehouse, database": Refused(
        "warehouses",
        "Create a warehouse",
        "Create",
        {"Name": "w", "URL of its database": "here"},
        "URL of its database",
        "database-url",
        "A catalog that is there, or another database",
    ),
    "profile, name": Refused(
        "warehouses", "Create a profile", "Create", PROFILE | {"Name": "A B"}, "Name", "Invalid name"
    ),
    "profile, folder": Refused(
        "warehouses", "Create a profile", "Create", PROFILE | {"Folder": "here"}, "Folder", "location"
    ),
    "grant, principal": Refused(
        "grants", "Grant", "Grant", {"To whom": "no-one", "On": "warehouse"}, "To whom", "no-one"
    ),
    "grant, object": Refused("grants", "Grant", "Grant", {"To whom": "ana", "On": "table:a.b"}, "On", "a.b"),
    "member": Refused("people/staff", "Add a member", "Add", {"Member": "no-one"}, "Member", "no-one"),
    "tag": Refused(
        "policies", "Tag a column", "Tag it", {"Tag": "pii", "Table": "table:a.b", "Column": "c"}, "Table", "a.b"
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal_stands_at_its_field_and_is_led_to(governed: GovernedServer, window: Visit, name: str) -> None:
    """By keys alone, once the dialog is open."""
    form = REFUSALS[name]
    page = governed.open(window, form.page)
    page.get_by_role("button", name=form.button, exact=True).click()
    dialog = dialog_of(page)
    summary = dialog.locator("summary", has_text=form.opened) if form.opened else None
    if summary:
        summary.press("Enter")
    for label, text in form.typed.items():
        dialog.get_by_label(label, exact=True).first.fill(text)
    if summary:
        summary.press("Enter")
    dialog.get_by_role("button", name=form.verb, exact=True).press("Enter")
    field = dialog.locator("[aria-invalid=true]")
    expect(field).to_have_count(1)
    expect(field).to_be_focused()
    expect(field).to_have_accessible_description(re.compile(re.escape(form.words)))
    expect(dialog.get_by_role("alert")).to_have_count(1)
    for label, text in form.typed.items():
        expect(dialog.get_by_label(label, exact=True).first).to_have_value(text)
    window.complaints.clear()


def test_fields_that_are_needed_say_so(governed: GovernedServer, window: Visit) -> None:
    page = governed.open(window, "issuers")
    page.get_by_role("button", name="Trust an issuer", exact=True).click()
    needed = dialog_of(page).locator("[aria-required=true]")
    expect(needed).to_have_count(3)
    expect(dialog_of(page).get_by_text("* needed")).to_be_visible()
    expect(dialog_of(page).get_by_role("button", name="Trust it")).to_be_disabled()
    for field in needed.all():
        field.fill("x")
    expect(dialog_of(page).get_by_role("button", name="Trust it")).to_be_enabled()
