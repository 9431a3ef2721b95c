"""The pictures of the docs: the product after a really trained demo, in Chromium, saved in docs/pictures.

    python -m tests.bench.pictures [NAME ...] [--data FOLDER]

Run by hand where pages have changed. It trains the demo first, which takes minutes, unless FOLDER is the data folder of
one that has ended. Each picture is 1200 x 750 and at most 80 kB; no name of this machine is in it.
"""

from __future__ import annotations

import argparse
import base64
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from tests.bench.product import ROOT, environment, logged_in, running

FOLDER = ROOT / "docs" / "pictures"
MAX_BYTES = 80_000
SIZE = {"width": 1200, "height": 750}
SETTLE_MS = 2500
HOST = "trainer-1"  # the name of this host on the pages
DEMO = [sys.executable, "-m", "hacrl_web.ops.up", "demo", "--once"]
# PNG to WebP by the browser itself, smaller by quality until it fits.
TO_WEBP = """async ([png, most]) => {
  const picture = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [picture.width, picture.height];
  canvas.getContext("2d").drawImage(picture, 0, 0);
  for (let quality = 0.9; quality > 0.2; quality -= 0.1) {
    const text = canvas.toDataURL("image/webp", quality).split(",")[1];
    if (text.length * 3 / 4 < most) return text;
  }
  return "";
}"""


def home(page: Any) -> None:
    page.goto("/")


def sweep(page: Any) -> None:
    page.goto("/sweeps/")
    page.locator("main table a").first.click()


def scrolled(page: Any, top: str) -> None:
    """What has come to stand at the upper edge."""
    page.wait_for_timeout(SETTLE_MS)
    page.evaluate("top => scrollBy(0, document.querySelector(top).getBoundingClientRect().top - 110)", top)


def tab(name: str, top: str) -> Callable[[Any], None]:
    """A tab of a HACPO run, from `top` on."""

    def go(page: Any) -> None:
        sweep(page)
        page.locator(".sweep-matrix tr", has_text="hacpo").first.locator("a").first.click()
        page.locator(".tabs").get_by_role("link", name=name, exact=True).click()
        scrolled(page, top)

    return go


def new_run(page: Any) -> None:
    page.goto("/runs/new?compare=1")
    scrolled(page, "#section-compare")


def board(page: Any) -> None:
    page.goto("/leaderboard/")
    page.locator(".board h2 a").first.click()


def pretrained(page: Any) -> None:
    """The curves of all runs, from the held-out accuracy on."""
    sweep(page)
    runs = page.get_by_role("link", name="Compare these runs").get_attribute("href").partition("?")[2]
    page.goto(f"/runs/?{runs}&layout=panels")
    page.wait_for_timeout(SETTLE_MS)
    first = page.get_by_text("Held-out accuracy").last
    first.evaluate("one => scrollBy(0, one.getBoundingClientRect().top - 72)")


PICTURES: dict[str, Callable[[Any], None]] = {
    "home": home,
    "new-run": new_run,
    "sweep": sweep,
    "overview": tab("Overview", ".run-header"),
    "collaboration": tab("Collaboration", ".run-header"),
    "who-taught-whom": tab("Collaboration", "#measure"),
    "rollouts": tab("Rollouts", ".rollout-page"),
    "leaderboard": board,
}
# Of another data folder: --data of a pretrained demo that has ended.
OF_PRETRAINED: dict[str, Callable[[Any], None]] = {"pretrained": pretrained}


def main(names: list[str], data: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with running(data, HACRL_HOST=HOST) as (url, login), logged_in(url, login, viewport=SIZE) as page:
        converter = page.context.browser.new_page()  # about:blank: no policy of ours forbids the data address
        for name in names or PICTURES:
            (PICTURES | OF_PRETRAINED)[name](page)
            page.wait_for_timeout(SETTLE_MS)
            png = base64.b64encode(page.screenshot()).decode()
            content = base64.b64decode(converter.evaluate(TO_WEBP, [png, MAX_BYTES]))
            assert content, f"{name} does not fit into {MAX_BYTES} bytes"
            (FOLDER / f"{name}.webp").write_bytes(content)
            print(f"{name}.webp {len(content):,} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(PICTURES | OF_PRETRAINED)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which pictures: {names}")
    parser.add_argument("--data", help="the data folder of a demo that has ended")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not options.data:
            subprocess.run(DEMO, cwd=ROOT, env=environment(folder) | {"HACRL_HOST": HOST}, check=True)
        main(options.names, options.data or folder)
