"""The registry's forms: fields and texts. The services check the values."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from typing import Any

from django import forms

from hacrl_web.registry.benchmarks.benchmarks import EXTRACTIONS, MAX_HELD_OUT_FRACTION
from hacrl_web.registry.benchmarks.ready_prompts import READY_PROMPTS
from hacrl_web.registry.benchmarks.uploads import MAX_UPLOAD_BYTES, SUFFIXES
from hacrl_web.registry.models import AGENT_SETTINGS, MAX_AGENTS, VERIFIERS, AgentGroup, LanguageModel
from hacrl_web.registry.values import MAX_NAME
from workers.contract.settings import label_of
from workers.contract.spec.agent import AgentSpec
from workers.contract.verifier_kinds import RESPONSE_EXTRACTIONS

INPUT = {"class": "input"}


def _text(label: str, most: int, help_text: str = "", *, required: bool = True) -> forms.CharField:
    """A line of text; the browser limits its length, and the service checks it."""
    widget = forms.TextInput(attrs=INPUT | {"maxlength": str(most), "autocomplete": "off", "spellcheck": "false"})
    widget.is_required = required
    return forms.CharField(label=label, help_text=help_text, required=False, strip=False, widget=widget)


def _setting(name: str) -> forms.Field:
    """A setting of an agent, with AgentSpec's label, help and default; empty means the default."""
    schema, default = AgentSpec.model_json_schema()["properties"][name], AgentSpec.model_fields[name].default
    label, help_text = label_of(name, schema), schema["description"]
    if "enum" in schema:
        return _choice(label, [("" if value == default else value, value) for value in schema["enum"]], help_text)
    attributes = INPUT | {"autocomplete": "off", "spellcheck": "false"}
    attributes["placeholder"] = "default" if default is None else str(default)
    widget: forms.Widget = forms.TextInput(attrs=attributes)
    if default in ({}, "{question}"):  # of several lines
        widget = forms.Textarea(attrs=attributes | {"rows": 2})
    widget.is_required = False
    help_text += " A JSON object." if default == {} else ""
    return forms.CharField(label=label, help_text=help_text, required=False, strip=False, widget=widget)


def _choice(label: str, choices: Iterable[tuple[str, str]] = (), help_text: str = "") -> forms.ChoiceField:
    widget = forms.Select(attrs=INPUT)
    return forms.ChoiceField(label=label, choices=list(choices), required=False, help_text=help_text, widget=widget)


class ServiceForm(forms.Form):
    """A form that shows a service's errors, by the names of its fields."""

    use_required_attribute = False


class RegisterForm(ServiceForm):
    kind = forms.ChoiceField(
        label="From",
        choices=LanguageModel.Kind.choices,
        initial=LanguageModel.Kind.LOCAL,
        widget=forms.Select(attrs=INPUT),
    )
    location = _text(
        "Location", 1000, "Absolute path of the folder with config.json, the tokenizer and *.safetensors, or a hub id."
    )
    revision = _text("Revision", 200, "Hub models only: branch, tag or commit; empty: the default.", required=False)
    name = _text("Name", MAX_NAME, "Empty: the last part of the location.", required=False)


class GroupForm(ServiceForm):
    name = _text("Name", MAX_NAME, "Shown in runs and leaderboards. Empty: the agents' names.", required=False)


AGENT_SETTING_FIELDS = {name: _setting(name) for name in ("learning_rate", "prompt_format", *AGENT_SETTINGS)}


class AgentForm(ServiceForm):
    """One row of a group; a row without a model is left out."""

    model = _choice("Model")
    name = _text("Agent name", MAX_NAME, required=False)

    def __init__(self, *args: Any, models: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].choices = [("", "Choose a model…"), *models]
        self.fields["name"].widget.attrs["placeholder"] = "the model's name"
        self.fields |= copy.deepcopy(AGENT_SETTING_FIELDS)

    @property
    def is_used(self) -> bool:
        return any(self[field].value() for field in self.fields if field != "prompt_format")

    @property
    def basic(self) -> list[forms.BoundField]:
        return [self[field] for field in self.fields if field not in AGENT_SETTINGS]

    @property
    def advanced(self) -> list[forms.BoundField]:
        """The fields in the fold."""
        return [self[field] for field in AGENT_SETTINGS]

    @property
    def is_fold_open(self) -> bool:
        return any(field.value() or field.errors for field in self.advanced)

    def values(self) -> dict[str, Any]:
        """The row for the service; browsers end lines of a text with CR LF."""
        return {field: self.data.get(self.add_prefix(field), "").replace("\r\n", "\n") for field in self.fields}


