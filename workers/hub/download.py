"""Downloads the models of a run into the cache, before its trainer starts; a short process of the worker.

`python -m workers.hub.download` reads a line {hub_token, models: [[hub id, revision]]} from stdin, and prints lines
{message} for the log and {phase} for the run's page while it downloads, and {ok} or {error} at its end. It ends when
its stdin closes. The trainer then reads the
cache and needs no token.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from fnmatch import fnmatch
from typing import Any

from workers.contract.number_format import format_duration, format_size
from workers.hub.client import SMALL_FILES, TIMEOUT_S, cached_weight_facts, hub_errors, refusal

REPORT_EVERY_S = 10.0
PHASE_EVERY_S = 1.0
SPEED_AFTER_S = 3.0  # a speed measured for less than this says nothing
FOREIGN_WEIGHTS = "consolidated*"  # the same weights in the format of another library


class DownloadProgress:
    """Bytes of one model, reported at intervals."""

    def __init__(self, hub_id: str, total: int) -> None:
        self.hub_id, self.total, self.done = hub_id, total, 0
        self._hub_bytes, self._begun_at = 0, time.monotonic()
        self._reported_at, self._shown_at = -REPORT_EVERY_S, -PHASE_EVERY_S

    def receive(self, num_bytes: float) -> None:
        """Bytes from the hub."""
        self._hub_bytes += int(num_bytes)
        self.add(int(num_bytes))

    def add(self, num_bytes: int) -> None:
        """Bytes from the hub or the cache."""
        if not num_bytes:
            return
        self.done += num_bytes
        now, is_whole = time.monotonic(), self.done == self.total
        text = f"downloading {self.hub_id}: {format_size(self.done)} of {format_size(self.total)}"
        if is_whole or now - self._shown_at >= PHASE_EVERY_S:
            self._shown_at = now
            print_line({"phase": text + self._time_left(now - self._begun_at)})
        if is_whole or now - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = now
            print_line({"message": text})

    def _time_left(self, elapsed_s: float) -> str:
        if elapsed_s < SPEED_AFTER_S or not self._hub_bytes or self.done >= self.total:
            return ""
        return f", about {format_duration((self.total - self.done) * elapsed_s / self._hub_bytes)} left"


def print_line(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def is_needed(name: str) -> bool:
    """Whether a file of a repository belongs to its model in the format of transformers."""
    is_weights = name.endswith(".safetensors") and not fnmatch(name, FOREIGN_WEIGHTS)
    return "/" not in name and (is_weights or any(fnmatch(name, pattern) for pattern in SMALL_FILES))


def download_model(hub_id: str, revision: str | None, token: str) -> str:
    """Why the model cannot be had; empty if all of it is in the cache."""
    from huggingface_hub import HfApi, hf_hub_download
    from tqdm import tqdm

    if revision and len(revision) == 40 and cached_weight_facts(hub_id, revision):
        return ""
    try:
        api = HfApi(token=token or False)
        info = api.model_info(hub_id, revision=revision, files_metadata=True, timeout=TIMEOUT_S)
        sizes = {one.rfilename: one.size or 0 for one in info.siblings or [] if is_needed(one.rfilename)}
        progress = DownloadProgress(hub_id, sum(sizes.values()))

        class Bar(tqdm):
            """A progress bar whose updates count for the whole model."""

            def __init__(self, *arguments: Any, **options: Any) -> None:
                options.pop("name", None)
                super().__init__(*arguments, **(options | {"disable": True}))

            def update(self, n: float | None = 1) -> None:
                progress.receive(n or 0)

        for name, size in sorted(sizes.items(), key=lambda item: item[1]):
            before = progress.done
            hf_hub_download(
                hub_id, name, revision=revision, token=token or False, etag_timeout=TIMEOUT_S, tqdm_class=Bar
            )
            progress.add(before + size - progress.done)  # what the cache had
    except hub_errors() as error:
        if cause := refusal(error, "model", hub_id, revision, has_token=bool(token)):
            return f"{cause}."
        if cached_weight_facts(hub_id, revision):
            return ""
        reason = type(error).__name__
        return (
            f"Could not download {hub_id} from the hub ({reason}), and it is not in this host's cache: check the "
            "connection, then retry the run; what has arrived is kept."
        )
    return ""


def _end_with_parent() -> None:
    """stdin is open as long as the supervisor lives."""
    sys.stdin.read()
    os._exit(1)


def main() -> int:
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for hub_id, revision in request["models"]:
        print_line({"phase": f"looking for {hub_id} on the Hub"})
        if error := download_model(hub_id, revision, request["hub_token"]):
            print_line({"error": error})
            return 1
    print_line({"ok": True})
    return 0


if __name__ == "__main__":
    sys.exit(main())
