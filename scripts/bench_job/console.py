"""The console on a large lake, in Chromium: 10,000 tables, 1,000 columns, 100,000 snapshots, 1,000,000 files.

Each page is opened twice. The second time is measured, with the console in the browser's cache and tables in the
server's: until the first useful content, requests and their bytes, what the layout jumps, and memory of the page. Lists
are then scrolled, and the longest pause between two frames is kept. Searches are measured on the server alone. The
cache of tables has 2 GB, as a table of 100,000 snapshots takes more than the default allows.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from scripts.bench_job.large_lake import CROWD, Size, make_large
from scripts.bench_job.results import Result, Target, options_of, p50, report
from scripts.bench_job.servers import Bench
from scripts.demo_job.server import running_lake

SETTINGS: Final = {
    "DUCKICELAKE_LOG_FORMAT": "json",
    "DUCKICELAKE_CACHE_MAX_BYTES": str(2 << 30),
    "DUCKICELAKE_SCAN_CACHE_MAX_BYTES": str(1 << 30),
}
QUICK: Final = Size(tables=1_000, columns=200, snapshots=5_000, files=50_000)
TABLE: Final = "w/duckicelake/tables/bench"
CONTENT_MS: Final = 600_000
USEFUL: Final = 1_000.0
SHIFT: Final = 0.1
FRAME_MS: Final = 100.0
SEARCH_MS: Final = 300.0
SEARCHES: Final = {"a name": "shipments_0077", "a column": "measure_3_55", "a comment": "depot 77", "nothing": "zebra"}
WATCH: Final = """
window.shifts = 0;
new PerformanceObserver(list => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifts += one.value;
}).observe({type: 'layout-shift', buffered: true});
window.longest = 0;
new PerformanceObserver(list => {
  for (const one of list.getEntries()) window.longest = Math.max(window.longest, one.duration);
}).observe({type: 'longtask', buffered: true});
"""
ANSWERS: Final = r"""
performance.getEntriesByType('resource').filter(one => /\/v1\/|readyz/.test(one.name)).map(one => one.encodedBodySize)
"""
SCROLL: Final = """
async box => {
  const frames = [];
  let last = performance.now();
  for (let step = 0; step < 90; step += 1) {
    box.scrollTop += 400;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return frames;
}
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A page: its address, what is useful of it, and the list to scroll, if it has a long one; as CSS selectors."""

    path: str
    useful: str
    scrolled: str | None = None


PAGES: Final[Mapping[str, Shown]] = {
    "home": Shown("w/duckicelake", ".changes > li"),
    "namespace": Shown(f"w/duckicelake/tables?in={CROWD}", ".list .kind-table", ".scroll.tall"),
    "schema": Shown(f"{TABLE}.wide", "[aria-label=Columns] td", "[aria-label=Columns]"),
    "snapshots": Shown(f"{TABLE}.long?page=snapshots", ".timeline li", ".scroll.tall"),
    "history of a table": Shown(f"{TABLE}.long?page=history", ".changes > li"),
    "files": Shown(f"{TABLE}.parcels?page=files", "[aria-label='What a filter reads'] svg"),
    "history": Shown("w/duckicelake/history", ".changes > li"),
    "audit": Shown("w/duckicelake/audit", "[aria-label='Audit trail'] td", "[aria-label='Audit trail']"),
    "upkeep": Shown("w/duckicelake/upkeep", ":is([aria-label=Queue], [aria-label='Due now or next']) :is(td, .notice)"),
    "doctor": Shown("w/duckicelake/doctor", ".findings"),
    "SQL": Shown("w/duckicelake/sql", ".cm-content"),
    "api": Shown("w/duckicelake/api", "h1"),
}


def main() -> None:
    options = options_of(__doc__)
    size = QUICK if options.quick else Size()
    with tempfile.TemporaryDirectory(prefix="duckicelake-bench-", ignore_cleanup_errors=True) as place:
        report("The console on a large lake", list(measure(Path(place), size)), options)


def measure(place: Path, size: Size) -> Iterator[Result]:
    folder, log = place / "lake", place / "server.log"
    with running_lake(folder, log, SETTINGS) as lake:
        make_large(Bench(lake.uri, lake.folder, lake.ducklake_attach), size)
    with running_lake(folder, log, SETTINGS) as lake, sync_playwright() as playwright:
        yield from measure_search(lake.uri)
        arguments = ["--no-sandbox", "--enable-precise-memory-info"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        for name, shown in PAGES.items():
            yield from measure_page(browser, lake.uri, name, shown)
        browser.close()


def measure_search(uri: str) -> Iterator[Result]:
    """Measure searches on the server alone: the first page of what the palette asks for."""
    with httpx.Client(base_url=uri, timeout=120) as http:
        for name, text in SEARCHES.items():
            took = []
            for _ in range(5):
                begun = time.perf_counter()
                http.get("/v1/search", params={"q": text, "pageSize": 50, "pageToken": ""}).raise_for_status()
                took.append((time.perf_counter() - begun) * 1e3)
            yield Result(f"search for {name}", p50(took), "ms", Target("≤", SEARCH_MS))


def measure_page(browser: Browser, uri: str, name: str, shown: Shown) -> Iterator[Result]:
    context = browser.new_context(viewport={"width": 1400, "height": 800})
    context.set_default_timeout(CONTENT_MS)
    context.add_init_script(WATCH)
    page = context.new_page()
    cold = open_page(page, uri, shown)
    page.wait_for_load_state("networkidle")
    warm = open_page(page, uri, shown)
    page.wait_for_load_state("networkidle")
    asked, kilobytes = weigh_answers(page)
    yield Result(f"{name}: first useful content", warm, "ms", Target("≤", USEFUL), cold, "ms, the first time")
    yield Result(f"{name}: requests", asked, "")
    yield Result(f"{name}: answers", kilobytes, "kB")
    yield Result(f"{name}: layout shift", page.evaluate("window.shifts"), "", Target("≤", SHIFT))
    yield Result(f"{name}: longest task", page.evaluate("window.longest"), "ms")
    yield Result(f"{name}: memory", page.evaluate("performance.memory.usedJSHeapSize") / 1e6, "MB")
    if shown.scrolled is not None:
        frames = scroll(page, shown.scrolled)
        yield Result(f"{name}: longest frame in scrolling", max(frames), "ms", Target("≤", FRAME_MS))
        yield Result(f"{name}: frames over 50 ms", sum(frame > 50 for frame in frames), f"of {len(frames)}")
    context.close()


def open_page(page: Page, uri: str, shown: Shown) -> float:
    """Open a page; milliseconds until what is useful of it is there."""
    begun = time.perf_counter()
    page.goto(f"{uri}/ui/{shown.path}", wait_until="commit")
    page.locator(shown.useful).first.wait_for()
    return (time.perf_counter() - begun) * 1e3


def weigh_answers(page: Page) -> tuple[int, float]:
    """Return how many requests to the API the page has sent, and the kB of their answers."""
    sizes: list[int] = page.evaluate(ANSWERS)
    return len(sizes), sum(sizes) / 1e3


def scroll(page: Page, selector: str) -> list[float]:
    """Scroll a list by 400 pixels a frame; milliseconds between the frames."""
    frames: list[float] = page.locator(selector).last.evaluate(SCROLL)
    return frames[1:]


if __name__ == "__main__":
    main()
