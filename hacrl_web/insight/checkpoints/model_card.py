"""The model card of a trained agent: README.md with the front matter that the hub reads, in its downloaded folder.

It says what the run's record says: base models, group, algorithm, settings, evaluations with their intervals, and how
to serve the folder. Names and values are users' texts, so each is escaped. No path of this machine is written.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from pathlib import Path, PurePath
from statistics import NormalDist
from typing import Any

from hacrl_web.insight.settings_diff import effective, non_default_paths
from hacrl_web.runs.models import Run
from hacrl_web.web.dotted_paths import flat
from hacrl_web.web.streaming import file_slug
from workers.contract.checkpoint_manifest import PRECISION_FILE
from workers.contract.spec.run import dump_yaml
from workers.contract.verifier_kinds import score_word

Z = NormalDist().inv_cdf(0.975)  # of a 95 % interval
MAX_VALUE = 200  # characters of a setting's value
FILE_NAME = "README.md"
SUMS_NAME = "SHA256SUMS"  # as `sha256sum -c` reads it
# What the card has elsewhere, or what is of this machine alone.
_LEFT_OUT = re.compile(
    r"agents\.\d+\.(name|model)|data\.(benchmark|train_path|eval_path)|(evaluation|training)\.benchmarks.*"
    r"|name|seed|compute\..*"
)
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~$&])")


def serve_command(folder: str, agent: str, *, in_float32: bool = False) -> str:
    """The command with which vLLM serves an agent's folder. in_float32: vLLM would round its weights otherwise."""
    dtype = ["--dtype", "float32"] if in_float32 else []
    return shlex.join(["vllm", "serve", folder, "--served-model-name", file_slug(agent) or "agent", *dtype])


