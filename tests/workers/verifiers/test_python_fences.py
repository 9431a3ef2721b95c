"""Which block of a response is its solution."""

from __future__ import annotations

import pytest

from workers.verifiers.python.fences import solution_code

DOCUMENTED = 'def f():\n    """\n    ```\n    f()\n    ```\n    """'
F = "def f(x):\n    return x * x"


def fenced(code: str, info: str = "python", marks: str = "```", indent: str = "") -> str:
    return "\n".join(indent + line for line in [marks + info, *code.split("\n"), marks])


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (f"{fenced(F)}\nOutput:\n{fenced('4', '')}", F),
        (f"{fenced(F)}\nOutput:\n{fenced('The square is 4.', '')}", F),
        (f"{fenced(F, '')}\nOutput:\n{fenced('[4, 9]', '')}", F),
        (f"{fenced(F)}\nUsage:\n{fenced('print(f(2))')}", F),
        (f"{fenced(F)}\nUsage:\n{fenced('y = f(2)' + chr(10) + 'print(y)')}", F),
        (f"{fenced('def f(x): return 1')}\nNo:\n{fenced(F)}", F),
        (f"1. Here:\n\n{fenced(F, indent='   ')}", F),
        (f"- Here:\n{fenced(F, indent='    ')}\n- Done", F),
        (f"   ```python\n{F}\n   ```", F),
        (fenced(F, marks="~~~"), F),
        (fenced(F, marks="````"), F),
        (fenced(F, 'python title="square.py"'), F),
        (fenced(F, "python {linenos=true}"), F),
        (fenced(F, " Python"), F),
        (fenced(F, "{.python .numberLines}"), F),
        (fenced(F, "py3"), F),
        (fenced(F).replace("\n", "\r\n"), F),
        (f"<think>\n{fenced('def f(x): return 1')}\n</think>\n{fenced(F)}", F),
        (f"<think>\n{fenced(F)}\n</think>\nI do not know.", None),
        (f"<think>\n{fenced(F)}", None),
        (fenced("a = 'x\fy'\u2028"), "a = 'x\fy'\u2028"),
        (fenced(DOCUMENTED), DOCUMENTED),
        (fenced("a", ""), "a"),
        (fenced("{}", "json"), None),
        (fenced("ls -l", "bash"), None),
        (f"{fenced(F)}\n{fenced('npm', 'sh')}", F),
        (fenced("def f(x:"), "def f(x:"),
        (f"{fenced(F)}\n{fenced('def f(x:')}", F),
        (f"{fenced(F)}\n```python\ndef f(x): return", None),
        (f"{fenced(F)}\n```text\nand so on", F),
        ("Use ```x``` here", None),
        (F, None),
    ],
)  # fmt: skip
def test_the_last_block_that_defines_something_is_the_solution(response, code):
    assert solution_code(response) == code


def test_the_body_of_a_prompt_is_code_too():
    body = "    return x * x"
    assert solution_code(fenced(body), "def f(x):") == body
    assert solution_code(f"{fenced(body)}\n{fenced('4', '')}", "def f(x):") == body
