"""Pages are looked at with Debian's Chromium, which scripts/ui/browser installs, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium")
TIMEOUT = 20_000
"""Milliseconds for what is expected of a page, on a machine that is busy."""

# Who is root has no user to shut it in by; what it shows is ours.
ARGUMENTS = ["--no-sandbox"] if os.getuid() == 0 else []


@dataclass
class Visit:
    """A page in a window of its own, and what it did beside what is seen: complaints, and whom it asked."""

    context: BrowserContext
    page: Page
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def close(self, dialog: Dialog) -> None:
        """No page of ours opens any."""
        self.complaints.append(dialog.message)
        dialog.dismiss()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium isn't installed, and it takes root to do that: scripts/ui/browser")
    expect.set_options(timeout=TIMEOUT)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


def visit(browser: Browser, **context: Any) -> Visit:
    opened = browser.new_context(viewport={"width": 1400, "height": 800}, **context)
    opened.set_default_timeout(TIMEOUT)
    made = Visit(opened, opened.new_page())
    made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
    made.page.on("dialog", made.close)
    made.page.on("console", lambda message: made.complaints.append(message.text))
    made.page.on("request", lambda request: made.asked.append(request.url))
    return made
