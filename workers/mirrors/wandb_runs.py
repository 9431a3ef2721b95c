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

from workers.mirrors.messages import COLUMNS, TABLE, MirrorProblem, Opened, Opening, Row, State, import_problem

ENTITY = re.compile(r"[\w.-]{0,128}", re.ASCII)


class WandbSession:
    """state, offline: `open_from`, the seq after which a session that has not ended began."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._is_offline = opening.options.get("mode") != "online"
        self._environment()
        try:
            import wandb
        except ImportError:
            raise import_problem("wandb") from None
        self._wandb: Any = wandb
        self._run: Any = None
        self._state: State = {}

    def _environment(self) -> None:
        options, folder = self._opening.options, self._opening.folder
        for name in ("CACHE", "CONFIG", "DATA", "ARTIFACT"):
            os.environ[f"WANDB_{name}_DIR"] = str(folder / ".wandb")
        os.environ |= {"WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_DISABLE_GIT": "true"}
        os.environ |= {"WANDB_DISABLE_CODE": "true", "WANDB_ERROR_REPORTING": "false"}
        if self._opening.secret:
            os.environ["WANDB_API_KEY"] = self._opening.secret
        if options.get("url"):
            os.environ["WANDB_BASE_URL"] = options["url"]

    def open(self) -> Opened:
        run, state = self._opening.run, self._opening.state
        after = self._opening.after
        if self._is_offline and "open_from" in state:
            after = int(state["open_from"])
        folder = self._opening.folder / run.id / f"from-{after}" if self._is_offline else self._opening.folder / run.id
        if self._is_offline:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._run = self._start(folder)
        except Exception as error:  # the library has many kinds
            raise MirrorProblem(f"Weights & Biases: {str(error)[:200]}") from None
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        if self._is_offline:
            self._state = {"open_from": after}
        else:  # the next step there; rows that only waited in a process that ended never arrived
            after = max(0, int(self._run.step) - 1)
        return Opened(after, self._state, str(self._run.url or ""))

    def _start(self, folder: Path) -> Any:
        run, options = self._opening.run, self._opening.options
        return self._wandb.init(
            id=run.id.replace("-", ""),
            name=run.name[:128],
            project=options.get("project") or re.sub(r"[/\\#?%:]", "-", run.project)[:128],
            entity=options.get("entity") or None,
            dir=str(folder),
            mode="offline" if self._is_offline else "online",
            resume="allow",
            config=run.settings | {"hacrl_url": run.url},
            tags=[tag[:64] for tag in run.tags],
            settings=self._wandb.Settings(init_timeout=30, x_disable_stats=True, x_disable_meta=True),
        )

    def send(self, rows: list[Row]) -> State:
        for row in rows:
            values: dict[str, Any] = row.values | {"step": row.step, "attempt": row.attempt}
            if row.rollouts:  # one table for each step: its file belongs to the row
                values[TABLE] = self._wandb.Table(columns=list(COLUMNS), data=row.table)
            self._run.log(values, step=row.seq)
        return self._state

    def close(self, status: str) -> State:
        self._run.finish(exit_code=1 if status == "failed" else 0)
        return {}
