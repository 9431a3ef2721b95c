"""docs/cli.md and the help texts name all commands and options, and no others."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from hacrl_web.client import generated
from hacrl_web.client.main import EPILOG, app
from tools.client_operations import operations

ROOT_FOLDER = Path(__file__).resolve().parents[3]
PAGE = (ROOT_FOLDER / "docs" / "cli.md").read_text()
ROWS = re.findall(r"^\| `(hacrl [^`]+)` \|", PAGE, re.MULTILINE)
EVERYWHERE = {"--help", "--json"}  # said once for all
ROOT: Any = typer.main.get_command(app)


def all_commands(group: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(names, command) of each command that does something; a group that lists its objects is one."""
    for name, command in group.commands.items():
        inner = (*path, name)
        if hasattr(command, "commands"):
            yield inner, command
            yield from all_commands(command, inner)
        else:
            yield inner, command


COMMANDS = dict(all_commands())


def named(text: str) -> tuple[tuple[str, ...], list[str]]:
    """The command that a line begins with, and the words behind it."""
    words = shlex.split(re.sub(r"\$\([^)]*\)", "x", text))[1:]
    found = tuple(words[:2]) if tuple(words[:2]) in COMMANDS else tuple(words[:1])
    assert found in COMMANDS, text
    return found, words[len(found) :]


def options(command: Any) -> dict[str, set[str]]:
    """name of a parameter -> its spellings"""
    found = {one.name: {*one.opts, *one.secondary_opts} for one in command.params if one.opts[0].startswith("-")}
    return {name: spellings for name, spellings in found.items() if not spellings & EVERYWHERE}


def test_docs_name_every_command_with_all_its_options_and_no_other():
    told: dict[tuple[str, ...], set[str]] = {}
    for row in ROWS:
        path, _ = named(row.split(" [")[0])
        told.setdefault(path, set()).update(re.findall(r"(?<!\w)--?[a-z][\w-]*", row))
    assert told.keys() == COMMANDS.keys()
    for path, command in COMMANDS.items():
        there = options(command)
        assert told[path] <= set().union(*there.values()), path
        assert [name for name, spellings in there.items() if not spellings & told[path]] == [], path


# The help of a group lists the commands below it.
@pytest.mark.parametrize("path", [path for path in COMMANDS if not hasattr(COMMANDS[path], "commands")], ids=" ".join)
def test_help_has_an_example_that_the_parser_takes(path):
    (example,) = re.findall(r"Example: (hacrl .+)", COMMANDS[path].help)
    found, words = named(example)
    assert found == path
    COMMANDS[path].make_context(path[-1], words)


def test_lines_of_the_docs_are_commands_that_the_parser_takes():
    lines = re.findall(r"^hacrl .+", PAGE, re.MULTILINE)
    for line in lines:
        path, words = named(re.split(r"\s+# | \|\| ", line)[0])
        COMMANDS[path].make_context(path[-1], words)
    assert len(lines) >= 7


def test_docs_and_help_list_the_same_exit_statuses():
    told = re.search(r"Exit status: (.*?)\.\n", PAGE, re.DOTALL)
    assert told
    assert f"Exit status: {' '.join(told[1].split())}." == EPILOG


def test_shipped_operations_are_those_of_the_api():
    assert operations() == generated.OPERATIONS, "python -m tools.client_operations > hacrl_web/client/operations.json"
    packaging = tomllib.loads((ROOT_FOLDER / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert packaging["package-data"]["hacrl_web.client"] == ["operations.json"]


def test_version_is_printed_and_nothing_else_is_done():
    told = CliRunner().invoke(app, ["--version", "runs"])
    assert (told.exit_code, told.output.split()[0], len(told.output.splitlines())) == (0, "hacrl", 1)


@pytest.mark.parametrize(("name", "told"), [("hacrl", "hacrl"), ("__main__.py", "./hacrl")])
def test_messages_name_the_command_as_it_was_started(tmp_path, name, told):
    """After the launcher's installation there is no `hacrl` on PATH; the installed one is a file of this name."""
    script = tmp_path / name
    script.write_text("from hacrl_web.client.main import main\nmain()\n")
    environment = {"PYTHONPATH": str(ROOT_FOLDER), "XDG_CONFIG_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, script, "runs"], env=environment, capture_output=True, text=True)
    assert done.returncode == 3
    assert f"Not logged in: {told} login URL" in done.stderr
