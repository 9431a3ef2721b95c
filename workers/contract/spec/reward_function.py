"""A reward function, one Python file that defines `reward(question, answer, response, **fields)`.

Functions in the form of TRL, `def NAME(completions, **kwargs) -> list[float]`, and of verl,
`def NAME(data_source, solution_str, ground_truth, extra_info=None) -> float`, are accepted as well, lambdas too.
Its version is the beginning of the SHA-256 of its text. Nothing of it runs in this process: the file is only parsed.
One that needs the network says so, `NETWORK = True` at the top level; only some installations allow it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MAX_CHARACTERS = 200_000
VERSION_DIGITS = 12
FUNCTION_NAME = "reward"
REQUIRED = ("question", "answer", "response")
COMPLETIONS = "completions"  # a function with it has TRL's form
SOLUTION = "solution_str"  # a function with it has verl's form
SCORE = "score"  # the reward in a dict of verl's
VERL_ARGUMENTS = ("data_source", SOLUTION, "ground_truth", "extra_info")
BOM = "\ufeff"
WANTED = "write `def reward(question, answer, response, **fields)`"
LIST_ARGUMENTS = ("prompts", COMPLETIONS, "id", "subject", "difficulty")
NETWORK = "NETWORK"  # a name of the file: True asks for the network
NETWORK_KEY = "network"  # among the versions that a trainer records: the functions that may use it
NETWORK_VARIABLE = "HACRL_REWARD_NETWORK"  # of the environment: 1 where the operator allows it
# What data sets of TRL's users call the reference answer.
ANSWER_NAMES = ("answer", "answers", "ground_truth", "solution", "target", "label", "gold", "reference", "references")


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
    def uses_network(self) -> bool:
        """Whether it asks for the network, by `NETWORK = True` at its top level.

        A text that was registered before the name had this meaning may hold anything there: it does not ask.
        """
        try:
            return NETWORK in self.text and _network_request(ast.parse(self.text))
        except FunctionFileError:
            return False

    @property
    def label(self) -> str:
        """The function's name and version as evaluations record them: `function/steps@0123456789ab`."""
        return f"function/{self.name}@{self.version}"

    @classmethod
    def read(cls, path: Path, name: str = "") -> FunctionFile:
        """Errors: FunctionFileError."""
        try:
            text = path.read_bytes().decode().removeprefix(BOM)
        except OSError as error:
            raise FunctionFileError(f"cannot read the reward function {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise FunctionFileError(f"the reward function {path} is not UTF-8 text") from None
        check_source(text)
        return cls(name or path.stem, text)


def check_source(text: str) -> None:
    """Errors: FunctionFileError, if the text defines no function that takes what it is called with."""
    if len(text) > MAX_CHARACTERS:
        raise FunctionFileError(f"longer than {MAX_CHARACTERS:,} characters")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise FunctionFileError(f"no Python: {error.msg} (line {error.lineno})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise FunctionFileError(f"no Python: {error or type(error).__name__}") from None
    convention = _convention(tree)
    arguments = convention.node.args
    if convention.form == "lists":
        _check_list_arguments(arguments)
        return
    if convention.form == "verl":
        _check_needed(arguments, VERL_ARGUMENTS)
        return
    names = _names(convention.node)
    missing = [name for name in REQUIRED if name not in names]
    if missing and not arguments.kwarg:
        has = f"reward({', '.join(names)}) takes no {missing[0]}"
        raise FunctionFileError(f"{has}: {WANTED}")
    if not arguments.kwarg:
        raise FunctionFileError("reward takes no **fields: it is called with id, subject and difficulty too")


def check_new_source(text: str) -> None:
    """As check_source, for a text that is about to be registered: what it says of the network is clear as well, and
    no reward that it states is out of range.

    Runs may name a text that was registered before these were checked, and go on. Errors: FunctionFileError.
    """
    check_source(text)
    tree = ast.parse(text)
    _network_request(tree)
    node = _convention(tree).node
    for number, line in _stated_rewards(node):
        if not 0 <= number <= 1:
            text = f"it returns {number:g} in line {line}, but a reward is a number from 0 to 1"
            raise FunctionFileError(f"{text}: scale it, such as (value + 1) / 2 for values from -1 to 1")


def network_is_allowed(environment: Mapping[str, str]) -> bool:
    """Whether the operator lets reward functions that ask for it use the network."""
    return environment.get(NETWORK_VARIABLE, "").strip() == "1"


def _network_request(tree: ast.Module) -> bool:
    """The last value of NETWORK at the top level. Error: FunctionFileError, if it is anything but True or False."""
    request = False
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if not any(isinstance(target, ast.Name) and target.id == NETWORK for target in targets):
            continue
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if not isinstance(value, ast.Constant) or not isinstance(value.value, bool):
            text = f"{NETWORK} must be True or False (line {node.lineno}): it says whether the function asks for"
            raise FunctionFileError(f"{text} the network; use another name for anything else")
        request = value.value
    return request


Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Form = Literal["fields", "lists", "verl"]


@dataclass(frozen=True)
class _Convention:
    name: str
    node: Node
    form: Form


def _convention(tree: ast.Module) -> _Convention:
    """The function of a file: `reward`, or the only one in TRL's or verl's form. Error: FunctionFileError."""
    functions = [found for node in tree.body for found in _functions(node)]
    own = [node for name, node in functions if name == FUNCTION_NAME]
    if own:
        return _Convention(FUNCTION_NAME, own[-1], _form_of(own[-1]))
    by_name = {name: node for name, node in functions if _form_of(node) != "fields"}
    if len(by_name) > 1:
        names = ", ".join(sorted(by_name))
        raise FunctionFileError(f"several functions take {COMPLETIONS} or {SOLUTION}, {names}: name one `reward`")
    if not by_name:
        here = "; ".join(f"{name}({', '.join(_names(node))})" for name, node in functions)[:200]
        what = f"defines {here}, but no function `reward`" if here else "defines no function"
        raise FunctionFileError(f"it {what}: {WANTED}, or one in TRL's form ({COMPLETIONS}) or verl's ({SOLUTION})")
    [(name, node)] = by_name.items()
    return _Convention(name, node, _form_of(node))


def _functions(node: ast.stmt) -> list[tuple[str, Node]]:
    """What a statement at the top level defines: a function, or names of a lambda."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [(node.name, node)]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    if targets and isinstance(value := getattr(node, "value", None), ast.Lambda):
        return [(target.id, value) for target in targets if isinstance(target, ast.Name)]
    return []


def _form_of(node: Node) -> Form:
    names = _names(node)
    return "lists" if COMPLETIONS in names else "verl" if SOLUTION in names else "fields"


def _names(node: Node) -> list[str]:
    return [argument.arg for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]


def _stated_rewards(node: Node) -> Iterator[tuple[float, int]]:
    """Numbers that a function returns as they are, with their lines; nothing is computed."""
    values = [node.body] if isinstance(node, ast.Lambda) else []
    left: list[ast.AST] = [] if isinstance(node, ast.Lambda) else list(node.body)
    for one in left:  # grows
        if isinstance(one, ast.Return) and one.value is not None:
            values.append(one.value)
        elif not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            left += ast.iter_child_nodes(one)
    for value in values:  # grows
        if isinstance(value, ast.IfExp):
            values += [value.body, value.orelse]
        elif isinstance(value, ast.List | ast.Tuple):
            values += value.elts
        elif isinstance(value, ast.ListComp):
            values.append(value.elt)
        elif isinstance(value, ast.Dict):
            named = zip(value.keys, value.values, strict=True)
            values += [v for k, v in named if isinstance(k, ast.Constant) and k.value in (FUNCTION_NAME, SCORE)]
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            number = ast.literal_eval(value)
            if isinstance(number, int | float):
                yield float(number), value.lineno


def _check_list_arguments(arguments: ast.arguments) -> None:
    """Error: FunctionFileError, if a function of TRL's form cannot be called with a question's columns."""
    _check_needed(arguments, (*LIST_ARGUMENTS, *ANSWER_NAMES))
    if not arguments.kwarg:
        raise FunctionFileError("it takes no **kwargs: it is called with answer, id, subject and difficulty too")


def _check_needed(arguments: ast.arguments, known: Sequence[str]) -> None:
    """Error: FunctionFileError, if a function needs an argument that questions do not have."""
    positional = arguments.args[: len(arguments.args) - len(arguments.defaults)]
    keyword = [one for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value is None]
    for argument in (*positional, *keyword):
        if argument.arg not in known:
            raise FunctionFileError(f"it needs {argument.arg!r}, which a question does not have: {', '.join(known)}")


def called_function(text: str) -> tuple[str, Form, bool]:
    """Of a checked source: the name of its function, its form, and whether prompts and completions are lists of
    messages, as a look at `["content"]` or `.get("content")` shows."""
    tree = ast.parse(text)
    convention = _convention(tree)
    is_chat = convention.form == "lists" and any(map(_reads_content, ast.walk(tree)))
    return convention.name, convention.form, is_chat


def _reads_content(node: ast.AST) -> bool:
    key: ast.AST | None = node.slice if isinstance(node, ast.Subscript) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        key = node.args[0]
    return isinstance(key, ast.Constant) and key.value == "content"