def precision_of(folder: Path) -> dict[str, Any]:
    """What the trainer measured of an agent's folder (model/export.py); empty where bfloat16 changes nothing."""
    try:
        values = json.loads((folder / PRECISION_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def precision_text(values: Mapping[str, Any]) -> str:
    """How far a bfloat16 copy of the folder is from the agent that was trained, in words; empty where it is equal."""
    if not values:
        return ""
    surviving, nats = values.get("surviving_in_bfloat16"), values.get("nats") or {}
    lost = [] if surviving is None else [f"{surviving:.1%} of the updated weights would differ from their start"]
    if nats.get("bfloat16") is not None and nats.get("float32") is not None:
        off = f"log-probabilities of {values.get('tokens')} sampled tokens would be off by {nats['bfloat16']:.3g} nats "
        lost.append(f"{off}a token (as it is: {nats['float32']:.3g})")
    return (
        "The weights are float32: a LoRA update beside bfloat16 weights is lost where their sum is rounded. "
        + (f"In bfloat16 {' and '.join(lost)}. " if lost else "")
        + "Load the folder in float32, or the base model in bfloat16 with the folder adapter."
    )


def wilson_interval(correct: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of `count` independent answers, 1 or more: Wilson, JASA 22 (1927)."""
    share, spread = correct / count, Z * Z / count
    centre = (share + spread / 2) / (1 + spread)
    half = sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def model_card(
    run: Run, agent: str, step: int, folder: str, place: str = "", precision: Mapping[str, Any] | None = None
) -> str:
    """README.md of an agent at a step, whose files are in `folder`. place: where vLLM finds them, if not there.

    precision: precision_of its files.
    """
    spec = effective(run)
    agents = [one for one in spec.get("agents", []) if isinstance(one, dict)]
    own: dict[str, Any] = next((one for one in agents if one.get("name") == agent), {})
    base = str(own.get("model") or "")
    group = run.group.name if run.group else "that was deleted"
    benchmark = run.benchmark.name if run.benchmark else str(spec.get("data", {}).get("benchmark", ""))
    licence = str(run.benchmark.facts.get("licence") or "") if run.benchmark else ""
    parts = [
        f"---\n{dump_yaml(_front_matter(run, base))}---",
        f"# {_text(agent)}, trained by {_text(run.algorithm)}",
        f"Agent {_text(agent)} of the group {_text(group)} after step {step} of {run.total_steps} of the run "
        f"{_text(run.name)} (seed {run.seed}) on {_text(benchmark)}{_further_sets(spec)}. "
        "The agents of a group train at the same time on the same questions, and each is a model of its own.",
        "## Base models",
        _table(["agent", "base model", "LoRA rank"], [_agent_row(one, agent) for one in agents]),
        "## Evaluation",
        _evaluations(run, agent, step),
        "## Settings",
        "Those that differ from the defaults.",
        _table(["setting", "value"], _settings(run, spec)),
        "## Use",
        f"The folder loads with `AutoModelForCausalLM.from_pretrained`; vLLM serves it:\n\n"
        f"```\n{serve_command(place or f'./{folder}', agent, in_float32=bool(precision))}\n```",
        *filter(None, [precision_text(precision or {})]),
        f"`sha256sum -c {SUMS_NAME}` checks the files.",
        "## Licence",
        f"These weights are derived from {_text(_public(base))}: the licence of that model applies to them, and its "
        f"authors' conditions on derived models. The questions of {_text(benchmark)} have a licence of their "
        f"own: {_text(licence or 'not recorded')}.",
        "Trained with HACRL Web.",
    ]
    return "\n\n".join(parts) + "\n"


def sums_of(digests: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """The checksums file. digests: SHA-256 by name of a file; texts: by name, files that are written beside them."""
    every = {**digests, **{name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}}
    return "".join(f"{every[name]}  {name}\n" for name in sorted(every))


def texts_without_paths(folder: Path, names: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The files of an agent that name a folder of this machine as their base model, with its last part alone.

    names: the files' entries by the names that they get, with the `path` in the folder. Error: OSError.
    """
    texts = {}
    for name, entry in names.items():
        if PurePath(name).name not in ("config.json", "adapter_config.json"):
            continue
        values = json.loads((folder / str(entry["path"])).read_bytes())
        for key in ("_name_or_path", "base_model_name_or_path"):
            if str(values.get(key) or "").startswith("/"):
                values[key] = PurePath(values[key]).name
                texts[name] = json.dumps(values, indent=2) + "\n"
    return texts


def _further_sets(spec: dict[str, Any]) -> str:
    training = spec.get("training", {})
    sets = [f"{_text(str(one['benchmark']))} (weight {one['weight']:g})" for one in training.get("benchmarks") or ()]
    return f" (weight {training['benchmark_weight']:g}) and {', '.join(sets)}" if sets else ""


def _front_matter(run: Run, base: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["hacrl", "reinforcement-learning", str(run.algorithm)],
    }
    return values | ({"base_model": base} if _is_hub_id(base) else {})


def _is_hub_id(location: str) -> bool:
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)?", location) is not None


def _public(location: str) -> str:
    """A hub id, or the name of a local folder without its place."""
    return location if _is_hub_id(location) else f"{PurePath(location).name or 'a model'} (a local folder)"


def _agent_row(agent: dict[str, Any], own: str) -> list[str]:
    name = _text(str(agent.get("name", "")))
    rank = agent.get("lora_rank") or "all weights"
    model = _code(_public(str(agent.get("model", ""))))
    return [f"**{name}** (this model)" if agent.get("name") == own else name, model, str(rank)]


def _evaluations(run: Run, agent: str, step: int) -> str:
    """The table of the agent's evaluations at that step, the run's own benchmark first."""
    recorded: dict[str, dict[int, dict[str, Any]]] = {}  # by benchmark and step, the latest attempt
    events = run.events.filter(type="evaluation", agent=agent, step__in=(0, step)).order_by("attempt", "seq")
    for at, payload in events.values_list("step", "payload"):
        recorded.setdefault(str(payload.get("benchmark", "")), {})[at or 0] = payload
    names = sorted(recorded, key=lambda name: name in run.further_benchmarks)
    rows = [_evaluation_row(name, recorded[name].get(0, {}), recorded[name].get(step, {})) for name in names]
    rows = [row for row in rows if row]
    if not rows:
        return f"The agent was not evaluated at step {step}."
    heading = ["benchmark", "score", "before training", f"step {step}", "95 % interval", "questions"]
    note = (
        "Held-out questions, as the run's verifier decides. Intervals are Wilson's, of one answer to each question; "
        "they say nothing of other seeds."
    )
    return f"{_table(heading, rows)}\n\n{note}"


def _evaluation_row(benchmark: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Empty without a score at that step. before, after: evaluation events."""
    if after.get("value") is None:
        return []
    count = int(after.get("num_samples") or 1)
    num_answers = int(after.get("asked") or 0) + int(after.get("unscorable") or 0)
    return [
        _text(benchmark),
        f"{score_word([str(after.get('verifier') or '')])}, avg@{count}",
        "–" if before.get("value") is None else f"{before['value']:.3f}",
        f"{after['value']:.3f}",
        _interval(after, count),
        str(num_answers // count),
    ]


def _interval(evaluation: dict[str, Any], num_samples: int) -> str:
    """The interval of a score, if each question has one answer that is correct or incorrect; else a dash."""
    correct, scored = int(evaluation.get("correct") or 0), int(evaluation.get("asked") or 0)
    is_binary = score_word([str(evaluation.get("verifier") or "")]) == "accuracy"
    if num_samples > 1 or not is_binary or not 0 <= correct <= scored or not scored:
        return "–"
    low, high = wilson_interval(correct, scored)
    return f"{low:.3f} to {high:.3f}"


def _settings(run: Run, spec: dict[str, Any]) -> list[list[str]]:
    changed = non_default_paths(run)
    values = (item for section, value in spec.items() for item in flat(value, section))
    settings = ((path, value) for path, value in values if path in changed and not _LEFT_OUT.fullmatch(path))
    return [[_code(path), _code(_value(value))] for path, value in settings]


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return PurePath(text).name if text.startswith("/") else text  # of a judge or reward function


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _line(text: str) -> str:
    return " ".join(text.split())[:MAX_VALUE]


def _text(text: str) -> str:
    return _MARKUP.sub(r"\\\1", _line(text))


def _code(text: str) -> str:
    return "`" + _line(text).replace("`", "'").replace("|", "\\|") + "`"
