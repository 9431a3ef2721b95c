"""The map of packages in docs/architecture.md, which is what the packages' first docstrings say.

python -m tools.package_map
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
OF_DJANGO = {"migrations", "templatetags", "management", "commands"}  # found by name, as in every app


def packages(top: str) -> dict[str, str]:
    """What each package below `top` is for, by its path; the first three levels, a package before those in it."""
    found = {}
    for path in sorted((ROOT / top).rglob("__init__.py")):
        parts = path.relative_to(ROOT).parent.parts
        if 2 <= len(parts) <= 3 and not OF_DJANGO & set(parts):
            found["/".join(parts[1:])] = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
    return found


def with_map(page: str) -> str:
    """The page with the tables as the packages have them."""
    for top in ("workers", "hacrl_web"):
        head = f"| package of `{top}/` | what it is for |\n|---|---|\n"
        rows = "".join(f"| `{name}/` | {text} |\n" for name, text in packages(top).items())
        table = (head + rows).replace("\\", r"\\")
        page = re.sub(re.escape(head) + r"(\|.*\n)*", table, page)
    return page


if __name__ == "__main__":
    PAGE.write_text(with_map(PAGE.read_text()))
