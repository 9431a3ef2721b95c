"""The forms that add a benchmark: its files, and what their columns mean. The service checks the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_plus

from django import forms

from hacrl_web.registry.base.forms import INPUT, ServiceForm, choice_field, text_field
from hacrl_web.registry.base.values import MAX_NAME
from hacrl_web.registry.benchmarks.ready_prompts import READY_PROMPTS
from hacrl_web.registry.benchmarks.service import EXTRACTIONS, MAX_HELD_OUT_FRACTION
from hacrl_web.registry.benchmarks.uploads import MAX_UPLOAD_BYTES, SUFFIXES
from hacrl_web.registry.models import VERIFIERS
from workers.contract.generators.generator import NAMES, Generator
from workers.contract.verifier_kinds import RESPONSE_EXTRACTIONS

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

    kind = choice_field("From", [("hub", "data set of the hub"), ("local", "file or folder on this machine")])
    location = text_field("Location", 1000, "A hub id such as openai/gsm8k, or a path below the model folders.")
    revision = text_field("Revision", 200, "Hub only: branch, tag or commit; empty: the default.", required=False)


class GeneratorForm(ServiceForm):
    """Questions that a generator of reasoning-gym makes."""

    location = choice_field("Generator", [("", "choose a generator"), *((name, name) for name in NAMES)])
    level = text_field("Level", 3, "0 is the easiest; empty: the generator's own settings.", required=False)
    seed = text_field("Seed", 10, "Another seed makes other questions.", required=False)
    train = text_field("Questions of a pass", 6, "Each further pass of a run asks as many new ones.", required=False)
    held_out = text_field("Held-out questions", 6, "Always the same; never trained on.", required=False)
    more = text_field("Further settings", 600, "Of this generator, such as min_terms=3&max_terms=5.", required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, auto_id="id_generator_%s", **kwargs)  # beside another form with a location
        default = Generator("")
        for name, value in (("seed", default.seed), ("train", default.num_train), ("held_out", default.num_held_out)):
            self.fields[name].widget.attrs["placeholder"] = str(value)

    @property
    def generator(self) -> str:
        """As `workers.contract.generators.generator` writes one."""
        names = ("level", "seed", "train", "held_out")
        parts = [f"{name}={quote_plus(value)}" for name in names if (value := self.data.get(name, "").strip())]
        return "?".join(filter(None, (self.data.get("location", ""), "&".join([*parts, self.data.get("more", "")]))))


def _prompt(label: str, help_text: str, rows: int) -> forms.CharField:
    """Some lines of a prompt, as they are."""
    attributes = INPUT | {"rows": rows, "autocomplete": "off", "spellcheck": "false"}
    widget = forms.Textarea(attrs=attributes)
    return forms.CharField(label=label, required=False, strip=False, help_text=help_text, widget=widget)


class MappingForm(ServiceForm):
    """Second step: the meaning of each column, and how answers are verified."""

    name = text_field("Name", MAX_NAME, "Shown in runs and leaderboards.")
    question_field = choice_field("Question")
    answer_field = choice_field("Answer")
    answer_extraction = choice_field("Answer format", EXTRACTIONS.items())
    subject_field = choice_field("Subject", help_text="Results are also reported by it.")
    difficulty_field = choice_field("Difficulty", help_text="Results are also reported by it.")
    id_field = choice_field("Id", help_text="Without one, ids are made from the questions' text.")
    verifier = choice_field("Verifier", VERIFIERS.items())
    extraction = choice_field(
        "What is read as the answer",
        [(name, f"{name}: {text}") for name, text in RESPONSE_EXTRACTIONS.items()],
        "Of math and numeric.",
    )
    tolerance = text_field("Tolerance", 40, "Of the numeric verifier, relative; empty: its default.", required=False)
    reward_function = text_field("Reward function", 40, "Of the verifier function: its name.", required=False)
    judge = text_field("Judge", 40, "Of the verifier judge: its name.", required=False)
    ready_prompt = choice_field(
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
    held_out_fraction = text_field(
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
