"""The web process starts with its pages loaded, and full collections of garbage leave them out."""

import os
import subprocess
import sys

PROGRAM = """
import gc, hacrl_web.asgi, sys
print(gc.get_freeze_count(), len(gc.get_objects()), "hacrl_web.api" in sys.modules)
"""


def test_full_collections_leave_out_what_the_web_process_has_loaded(tmp_path):
    environment = os.environ | {"HACRL_DATA": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    spared, visited, has_api = done.stdout.split()
    assert int(spared) > 100_000
    assert int(visited) < 1_000
    assert has_api == "True"