def agent_forms(models: list[tuple[str, str]], data: Any = None, *, first: int | None = None) -> list[AgentForm]:
    """The rows of a group form, always as many as a group can have. first: id of the model that begins in row 1."""
    rows = [AgentForm(data, prefix=f"agents-{position}", models=models) for position in range(MAX_AGENTS)]
    rows[0].initial["model"] = "" if first is None else str(first)
    return rows


def fill_agent_forms(rows: list[AgentForm], group: AgentGroup) -> None:
    """Begin the rows with the agents of a group."""
    for row, agent in zip(rows, group.agents.all(), strict=False):
        row.initial |= {"model": str(agent.model_id), "name": agent.name, "learning_rate": agent.learning_rate}
        row.initial["prompt_format"] = "" if agent.prompt_format == agent.PromptFormat.AUTO else agent.prompt_format
        for name, value in agent.settings.items():
            row.initial[name] = json.dumps(value) if isinstance(value, dict) else value


QUESTION_FILES = ",".join(SUFFIXES)


def _file(label: str, help_text: str) -> forms.FileField:
    return forms.FileField(
        label=label,
        required=False,
        allow_empty_file=True,
        widget=forms.FileInput(attrs=INPUT | {"accept": QUESTION_FILES}),
        help_text=help_text,
    )


class UploadForm(ServiceForm):
    """First step of a benchmark: the files."""

    file = _file("Questions", f"JSONL, CSV or Parquet, at most {MAX_UPLOAD_BYTES // 2**20} MiB.")
    held_out_file = _file("Held-out questions", "Optional, with the same columns. Without it a share is held out.")


class SourceForm(ServiceForm):
    """Files of a data set of the hub, or on this machine."""

    kind = _choice("From", [("hub", "data set of the hub"), ("local", "file or folder on this machine")])
    location = _text("Location", 1000, "A hub id such as openai/gsm8k, or an absolute path below the model folders.")
    revision = _text("Revision", 200, "Hub only: branch, tag or commit; empty: the default.", required=False)


def _prompt(label: str, help_text: str, rows: int) -> forms.CharField:
    """Some lines of a prompt, as they are."""
    attributes = INPUT | {"rows": rows, "autocomplete": "off", "spellcheck": "false"}
    widget = forms.Textarea(attrs=attributes)
    return forms.CharField(label=label, required=False, strip=False, help_text=help_text, widget=widget)


class MappingForm(ServiceForm):
    """Second step: the meaning of each column, and how answers are verified."""

    name = _text("Name", MAX_NAME, "Shown in runs and leaderboards.")
    question_field = _choice("Question")
    answer_field = _choice("Answer")
    answer_extraction = _choice("Answer format", EXTRACTIONS.items())
    subject_field = _choice("Subject", help_text="Results are also reported by it.")
    difficulty_field = _choice("Difficulty", help_text="Results are also reported by it.")
    id_field = _choice("Id", help_text="Without one, ids are made from the questions' text.")
    verifier = _choice("Verifier", VERIFIERS.items())
    extraction = _choice(
        "What is read as the answer",
        [(name, f"{name}: {text}") for name, text in RESPONSE_EXTRACTIONS.items()],
        "Of math and numeric.",
    )
    tolerance = _text("Tolerance", 40, "Of the numeric verifier, relative; empty: its default.", required=False)
    reward_function = _text("Reward function", 40, "Of the verifier function: its name.", required=False)
    judge = _text("Judge", 40, "Of the verifier judge: its name.", required=False)
    ready_prompt = _choice(
        "Ready prompt",
        [("", "your own text"), *((one.key, one.label) for one in READY_PROMPTS)],
        "Fills in the two fields below; change them as you like.",
    )
    prompt_template = _prompt(
        "Prompt template",
        "{question} is replaced by the question; each agent's own template is applied on top.",
        rows=3,
    )
    system_prompt = _prompt(
        "System prompt",
        "The system message of a chat template; an agent without one reads it before the question.",
        rows=2,
    )
    held_out_fraction = _text(
        "Held-out share", 20, f"0 to {MAX_HELD_OUT_FRACTION:g}, a random share, fixed by a hash of each question."
    )

    def __init__(self, *args: Any, columns: Sequence[str], has_held_out_file: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(name, name) for name in columns]
        for field in ("question_field", "answer_field"):
            self.fields[field].choices = [("", "choose a column"), *choices]
        for field in ("subject_field", "difficulty_field", "id_field"):
            self.fields[field].choices = [("", "none"), *choices]
        if has_held_out_file:
            del self.fields["held_out_fraction"]
