"""Weights & Biases: a run of a project, online, or offline as files that `wandb sync` uploads later.

A row's `_step` is the seq of its last event, which only grows, also where an attempt repeats steps; charts are over
`step`. Online, the server says which rows it has. Offline, the files of a session that did not end well are removed,
and the session is written again.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from workers.contract.mirrored_rows import COLUMNS, TABLE, Row
from workers.mirrors.destination import Destination


class Wandb(Destination):
    """state, offline: `open_from`, the seq after which a session that has not ended began."""

    place = "Weights & Biases"

    def open(self) -> None:
        is_offline = self.options.get("mode") != "online"
        folder = self.folder / self.run.id
        if is_offline:
            self.after = int(self.state.get("open_from", self.after))
            self.state = {"open_from": self.after}
            folder /= f"from-{self.after}"
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._wandb = self._client()
        self._run = self._start(folder, "offline" if is_offline else "online")
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        self.url = str(self._run.url or "")
        if not is_offline:  # the next step there; rows that only waited in a process that ended never arrived
            self.after, self.state = max(0, int(self._run.step) - 1), {}

    def _client(self) -> Any:
        for name in ("CACHE", "CONFIG", "DATA", "ARTIFACT"):
            os.environ[f"WANDB_{name}_DIR"] = str(self.folder / ".wandb")
        os.environ |= {"WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_DISABLE_GIT": "true"}
        os.environ |= {"WANDB_DISABLE_CODE": "true", "WANDB_ERROR_REPORTING": "false"}
        if self.secret:
            os.environ["WANDB_API_KEY"] = self.secret
        if self.options.get("url"):
            os.environ["WANDB_BASE_URL"] = self.options["url"]
        import wandb

        return wandb

    def _start(self, folder: Path, mode: str) -> Any:
        run = self.run
        return self._wandb.init(
            id=run.id.replace("-", ""),
            name=run.name[:128],
            project=self.options.get("project") or re.sub(r"[/\\#?%:]", "-", run.project)[:128],
            entity=self.options.get("entity") or None,
            dir=str(folder),
            mode=mode,
            resume="allow",
            reinit="create_new",  # beside other runs
            config=run.settings | {"hacrl_url": run.url},
            tags=[tag[:64] for tag in run.tags],
            settings=self._wandb.Settings(init_timeout=30, x_disable_stats=True, x_disable_meta=True),
        )

    def send(self, rows: list[Row]) -> None:
        for row in rows:
            values: dict[str, Any] = row.values | {"step": row.step, "attempt": row.attempt}
            if row.rollouts:  # one table for each step: its file belongs to the row
                values[TABLE] = self._wandb.Table(columns=list(COLUMNS), data=row.table)
            self._run.log(values, step=row.seq)

    def close(self, status: str) -> None:
        self._run.finish(exit_code=1 if status == "failed" else 0)
        self.state = {}
