"""A reward function, one Python file that defines `reward(question, answer, response, **fields)`.

A function in the form of TRL, `def NAME(completions, **kwargs) -> list[float]`, is accepted as well.
Its version is the beginning of the SHA-256 of its text. Nothing of it runs in this process: the file is only parsed.
One that needs the network says so, `NETWORK = True` at the top level; only some installations allow it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_CHARACTERS = 200_000
VERSION_DIGITS = 12
FUNCTION_NAME = "reward"
REQUIRED = ("question", "answer", "response")
COMPLETIONS = "completions"  # a function with it has TRL's form
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
            text = path.read_bytes().decode()
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
    if convention.takes_lists:
        _check_list_arguments(arguments)
        return
    names = _names(convention.node)
    missing = [name for name in REQUIRED if name not in names]
    if missing and not arguments.kwarg:
        raise FunctionFileError(
            f"reward takes no {missing[0]}: write `def reward(question, answer, response, **fields)`"
        )
    if not arguments.kwarg:
        raise FunctionFileError("reward takes no **fields: it is called with id, subject and difficulty too")


def check_new_source(text: str) -> None:
    """Check a text that is about to be registered: check_source passes it, and it is clear about the network.

    Runs may name a text that was registered before NETWORK had a meaning, and go on. Errors: FunctionFileError.
    """
    check_source(text)
    _network_request(ast.parse(text))


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


@dataclass(frozen=True)
class _Convention:
    node: ast.FunctionDef | ast.AsyncFunctionDef
    takes_lists: bool


def _convention(tree: ast.Module) -> _Convention:
    """The function of a file: `reward`, or the only one with `completions`. Error: FunctionFileError."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    own = [node for node in functions if node.name == FUNCTION_NAME]
    if own:
        return _Convention(own[-1], COMPLETIONS in _names(own[-1]))
    by_name = {node.name: node for node in functions if COMPLETIONS in _names(node)}
    if len(by_name) > 1:
        names = ", ".join(sorted(by_name))
        raise FunctionFileError(f"several functions take {COMPLETIONS}, {names}: name the one that rewards `reward`")
    if not by_name:
        raise FunctionFileError("it defines no function: write `def reward(question, answer, response, **fields)`")
    return _Convention(next(iter(by_name.values())), True)


def _names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}


def _check_list_arguments(arguments: ast.arguments) -> None:
    """Error: FunctionFileError, if a function of TRL's form needs a column that questions do not have."""
    positional = arguments.args[: len(arguments.args) - len(arguments.defaults)]
    keyword = [one for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value is None]
    for argument in (*positional, *keyword):
        if argument.arg not in (*LIST_ARGUMENTS, *ANSWER_NAMES):
            columns = ", ".join((*LIST_ARGUMENTS, *ANSWER_NAMES))
            raise FunctionFileError(f"it needs {argument.arg!r}, which a question does not have: {columns}")
    if not arguments.kwarg:
        raise FunctionFileError("it takes no **kwargs: it is called with answer, id, subject and difficulty too")


# Calls that compare the values of a list, by the last part of their name.
_COMPARING = frozenset(
    (
        *("sorted", "sort", "max", "min", "sum", "mean", "fmean", "median", "std", "stdev", "pstdev", "var", "set"),
        *("Counter", "index", "count", "argsort", "argmax", "rank", "rankdata", "zscore", "softmax"),
    )
)


def compares_completions(text: str) -> bool:
    """Whether the function of a checked source seems to compare the completions of a call: ranks, means, the longest.

    A call has one completion, for which such a comparison says nothing.
    """
    convention = _convention(ast.parse(text))
    if not convention.takes_lists:
        return False
    lists = {COMPLETIONS}  # names of lists with an entry for each completion
    for _ in range(3):  # lists made of lists
        for node in ast.walk(convention.node):
            if isinstance(node, ast.Assign) and _is_list_of(node.value, lists):
                lists |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.For) and _mentions(node.iter, lists):
                lists |= {
                    call.func.value.id
                    for call in ast.walk(node)
                    if isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and call.func.attr == "append"
                    and isinstance(call.func.value, ast.Name)
                }
    return any(_compares(node, lists) for node in ast.walk(convention.node))


def _is_list_of(value: ast.expr, lists: set[str]) -> bool:
    if isinstance(value, ast.ListComp | ast.GeneratorExp):
        return _mentions(value.generators[0].iter, lists)
    if isinstance(value, ast.Call):  # list(completions), np.array(scores)
        return any(isinstance(argument, ast.Name) and argument.id in lists for argument in value.args)
    return isinstance(value, ast.Name) and value.id in lists


def _mentions(node: ast.AST, lists: set[str]) -> bool:
    """Whether a list is used as a whole: not one of its entries."""
    if isinstance(node, ast.Subscript):
        return False
    if isinstance(node, ast.Name):
        return node.id in lists
    return any(_mentions(child, lists) for child in ast.iter_child_nodes(node))


def _compares(node: ast.AST, lists: set[str]) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _mentions(node.right, lists)  # by the number of completions, or their sum
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    return name in _COMPARING and any(_mentions(one, lists) for one in (*owner, *node.args))


def called_function(text: str) -> tuple[str, bool, bool]:
    """The name of a checked source's function, whether it takes lists, and whether these are lists of messages,
    as a look at `["content"]` shows."""
    tree = ast.parse(text)
    convention = _convention(tree)
    is_chat = convention.takes_lists and any(
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "content"
        for node in ast.walk(tree)
    )
    return convention.node.name, convention.takes_lists, is_chat
