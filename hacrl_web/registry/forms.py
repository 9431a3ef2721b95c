"""The registry's forms: they draw fields and carry texts; what is right and wrong is decided in services."""

from __future__ import annotations

from typing import Any

from django import forms

from hacrl_web.errors import FieldErrors
from hacrl_web.registry.models import AGENT_SETTINGS, MAX_AGENTS, Benchmark, LanguageModel
from hacrl_web.registry.services import MAX_HELD_OUT_FRACTION
from hacrl_web.registry.values import MAX_KEY, MAX_NAME
from workers.spec_sections import AgentSpec

INPUT = {"class": "input"}


def _text(label: str, most: int, help_text: str = "", initial: str = "", *, required: bool = True) -> forms.CharField:
    """A line of text whose limits the browser knows and the service checks."""
    widget = forms.TextInput(attrs=INPUT | {"maxlength": str(most), "autocomplete": "off", "spellcheck": "false"})
    widget.is_required = required
    return forms.CharField(
        label=label, help_text=help_text, initial=initial, required=False, strip=False, widget=widget, validators=[]
    )


def _setting(name: str, label: str, placeholder: str = "", rows: int = 0) -> forms.CharField:
    """A setting of an agent: help and default are the contract's; empty means the default."""
    described = AgentSpec.model_fields[name]
    default = described.default if placeholder == "" else placeholder
    attributes = INPUT | {"autocomplete": "off", "spellcheck": "false"}
    attributes |= {"placeholder": "from the name" if default is None else str(default)}
    widget = forms.Textarea(attrs=attributes | {"rows": rows}) if rows else forms.TextInput(attrs=attributes)
    widget.is_required = False
    help_text = (described.description or "") + (" A JSON object." if described.annotation is not str and rows else "")
    return forms.CharField(label=label, help_text=help_text, required=False, strip=False, widget=widget, validators=[])


class ServiceForm(forms.Form):
    """A form whose errors come from a service, by the names of its fields."""

    use_required_attribute = False

    def add_refusal(self, refused: FieldErrors) -> None:
        """Show each error beside its field; what belongs to no field stands at the top."""
        for error in refused.errors:
            field = error.field if error.field in self.fields else None
            self.add_error(field, error.message)


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
    name = _text("Name", MAX_NAME, "Shown in runs and leaderboards.")


class AgentForm(ServiceForm):
    """One row of a group; a row without a model is left out."""

    model = forms.ChoiceField(label="Model", required=False, widget=forms.Select(attrs=INPUT))
    name = _text("Agent name", MAX_NAME, required=False)
    learning_rate = _text("Learning rate", 40, required=False)
    prompt_format = forms.ChoiceField(
        label="Prompt format",
        required=False,
        choices=[("auto", "auto"), ("chat", "chat template"), ("plain", "plain text")],
        help_text="auto: chat where the tokenizer has a template.",
        widget=forms.Select(attrs=INPUT),
    )

    lora_rank = _setting("lora_rank", "LoRA rank")
    lora_alpha = _setting("lora_alpha", "LoRA alpha")
    seed = _setting("seed", "Seed")
    chat_template_kwargs = _setting("chat_template_kwargs", "Arguments of the chat template", "{}", rows=2)
    prompt_template = _setting("prompt_template", "Prompt template", rows=2)

    def __init__(self, *args: Any, models: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].choices = [("", "no agent here"), *models]
        self.fields["name"].widget.attrs["placeholder"] = "the model's name"
        self.fields["learning_rate"].widget.attrs |= {"placeholder": "the run's", "inputmode": "decimal"}

    @property
    def is_used(self) -> bool:
        return any(self[field].value() for field in self.fields if field != "prompt_format")

    @property
    def basic(self) -> list[forms.BoundField]:
        return [self[field] for field in self.fields if field not in AGENT_SETTINGS]

    @property
    def advanced(self) -> list[forms.BoundField]:
        """What stands in the fold."""
        return [self[field] for field in AGENT_SETTINGS]

    @property
    def is_fold_open(self) -> bool:
        return any(field.value() or field.errors for field in self.advanced)

    def asked(self) -> dict[str, Any]:
        """The row as the service takes it; a browser ends the lines of a text with CR LF."""
        return {field: self.data.get(self.add_prefix(field), "").replace("\r\n", "\n") for field in self.fields}


def agent_forms(models: list[tuple[str, str]], data: Any = None) -> list[AgentForm]:
    """The rows of a group form, always as many as a group may have."""
    return [AgentForm(data, prefix=f"agents-{position}", models=models) for position in range(MAX_AGENTS)]


class BenchmarkForm(ServiceForm):
    name = _text("Name", MAX_NAME)
    file = forms.FileField(
        label="Questions (JSONL)",
        required=False,
        allow_empty_file=True,
        widget=forms.FileInput(attrs=INPUT | {"accept": ".jsonl,.json,.txt"}),
        help_text="One JSON object a line, at most 50 MiB.",
    )
    held_out_file = forms.FileField(
        label="Held-out questions (JSONL)",
        required=False,
        allow_empty_file=True,
        widget=forms.FileInput(attrs=INPUT | {"accept": ".jsonl,.json,.txt"}),
        help_text="Empty: a share of the questions is held out, chosen by a stable hash.",
    )
    held_out_fraction = _text(
        "Held-out share", 20, f"0 to {MAX_HELD_OUT_FRACTION:g}; not used with a second file.", "0.1"
    )
    question_field = _text("Key of the question", MAX_KEY, initial="question")
    answer_field = _text("Key of the answer", MAX_KEY, initial="answer")
    verifier = forms.ChoiceField(
        label="Verifier",
        choices=Benchmark.Verifier.choices,
        initial=Benchmark.Verifier.MATH,
        widget=forms.Select(attrs=INPUT),
    )
