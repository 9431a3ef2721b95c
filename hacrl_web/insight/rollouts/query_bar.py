"""The query bar of the Rollouts tab: `step:5 learner:"Qwen3 4B" sort:weight` as parameters, and back as chips."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hacrl_web.insight.rollouts.filter import CLIPS, PROMPT_KINDS, SHARED, SIGNS, SORTS, UNSCORABLE, RolloutFilter

_TOKEN = re.compile(r'(?:(\w+):)?("[^"]*"|\S+)|(\w+):(?=\s|$)')
_ALIASES = {"agent": "source", "lesson": "prompt_kind"}  # the second is its name in saved searches


@dataclass(frozen=True)
class Word:
    """A word before a colon. parameters: of the address; two are the ends of a range.  values: all that it can have."""

    name: str
    parameters: tuple[str, ...]
    help: str
    examples: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    @property
    def is_agent(self) -> bool:
        return self.name in ("learner", "source")


WORDS = (
    Word("step", ("step",), "a step, or a range of steps", ("5", "10-20")),
    Word("learner", ("learner",), "who learned from the rollout"),
    Word("source", ("agent",), "who sampled it"),
    Word("shared", ("shared",), "only what the learner's peers sampled", values=(SHARED,)),
    Word(
        "prompt_kind",
        ("prompt_kind",),
        "rescue: the learner had no correct answer, the source had one; mistake: the other way round. Needs a single "
        "step, a learner and a different source",
        values=tuple(PROMPT_KINDS),
    ),
    Word("reward", ("reward",), "a reward, a range, or none for unscorable", ("1", "0", "0.2..0.8", UNSCORABLE)),
    Word("advantage", ("min_advantage", "max_advantage"), "a range of A", ("0.5..", "..-1", "0.5..2")),
    Word("sign", ("sign",), "the sign of A", values=tuple(SIGNS)),
    Word("clip", ("clip",), "the ratio s against the clip band", values=tuple(CLIPS)),
    Word("tokens", ("min_tokens", "max_tokens"), "a range of tokens", ("2..6", "100..")),
    Word("prompt", ("prompt",), "a prompt's id"),
    Word("set", ("set",), "the training set of the prompt, in a run with several"),
    Word("sort", ("sort",), "the largest first", values=tuple(SORTS)),
)
_BY_NAME = {word.name: word for word in WORDS}


def _quoted(value: str) -> str:
    return f'"{value}"' if re.search(r"\s", value) or not value else value


def _agent(name: str, agents: Sequence[str]) -> str:
    """The agent that a part of a name means; the part itself if it means none or several."""
    for matches in (
        [one for one in agents if one == name],
        [one for one in agents if one.lower().startswith(name.lower())],
        [one for one in agents if name.lower() in one.lower()],
    ):
        if len(matches) == 1:
            return matches[0]
    return name


def read_query(text: str, agents: Sequence[str]) -> dict[str, str]:
    """The parameters that a query gives; words without a known name before a colon are the text to search for."""
    parameters: dict[str, str] = {}
    texts = []
    for match in _TOKEN.finditer(text):
        name, value = match[1], (match[2] or "").strip('"')
        word = _BY_NAME.get(_ALIASES.get((name or "").lower(), (name or "").lower()))
        if word is None:
            texts.append(f"{name}:{value}" if name else value or match[0])
        elif len(word.parameters) == 2:
            low, dots, high = value.partition("..")
            parameters |= dict(zip(word.parameters, (low, high if dots else low), strict=True))
        else:
            parameters[word.parameters[0]] = _agent(value, agents) if word.is_agent else value
    return parameters | ({"q": " ".join(texts)} if texts else {})


def chips(rollout_filter: RolloutFilter) -> list[tuple[str, str]]:
    """(text, the query without it) of each condition of a filter."""
    values = rollout_filter.model_dump(by_alias=True)
    result = []
    for word in WORDS:
        ends = [values[name] for name in word.parameters]
        if any(ends):
            value = "..".join(ends) if len(set(ends)) > 1 else ends[0]
            without = rollout_filter.encode(after=None, before=None, **dict.fromkeys(word.parameters))
            result.append((f"{word.name}:{_quoted(value)}", without))
    if rollout_filter.text:
        result.append((_quoted(rollout_filter.text), rollout_filter.encode(after=None, before=None, q=None)))
    return result


def completions(agents: Sequence[str]) -> list[tuple[str, str]]:
    """(query, what it means) of what can be typed, each with a value where all are known."""
    result = []
    for word in WORDS:
        values = tuple(agents) if word.is_agent else (*word.values, *word.examples)
        result += [(f"{word.name}:{_quoted(value)}", word.help) for value in values or ("",)]
    return [(text.removesuffix('""'), explanation) for text, explanation in result]
