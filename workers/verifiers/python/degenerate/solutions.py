"""Solutions that solve nothing, and that tests may reward all the same: tried when a benchmark is imported."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

TrialKind = Literal["python_trial"]
TRIAL: TrialKind = "python_trial"  # the kind of verifier that tries them; no benchmark has it
REWARDED = "rewarded: "  # begins the reason of its verdict, before their names
_VALUES = {
    "[]": "[]",
    "()": "()",
    "{}": "{}",
    "set()": "set()",
    "None": "None",
    "0": "0",
    "''": "''",
    "True": "True",
    "NaN": "float('nan')",
    "infinity": "float('inf')",
    "an empty array": "__import__('numpy').array([])",
    "its argument, cleared": "cleared(args)",
    "itertools.count()": "__import__('itertools').count()",
    "an object that equals everything": "Everything()",
}
_BEFORE = """
def cleared(args):
    for one in args:
        if hasattr(one, "clear"):
            one.clear()
    return args[0] if args else None


class Everything:
    def __call__(self, *args, **kwargs): return self
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self
    def __bool__(self, *args): return True
    def __iter__(self): return iter(())
    def __len__(self): return 0
    def __hash__(self): return 0
    def __ne__(self, other): return False
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__
    __sub__ = __rsub__ = __add__ = __radd__ = __abs__ = __getitem__ = __enter__ = __call__
    __exit__ = __setitem__ = lambda self, *args: None
"""


def degenerate_solutions(names: Collection[str]) -> Iterator[tuple[str, str]]:
    """The name and the code of each; the code defines all these names alike."""
    for name, value in _VALUES.items():
        lines = [_BEFORE, f"def answer(*args, **kwargs): return {value}"]
        lines += ["class Solution:", "    def __getattr__(self, name): return answer"]
        lines += [f"{one} = answer" for one in sorted(names) if one != "Solution"]
        yield name, "\n".join(lines)
