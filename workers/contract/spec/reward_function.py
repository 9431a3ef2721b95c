"""Part of the contract: a reward function, one Python file that defines `reward(question, answer, response, **fields)`.

Its version is the beginning of the SHA-256 of its text. Nothing of it runs in this process: the file is only parsed.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path

MAX_CHARACTERS = 200_000
VERSION_DIGITS = 12
FUNCTION_NAME = "reward"
REQUIRED = ("question", "answer", "response")


class FunctionFileError(ValueError):
    """The file holds no reward function; the text says why and what to do."""


@dataclass(frozen=True)
class FunctionFile:
    """name: of the file without `.py`, or the one under which it is registered."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def version(self) -> str:
        return self.sha256[:VERSION_DIGITS]

    @property
    def label(self) -> str:
        """As evaluations record it: `function/steps@0123456789ab`."""
        return f"function/{self.name}@{self.version}"

    @classmethod
    def read(cls, path: Path, name: str = "") -> FunctionFile:
        """Errors: FunctionFileError."""
        try:
            text = path.read_bytes().decode()
        except OSError as error:
            raise FunctionFileError(f"cannot read the reward function {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise FunctionFileError(f"the reward function {path} is not UTF-8 text") from None
        check_source(text)
        return cls(name or path.stem, text)


def check_source(text: str) -> None:
    """Errors: FunctionFileError, if the text defines no function `reward` that takes what it is called with."""
    if len(text) > MAX_CHARACTERS:
        raise FunctionFileError(f"longer than {MAX_CHARACTERS:,} characters")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise FunctionFileError(f"no Python: {error.msg} (line {error.lineno})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise FunctionFileError(f"no Python: {error or type(error).__name__}") from None
    functions = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == FUNCTION_NAME
    ]
    if not functions:
        raise FunctionFileError("it defines no function: write `def reward(question, answer, response, **fields)`")
    arguments = functions[-1].args
    names = {argument.arg for argument in [*arguments.args, *arguments.kwonlyargs]}
    missing = [name for name in REQUIRED if name not in names]
    if missing and not arguments.kwarg:
        raise FunctionFileError(
            f"reward takes no {missing[0]}: write `def reward(question, answer, response, **fields)`"
        )
    if not arguments.kwarg:
        raise FunctionFileError("reward takes no **fields: it is called with id, subject and difficulty too")
