"""`hacrl_web.ops.up` itself, with the shortened settings for its processes and short pauses before their restarts."""

from __future__ import annotations

import sys
from typing import Any

from hacrl_web.ops import processes, up


class FaultsUp(up.Up):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.environment["DJANGO_SETTINGS_MODULE"] = "tests.faults.settings"


if __name__ == "__main__":
    processes.LONGEST_PAUSE_S = 2.0
    processes.STEADY_S = 5.0
    up.Up = FaultsUp  # type: ignore[misc]
    sys.exit(up.main(sys.argv[1:]))
