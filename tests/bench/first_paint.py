"""How heavy the most visited pages are and how soon a browser paints them: home, a run, the leaderboard.

    python -m tests.bench.first_paint --data FOLDER [--loads 5]

FOLDER: a data folder with runs, such as `./hacrl seed_demo_data` leaves. A real `up`, warm, and Chromium without
a GPU; each load has an empty cache. Aims: 300 kB of scripts and styles without Plotly, which
tests/web/test_page_weight.py holds; the first paint within 1 s; a layout that stays where it was painted (a cumulative
shift below .1).
"""

from __future__ import annotations

import argparse
import os
from statistics import median
from typing import Any

from tests.bench.first_charts import longest_run
from tests.bench.product import logged_in, running

AIM_S, AIM_BYTES, AIM_SHIFT = 1.0, 300_000, 0.1
SETTLE_MS = 700  # what is drawn late may still push the rest away
MEASURE = """() => new Promise((resolve) => {
  let shift = 0;
  const add = (one) => { shift += one.hadRecentInput ? 0 : one.value; };
  new PerformanceObserver((list) => list.getEntries().forEach(add))
    .observe({ type: "layout-shift", buffered: true });
  const files = performance.getEntriesByType("resource").filter((one) => ["script", "link", "css", "other"]
    .includes(one.initiatorType) && /\\.(m?js|css)$/.test(new URL(one.name).pathname));
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  setTimeout(() => resolve({ shift, paint: paint ? paint.startTime / 1000 : null,
    files: files.map((one) => [one.name, one.transferSize, one.decodedBodySize]) }), 50);
})"""


def measured(page: Any, path: str, loads: int) -> tuple[list[dict[str, Any]], int]:
    """What each load told, without the first; the files of the last."""
    found = []
    for _ in range(loads + 1):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(SETTLE_MS)
        found.append(page.evaluate(MEASURE))
    return found[1:], len(found[-1]["files"])


def report(path: str, found: list[dict[str, Any]], num_files: int) -> bool:
    """Prints one page's line; True where it is within the aims."""
    light = [file for file in found[-1]["files"] if "plotly" not in file[0].rpartition("/")[2]]
    sent, raw = (sum(file[place] for file in light) for place in (1, 2))
    paint, shift = median(one["paint"] for one in found), max(one["shift"] for one in found)
    print(
        f"{path[:40]:40} {num_files:3} files, {sent / 1000:6.1f} kB sent, {raw / 1000:6.1f} kB raw, "
        f"first paint {paint:.2f} s, shift {shift:.3f}"
    )
    return paint < AIM_S and sent < AIM_BYTES and shift < AIM_SHIFT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a data folder with runs")
    parser.add_argument("--loads", type=int, default=5)
    options = parser.parse_args()
    return measure(options)


def measure(options: argparse.Namespace) -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with (
        running(os.path.abspath(options.data)) as (url, login),
        logged_in(url, login, viewport={"width": 1440, "height": 900}) as page,
    ):
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")  # without it the next order does nothing
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        paths = ["/", longest_run(page), "/leaderboard/"]
        page.goto("/leaderboard/")
        boards = page.locator("main a[href*='/leaderboard/board?']")
        paths += [boards.first.get_attribute("href")] if boards.count() else []
        is_within = [report(path, *measured(page, path, options.loads)) for path in paths]
    print("within the aims" if all(is_within) else "MISSED")


if __name__ == "__main__":
    main()
