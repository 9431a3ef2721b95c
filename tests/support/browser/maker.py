"""python -m tests.support.browser.maker: runs modules that fill a running product's database, one for each line.

A line is the module and its arguments, as JSON; the answer is what it prints, or null after an error. Each in a process
of its own would load Django and our modules again.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
import traceback

import django


def main() -> None:
    django.setup()
    for line in sys.stdin:
        sys.argv = json.loads(line)
        text = io.StringIO()
        try:
            with contextlib.redirect_stdout(text):
                runpy.run_module(sys.argv[0], run_name="__main__")
            answer = text.getvalue()
        except Exception:
            traceback.print_exc()
            answer = None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
