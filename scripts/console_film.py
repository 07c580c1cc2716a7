"""Write docs/console.png and the film docs/console.webp: the console in Chromium, on a lake that is really served.

python -m scripts.console_film   after a change of what the pages show; scripts.console_pictures has every page
"""

import argparse
import base64
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

import duckicelake
from scripts.demo_job.server import running_lake
from scripts.pictures import DOCS

_WIDTH, _HEIGHT = 1280, 800
_FRAME_WIDTH, _FRAME_HEIGHT = 960, 600
_QUALITY: Final = 0.8
_FRAME_MS: Final = 2200
_BATCHES, _BATCH_ROWS = 14, 900
_REGIONS: Final = ("north", "south", "west", "east")
_SETTLED_MS: Final = 400
"""For transitions of colours and the last layout."""
_EVENT_SCHEMA: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_ORDERS: Final = "w/duckicelake/tables/sales.orders"
_QUERY: Final = "SELECT region, sum(amount) AS revenue FROM sales.orders GROUP BY region ORDER BY revenue DESC"


@dataclass(frozen=True, slots=True)
class Scene:
    """A page of the film, and the text that is on it once it is whole."""

    path: str
    shown: str
    button: str | None = None


FILM: Final = (
    Scene("w/duckicelake", "PyIceberg"),
    Scene("w/duckicelake/tables?in=sales", "by_region"),
    Scene(_ORDERS, "Partitioned by"),
    Scene(f"{_ORDERS}?page=files&where=region = 'north'", "Reads"),
    Scene(f"{_ORDERS}?page=snapshots", "What changed"),
    Scene(f"w/duckicelake/sql?q={_QUERY}", "4 rows", "Run"),
    Scene("w/duckicelake/lineage?node=sales.orders", "daily_revenue"),
    Scene("w/duckicelake/history", "+900 rows"),
    Scene("w/duckicelake/upkeep", "Due now or next"),
)


def fill(uri: str) -> None:
    """Fill a lake with tables, a view, snapshots, a dropped table, a principal, and lineage of other tools."""
    with duckicelake.connect(uri) as lake, httpx.Client(base_url=uri, timeout=60) as http:
        for name, comment in (("sales", "Orders and what is made of them"), ("marts", "For reports")):
            lake.create_namespace(name, {"comment": comment})
        columns = (
            "id long not null comment 'Number of the order', region string, "
            "amount decimal(12, 2) comment 'Net, in euro', ordered timestamptz, address struct<city: string>"
        )
        lake.create_table("sales.orders", columns, partition_by="region")
        lake.create_table("sales.customers", "id long not null, name string, since date")
        lake.create_table("marts.daily_revenue", "day date, revenue decimal(14, 2)")
        lake.create_table("sales.old_orders", "id long")
        lake.create_view("sales.by_region", "SELECT region, sum(amount) AS revenue FROM sales.orders GROUP BY region")
        for batch in range(_BATCHES):
            path = "/v1/namespaces/sales/tables/orders/rows"
            rows = [build_order(batch * _BATCH_ROWS + number) for number in range(_BATCH_ROWS)]
            http.post(path, json=rows).raise_for_status()
            http.post(f"{path}/flush").raise_for_status()
        customers = [{"id": number, "name": f"Customer {number}", "since": "2026-01-05"} for number in range(40)]
        http.post("/v1/namespaces/sales/tables/customers/rows", json=customers).raise_for_status()
        http.delete("/v1/namespaces/sales/tables/old_orders").raise_for_status()
        http.post("/management/v1/principals", json={"name": "ann", "kind": "service", "description": "Reports"})
        for run, job, inputs, outputs in (
            (1, "ingest_orders", [("s3://landing", "orders")], [(f"{uri}/", "sales.orders")]),
            (2, "daily_revenue", [(uri, "sales.orders"), (uri, "sales.customers")], [(uri, "marts.daily_revenue")]),
        ):
            event = build_event(run, job, inputs, outputs)
            http.post("/api/v1/lineage", json=event).raise_for_status()


def build_order(number: int) -> dict[str, object]:
    """Build a row of the table orders."""
    day = 1 + number % 27
    return {
        "id": number,
        "region": _REGIONS[number % 4],
        "amount": f"{(number * 37) % 400}.{number % 90 + 10}",
        "ordered": f"2026-11-{day:02}T{number % 24:02}:00:00Z",
        "address": {"city": ("Porto", "Oslo", "Graz")[number % 3]},
    }


