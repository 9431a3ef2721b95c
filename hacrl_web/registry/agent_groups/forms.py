"""The form of an agent group: its name, and a row for each agent. The service checks the values."""

from __future__ import annotations

import copy
import json
from typing import Any

from django import forms

from hacrl_web.registry.base.forms import INPUT, ServiceForm, choice_field, text_field
from hacrl_web.registry.base.values import MAX_NAME
from hacrl_web.registry.models import AGENT_SETTINGS, MAX_AGENTS, AgentGroup
from workers.contract.settings import label_of
from workers.contract.spec.agent import AgentSpec


def _setting(name: str) -> forms.Field:
    """A setting of an agent, with AgentSpec's label, help and default; empty means the default."""
    schema, default = AgentSpec.model_json_schema()["properties"][name], AgentSpec.model_fields[name].default
    label, help_text = label_of(name, schema), schema["description"]
    if "enum" in schema:
        return choice_field(label, [("" if value == default else value, value) for value in schema["enum"]], help_text)
    attributes = INPUT | {"autocomplete": "off", "spellcheck": "false"}
    attributes["placeholder"] = "default" if default is None else str(default)
    widget: forms.Widget = forms.TextInput(attrs=attributes)
    if default in ({}, "{question}"):  # of several lines
        widget = forms.Textarea(attrs=attributes | {"rows": 2})
    widget.is_required = False
    help_text += " A JSON object." if default == {} else ""
    return forms.CharField(label=label, help_text=help_text, required=False, strip=False, widget=widget)


class GroupForm(ServiceForm):
    name = text_field("Name", MAX_NAME, "Shown in runs and leaderboards. Empty: the agents' names.", required=False)


AGENT_SETTING_FIELDS = {name: _setting(name) for name in ("learning_rate", "prompt_format", *AGENT_SETTINGS)}


class AgentForm(ServiceForm):
    """One row of a group; a row without a model is left out."""

    model = choice_field("Model")
    name = text_field("Agent name", MAX_NAME, required=False)

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
