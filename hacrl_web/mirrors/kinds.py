"""The kinds of mirrors, their options, and the checks of both. Errors are added to the checker by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from hacrl_web.registry.base.values import Checker, ValueProblem, choice, plausible_key, text
from workers.contract.allowed_address import AddressRefused, AllowList

MAX_OPTION = 200


@dataclass(frozen=True)
class MirrorOption:
    """A setting of a kind. choices: those that are possible, the first without a choice; any text without them."""

    name: str
    label: str
    help: str
    choices: tuple[str, ...] = ()
    is_needed: bool = False


@dataclass(frozen=True)
class MirrorKind:
    """secret: what its key or password is, empty if it has none.  package: that it needs, if any."""

    key: str
    label: str
    about: str
    options: tuple[MirrorOption, ...] = ()
    secret: str = ""
    package: str = ""


_PROJECT = MirrorOption("project", "Project", "Empty: the name of the project here.")
_ALL = (
    MirrorKind("tensorboard", "TensorBoard", "Event files on the host of the watcher, for tensorboard --logdir."),
    MirrorKind(
        "mlflow",
        "MLflow",
        "Runs of an experiment on a tracking server.",
        (
            MirrorOption(
                "url", "Address", "Of the tracking server, such as https://mlflow.example.org.", is_needed=True
            ),
            MirrorOption("experiment", "Experiment", "Empty: the name of the project."),
        ),
        "Token, or user:password; empty for a server without a login",
        "mlflow-skinny",
    ),
    MirrorKind(
        "wandb",
        "Weights & Biases",
        "Runs of a project, online, or as files for wandb sync.",
        (
            MirrorOption("mode", "Mode", "offline: files on the host of the watcher.", ("offline", "online")),
            _PROJECT,
            MirrorOption("entity", "Entity", "User or team; empty: the key's own."),
            MirrorOption("url", "Address", "Of a server of your own; empty: https://api.wandb.ai."),
        ),
        "API key, for online mode",
        "wandb",
    ),
    MirrorKind(
        "trackio",
        "Trackio",
        "A database on the host of the watcher, for trackio show.",
        (_PROJECT,),
        package="trackio",
    ),
)
KINDS = {kind.key: kind for kind in _ALL}


def check_mirror_address(url: str) -> None:
    """Error: AddressRefused for an address whose host is not on the installation's list."""
    AllowList.of("HACRL_MIRROR_ALLOW", settings.MIRROR_ALLOW).check_url(url)


def checked_mirror_options(checker: Checker, kind: str, values: Any) -> dict[str, str]:
    """The options of a kind, at `options.NAME`."""
    if not isinstance(values, Mapping):
        checker.add("options", "invalid", "Must be an object with texts.")
        return {}
    options = {option.name: option for option in KINDS[kind].options}
    for name in values.keys() - options:
        checker.add(f"options.{str(name)[:40]}", "unknown_key", "There is no option of this name.")
    result = {}
    for name, option in options.items():
        value = values.get(name) or next(iter(option.choices), "")
        if value or option.is_needed:
            result[name] = checker.take(f"options.{name}", _option, option, value) or ""
    return result


def _option(option: MirrorOption, value: Any) -> str:
    if option.choices:
        return choice(value, option.choices)
    line = text(value, MAX_OPTION)
    if option.name == "url":
        try:
            check_mirror_address(line)
        except AddressRefused as refused:
            raise ValueProblem("address", str(refused)) from None
        return line.rstrip("/")
    if re.search(r"[/\\#?%:]", line):
        raise ValueProblem("bad_character", "The characters / \\ # ? % and : are not allowed.")
    return line


def checked_secret(checker: Checker, kind: str, value: Any) -> str:
    """An API key or password, at `secret`; empty without one."""
    if value in (None, ""):
        return ""
    if not KINDS[kind].secret:
        checker.add("secret", "not_needed", f"{KINDS[kind].label} does not use a key.")
        return ""
    return checker.take("secret", plausible_key, value) or ""
