"""How long a browser waits for the charts of a long run: from the click to the first chart, and to all in sight.

    python -m tests.bench.first_charts --data FOLDER [--loads 10]

FOLDER: what `python -m tests.bench.pages --full --data FOLDER` has left (a run of 1,000,000 metric points). A real `up`
and Chromium without a GPU; each load has an empty cache. Aim: the first charts within 1.5 s.
"""

from __future__ import annotations

import argparse
import os
import re

from tests.bench.pages import quantile
from tests.bench.product import logged_in, running

AIM_S = 1.5
# Looks once a frame, as a person would; times are counted from the moment the page was asked for.
WATCH = """(() => {
  const look = () => {
    const frames = [...document.querySelectorAll('#charts .chart-frame')];
    const drawn = frames.filter((frame) => frame.querySelector('canvas'));
    const inSight = frames.filter((frame) => {
      const box = frame.getBoundingClientRect();
      return box.top < innerHeight && box.bottom > 0;
    });
    if (drawn.length && !window.firstChart) window.firstChart = performance.now();
    if (drawn.length && inSight.every((frame) => drawn.includes(frame))) window.allCharts = performance.now();
    else requestAnimationFrame(look);
  };
  look();
})()"""


def longest_run(page: object) -> str:
    """The path of the run with the most steps, by the API."""
    runs = page.request.get("/api/v1/runs").json()["items"]  # type: ignore[attr-defined]
    return f"/runs/{max(runs, key=lambda run: run['total_steps'])['id']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a data folder with a long run")
    parser.add_argument("--run", help="a run's id, where the newest hundred do not hold the longest")
    parser.add_argument("--loads", type=int, default=10)
    options = parser.parse_args()
    return measure(options)


def measure(options: argparse.Namespace) -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with (
        running(os.path.abspath(options.data)) as (url, login),
        logged_in(url, login, viewport={"width": 1440, "height": 900}) as page,
    ):
        path = f"/runs/{options.run}" if options.run else longest_run(page)
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")  # without it the next order does nothing
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        page.add_init_script(WATCH)
        times: dict[str, list[float]] = {"firstChart": [], "allCharts": []}
        for _ in range(options.loads + 1):
            page.goto(path)
            page.wait_for_function("() => window.allCharts", timeout=60_000)
            for name, found in times.items():
                found.append(page.evaluate(f"() => window.{name}") / 1000)
        points = page.get_attribute("#charts", "data-points")
    print(f"{points} points drawn; the first load, then the median and the slowest of {options.loads}:")
    for name, (first, *later) in times.items():
        words = re.sub("([A-Z])", r" \1", name).lower()
        print(f"{words:12} {first:5.2f} s {quantile(later, 0.5):5.2f} s {max(later):5.2f} s")
    print("MISSED" if quantile(times["firstChart"][1:], 0.95) > AIM_S else f"within the aim of {AIM_S} s")


if __name__ == "__main__":
    main()
