"""The command as its user types it, for messages that name another command."""

from __future__ import annotations

import sys
from pathlib import Path

# An installed `hacrl` is on PATH; after the launcher's installation only `./hacrl` is there.
HACRL = "hacrl" if Path(sys.argv[0]).name == "hacrl" else "./hacrl"
