"""The pictures of terminals in docs/ are what sessions print today; browsers show the film of the console."""

import base64

import pytest
from playwright.sync_api import Browser

from scripts.console_film import FILM, encode_frame, join_frames
from scripts.pictures import DOCS, SESSIONS, build_picture, mask, record
from tests.support.browsers import browser  # noqa: F401 - a fixture
from tests.support.documents import PAGES

MAX_FILM_BYTES = 1_500_000
DECODE = """async film => {
  const bytes = Uint8Array.from(atob(film), letter => letter.charCodeAt(0));
  const decoder = new ImageDecoder({ data: bytes, type: "image/webp" });
  await decoder.tracks.ready;
  await decoder.completed;
  const { frameCount, animated } = decoder.tracks.selectedTrack;
  const { image } = await decoder.decode({ frameIndex: frameCount - 1 });
  return [frameCount, animated, image.displayWidth, image.displayHeight, image.duration];
}"""


@pytest.mark.commands
@pytest.mark.parametrize("name", SESSIONS)
def test_picture_is_what_a_session_prints(name: str) -> None:
    """Times, sizes and ids differ: `python -m scripts.pictures` writes it again after a change."""
    session = SESSIONS[name]
    assert mask(build_picture(session, record(session))) == mask((DOCS / f"{name}.svg").read_text())


def test_each_picture_is_on_a_page() -> None:
    pictures = {path.name for path in DOCS.glob("*.svg")}
    assert pictures == {f"{name}.svg" for name in SESSIONS}
    assert [name for name in pictures if not any(f"]({name})" in text for text in PAGES.values())] == []


@pytest.mark.console
def test_film_is_shown_by_browsers(browser: Browser) -> None:  # noqa: F811
    page = browser.new_page(viewport={"width": 480, "height": 300})
    page.route("http://localhost/", lambda route: route.fulfill(body="<body>film</body>", content_type="text/html"))
    page.goto("http://localhost/")  # only pages of such addresses may decode
    frames = [encode_frame(page, page.screenshot()) for _ in range(3)]
    made = join_frames(frames, 960, 600, 70_000)
    assert page.evaluate(DECODE, base64.b64encode(made).decode()) == [3, True, 960, 600, 70_000_000]
    kept = (DOCS / "console.webp").read_bytes()
    assert len(kept) < MAX_FILM_BYTES
    assert page.evaluate(DECODE, base64.b64encode(kept).decode())[:2] == [len(FILM), True]
    page.close()