def build_event(
    run: int, job: str, inputs: Sequence[tuple[str, str]], outputs: Sequence[tuple[str, str]]
) -> dict[str, object]:
    """Build an event of OpenLineage about a run that is complete."""
    return {
        "eventType": "COMPLETE",
        "eventTime": "2026-11-27T06:00:00Z",
        "producer": "https://airflow.example",
        "schemaURL": _EVENT_SCHEMA,
        "run": {"runId": f"0197a000-0000-7000-8000-{run:012}"},
        "job": {"namespace": "airflow", "name": job},
        "inputs": [{"namespace": namespace, "name": name} for namespace, name in inputs],
        "outputs": [{"namespace": namespace, "name": name} for namespace, name in outputs],
    }


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Open Debian's Chromium, which scripts/ui/browser installs."""
    found = shutil.which("chromium")
    if found is None:
        raise SystemExit("console_film: Chromium is not installed: scripts/ui/browser")
    with sync_playwright() as playwright:
        # Who is root has no user to shut it in by; what it shows is ours.
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        yield browser
        browser.close()


def show(page: Page, uri: str, scene: Scene) -> bytes:
    """Return a screenshot of a scene."""
    page.goto(f"{uri}/ui/{scene.path}")
    if scene.button is not None:
        page.get_by_role("button", name=scene.button).first.click()
    page.get_by_text(scene.shown).filter(visible=True).first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(_SETTLED_MS)
    return page.screenshot()


_ENCODE: Final = """async ([png, width, height, quality]) => {
  const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality })).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""


def encode_frame(page: Page, png: bytes) -> bytes:
    """Encode a screenshot as WebP, by the browser's own encoder."""
    given = [base64.b64encode(png).decode(), _FRAME_WIDTH, _FRAME_HEIGHT, _QUALITY]
    return base64.b64decode(page.evaluate(_ENCODE, given))


def join_frames(frames: Sequence[bytes], width: int, height: int, frame_ms: int) -> bytes:
    """Join still WebP files to an animated one, which begins anew after the last frame."""
    canvas = struct.pack("<BxxxHBHB", 0b10, *_split(width - 1), *_split(height - 1))
    parts = [_chunk(b"VP8X", canvas), _chunk(b"ANIM", struct.pack("<IH", 0xFFFFFFFF, 0))]
    for frame in frames:
        place = struct.pack("<HBHBHBHBHBB", 0, 0, 0, 0, *_split(width - 1), *_split(height - 1), *_split(frame_ms), 0)
        parts.append(_chunk(b"ANMF", place + _read_bitstream(frame)))
    body = b"WEBP" + b"".join(parts)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _split(number: int) -> tuple[int, int]:
    """Return a number of 24 bits as 16 and 8."""
    return number & 0xFFFF, number >> 16


def _chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def _read_bitstream(still: bytes) -> bytes:
    """Return the chunk of a still WebP file that has its pixels."""
    at = 12
    while at < len(still):
        name, size = still[at : at + 4], struct.unpack_from("<I", still, at + 4)[0]
        if name in {b"VP8 ", b"VP8L"}:
            return _chunk(name, still[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
    raise ValueError("The file has no pixels: expected a still WebP")


def write_film(browser: Browser, uri: str) -> None:
    """Write the picture and the film."""
    page = browser.new_page(
        viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light", reduced_motion="reduce"
    )
    shots = [show(page, uri, scene) for scene in FILM]
    (DOCS / "console.png").write_bytes(shots[3])
    page.goto("about:blank")
    frames = [encode_frame(page, shot) for shot in shots]
    (DOCS / "console.webp").write_bytes(join_frames(frames, _FRAME_WIDTH, _FRAME_HEIGHT, _FRAME_MS))


def main() -> None:
    """Serve a lake, fill it, and write the picture and the film."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="duckicelake-film-") as name,
        open_browser() as browser,
        running_lake(Path(name) / "lake", Path(name) / "log") as lake,
    ):
        fill(lake.uri)
        write_film(browser, lake.uri)


if __name__ == "__main__":
    main()
