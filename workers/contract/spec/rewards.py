"""RunSpec's section of rewards: what training pays for besides the verifier's verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from workers.contract.settings import Count, Number, SettingsSection, setting

VERIFIER = "verifier"  # the name of the benchmark's own reward
REWARD_NAME = r"^[a-z][a-z0-9_]{0,39}$"
REWARD_KINDS = {
    "function": "a Python function of your own",
    "judge": "a language model or a reward model, which is not verified",
    "boxed": "1 if the response has a closed, non-empty box, else 0",
    "tags": "1 if the response consists of these tags, each once and in this order, else 0",
    "length": "1 up to this many tokens; then falls linearly to 0 at max_completion_length",
    "language": "the share of the response that is in the question's language, or in a named one such as de",
}
RewardKind = Literal["function", "judge", "boxed", "tags", "length", "language"]
Tag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")]
_FILES = ("function", "judge")  # kinds that a file defines, after which their term is named
_MOST_OPTIONS = {"function": 1, "judge": 1, "boxed": 0, "tags": 10, "length": 1, "language": 1}
OF_QUESTION = "question"  # the language that is not named
# ISO 639 codes of the languages that py3langid 0.4.0 knows.
LANGUAGES = frozenset(
    re.findall(
        r"\w+",
        "ace af am an ar ary arz as az ba bcl be bg bn br bs ca crh cs cy da de dz el en eo es et eu ext fa fi fo fr "
        "fuv fy ga gcf gcr gd gl gom grc gu gug guw ha hbo he hi hr ht hu hy id ig is it ja jv ka kab kik kk km kn ko "
        "ku ky la lb lg lij ln lo lt ltg lv mg mk ml mn mr ms mt my ne nl nn no nso oc om or pa pcm pl ps pt qu ro ru "
        "rw sa sdh se si sk sl sn so sq sr st sv sw ta te tg th tk tl tr tt ug uk ur uz uzs vec vi vo wa wuu xh yo "
        "yue zh zu ",
    )
)
_DIGITS = 6  # of a total: 0.1 + 0.2 is 0.3, so that equal rewards are equal


def terms_of_text(text: str) -> list[dict[str, Any]]:
    """Terms as a form sends them: `function steps = 0.5; short: length 400 = 0.1; tags think answer`.

    Entries are separated by semicolons or lines: an optional name and colon, the kind with its options, and the weight,
    1 if it is left out. Error: ValueError.
    """
    terms = []
    for entry in filter(str.strip, re.split(r"[;\n]", text)):
        head, _, weight = entry.partition("=")
        name, colon, words_text = head.rpartition(":")
        kind, *options = words_text.split() or [""]
        term: dict[str, Any] = {"kind": kind, "weight": weight.strip() or 1.0}
        if kind not in REWARD_KINDS:
            raise ValueError(f"{entry.strip()[:80]!r} names no kind of reward: {', '.join(REWARD_KINDS)}")
        if len(options) > _MOST_OPTIONS[kind]:
            raise ValueError(f"{entry.strip()[:80]!r} has more words than {kind} takes")
        if options:
            term[kind] = options if kind == "tags" else options[0]
        term["name"] = name.strip() if colon else options[0] if kind in _FILES and options else kind
        terms.append(term)
    return terms


def text_of_terms(terms: Iterable[Mapping[str, Any]]) -> str:
    """What `terms_of_text` reads. A function or a judge is named by its file without the suffix."""
    entries = []
    for term in terms:
        kind = term["kind"]
        file = PurePath(term.get(kind) or "").stem if kind in _FILES else ""
        options = {
            "function": [file],
            "judge": [file],
            "tags": term.get("tags", ()),
            "length": [str(term.get("length", 0))],
            "language": [] if term.get("language", OF_QUESTION) == OF_QUESTION else [term["language"]],
        }
        words = [kind, *options.get(kind, ())]
        name = "" if term["name"] == (file or kind) else f"{term['name']}: "
        entries.append(f"{name}{' '.join(words)} = {float(term['weight']):g}")
    return "; ".join(entries)


def _terms(value: Any) -> Any:
    return terms_of_text(value) if isinstance(value, str) else value


class RewardTerm(SettingsSection):
    """One reward of several: its name, kind and weight."""

    name: str = setting(
        help="Names its metric, rewards/NAME/mean, and its column of rollouts; not verifier.",
        source="product",
        pattern=REWARD_NAME,
    )
    kind: RewardKind = setting(
        "function", help="; ".join(f"{kind}: {text}" for kind, text in REWARD_KINDS.items()) + ".", source="product"
    )
    weight: Number = setting(
        1.0, help="Its share of the total is weight / sum of all weights.", source="TRL", ge=0, le=1000
    )
    function: str = setting(
        "",
        help="function: the file that defines `reward(question, answer, response, **fields)`.",
        source="product",
        max_length=1000,
    )
    judge: str = setting(
        "", help="judge: the file of its settings, docs/rewards.md.", source="product", max_length=1000
    )
    tags: tuple[Tag, ...] = setting(
        ("think", "answer"), help="tags: their names in order.", source="arXiv 2501.12948", min_length=1, max_length=10
    )
    length: Count = setting(
        0, help="length: tokens of a response with the full reward.", source="ours", unit="tokens", ge=0, le=10_000_000
    )
    language: str = setting(
        OF_QUESTION,
        help="language: the code of the language (ISO 639, such as de), or question for that of each question.",
        source="arXiv 2501.12948",
        max_length=20,
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.name == VERIFIER:
            raise ValueError(f"{VERIFIER!r} is the name of the benchmark's own reward: choose another")
        if self.kind == "function" and not self.function:
            raise ValueError(f"{self.name}: name the file of its function")
        if self.kind == "judge" and not self.judge:
            raise ValueError(f"{self.name}: name the file of its judge")
        if self.language != OF_QUESTION and self.language not in LANGUAGES:
            raise ValueError(
                f"{self.name}: {self.language!r} is not a known language: give a code such as en, de or zh, or "
                f"{OF_QUESTION!r} for the language of each question"
            )
        return self


class RewardsSpec(SettingsSection):
    """The rewards of training: their weighted mean is the reward. Evaluations use the verifier alone."""

    verifier_weight: Number = setting(
        1.0,
        help="Weight of the benchmark's verifier among the terms; 0: it is recorded, but not paid for.",
        source="ours",
        ge=0,
        le=1000,
    )
    terms: Annotated[tuple[RewardTerm, ...], Field(max_length=12), BeforeValidator(_terms)] = setting(
        (),
        label="Further rewards",
        help="Added to the verifier's by weight: function NAME = 0.5; judge NAME = 0.5; tags think answer = 0.2; "
        "length 400 = 0.1; language de = 0.1; boxed = 0.1. Empty: the verifier's is the reward.",
        source="ours",
    )
    time_limit_s: Number = setting(
        10.0,
        label="Time limit of a function",
        help="Of one call of a reward function. It is killed, tried once more, and then the run pauses.",
        source="ours",
        unit="s",
        ge=0.1,
        le=600,
    )
    memory_mib: Count = setting(
        1024,
        label="Memory of a function",
        help="Of one process of a reward function.",
        source="ours",
        unit="MiB",
        ge=64,
        le=65_536,
    )

    @model_validator(mode="after")
    def _can_be_added(self) -> Self:
        names = [term.name for term in self.terms]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two rewards are named {name!r}: give each its own name")
        if not math.fsum(self.weights.values()):
            raise ValueError("every weight is 0: raise one")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """The weights by name, the verifier's first."""
        return {VERIFIER: self.verifier_weight} | {term.name: term.weight for term in self.terms}

    def total(self, rewards: Mapping[str, float]) -> float:
        """The weighted mean of one response's rewards, by name."""
        weights = self.weights
        total = math.fsum(weights[name] * rewards[name] for name in weights) / math.fsum(weights.values())
        return round(total, _DIGITS)
