"""The checks of a model before it is registered, up to the first that fails. No weights are loaded.

They keep from the trainers: custom code, pickles, files outside the folder, impossible sizes. Each refusal says what to
do.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.contract.number_format import format_count, format_size
from workers.contract.spec.agent import AgentSpec
from workers.hub.client import PICKLES, ModelUnfit, fetch_small_files, weight_facts
from workers.hub.safetensors_header import DamagedHeader, WeightFiles
from workers.model.call_limits import is_panic
from workers.model.prompts import (
    LARGER_TOKENIZER,
    NO_BOS,
    adds_bos,
    has_thinking_switch,
    takes_system,
    thought_opening,
)
from workers.tokenizer_files import read_tokenizer

MAX_ENTRIES = 10_000
MAX_JSON_BYTES = 50_000_000
MAX_VALUE = 10_000_000
HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size")
# What questions may look like: a template or normalizer that runs away at one of them takes this process's time limit.
TEXTS = (
    "What is 1+1?",
    "Let $x^2 - 5x + 6 = 0$. Then $(x-2)(x-3) = 0$ and $x \\in \\{2, 3\\}$.",
    "def f(n):\n    return {'a': [n] * 3}\n\n",
    "Größe, 数学, مسألة, \U0001f600",
    "a" * 3000 + "!",
    " " * 3000 + "\n" * 300 + "1",
    "1234567890" * 300,
    "(" * 1000 + ")" * 1000,
)
OPTIONAL_SIZES = ("head_dim", "num_key_value_heads")


@dataclass(frozen=True)
class ModelCheck:
    """One check and its result."""

    name: str
    ok: bool
    detail: str


@dataclass
class Report:
    """The checks so far, the model's facts, and its tokenizer once it has loaded."""

    location: str
    revision: str | None
    folder: Path = Path()
    config: dict[str, Any] = field(default_factory=dict)
    checks: list[ModelCheck] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    shapes: set[tuple[int, ...]] = field(default_factory=set)  # of a local model's tensors
    tokenizer: Any = None

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def is_hub(self) -> bool:
        return not self.location.startswith(("/", "./", "../"))


def run_model_checks(location: str, revision: str | None) -> Report:
    """All checks of a local folder (an absolute path) or a hub id, up to the first that fails."""
    report = Report(location, revision)
    steps: list[tuple[str, Callable[[Report], str]]] = [
        ("Files can be read", _check_files),
        ("config.json", _check_config),
        ("Custom code", _check_no_code),
        ("Weights are safetensors", _check_weights),
        ("Sizes make sense", _check_sizes),
        ("Tokenizer loads", _check_tokenizer),
        ("Chat template", _check_chat_template),
    ]
    for name, step in steps:
        try:
            report.checks.append(ModelCheck(name, True, step(report)))
        except ModelUnfit as refusal:
            report.checks.append(ModelCheck(name, False, str(refusal)))
            break
    return report


def _check_files(report: Report) -> str:
    location = report.location
    if "\0" in location or "\\" in location or location.startswith("~") or "://" in location:
        raise ModelUnfit("Give the absolute path of a folder, or a hub id such as Qwen/Qwen3-0.6B.")
    if report.is_hub:
        if not HUB_ID.fullmatch(location) or ".." in location or "--" in location:
            raise ModelUnfit("This is neither an absolute path nor a hub id such as Qwen/Qwen3-0.6B.")
        if report.revision is not None and not REVISION.fullmatch(report.revision):
            raise ModelUnfit("The revision may contain only letters, digits and . _ / -")
        report.folder = fetch_small_files(location, report.revision)
        return f"{location} was found on the hub."
    report.folder = Path(location).resolve()
    if not report.folder.is_dir():
        raise ModelUnfit(f"There is no folder {location}: check the path.")
    number = 0
    for place, folders, files in os.walk(report.folder, onerror=_refuse_unreadable):
        for name in (*folders, *files):
            number += 1
            if number > MAX_ENTRIES:
                raise ModelUnfit(f"The folder has more than {MAX_ENTRIES} entries: choose the model's own folder.")
            _check_inside(report.folder, Path(place, name))
    return f"{number} entries."


def _refuse_unreadable(error: OSError) -> None:
    raise ModelUnfit(f"The folder cannot be read ({error.strerror}): make it readable.") from None


def _check_inside(folder: Path, path: Path) -> None:
    """Refuse links that leave the folder, and devices. Error: ModelUnfit."""
    name = path.relative_to(folder)
    if not path.resolve().is_relative_to(folder):
        raise ModelUnfit(f"{name} is a link that leaves the folder: copy the file instead.")
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ModelUnfit(f"{name} cannot be read ({error.strerror}): make it readable.") from None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ModelUnfit(f"{name} is not a regular file: remove it.")


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


def _read_json(path: Path) -> Any:
    """A JSON file of the model. Error: ModelUnfit."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ModelUnfit(f"{path.name} is larger than {MAX_JSON_BYTES // 10**6} MB: download the model again.")
        return json.loads(path.read_bytes(), parse_constant=_no_constant)
    except OSError as error:
        raise ModelUnfit(f"{path.name} cannot be read ({error.strerror}): make it readable.") from None
    except (ValueError, RecursionError):
        raise ModelUnfit(f"{path.name} is not valid JSON: download the model again.") from None


def _check_config(report: Report) -> str:
    path = report.folder / "config.json"
    if not path.is_file():
        raise ModelUnfit("There is no config.json: choose the folder that save_pretrained wrote.")
    config = _read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelUnfit("config.json names no model_type: this is not a transformers model.")
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise ModelUnfit("architectures in config.json is not a list of names: download the model again.")
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if config["model_type"] not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelUnfit(
            f"transformers has no text-generating model of type {config['model_type'][:80]!r}: "
            "choose a causal language model that it supports."
        )
    report.config = config
    report.facts |= {
        "model_type": config["model_type"],
        "architecture": architectures[0] if architectures else config["model_type"],
    }
    return report.facts["architecture"]


def _mentions_code(value: Any, depth: int = 0) -> bool:
    if isinstance(value, dict):
        return any(
            key == "auto_map" or (key == "trust_remote_code" and item) or _mentions_code(item, depth + 1)
            for key, item in value.items()
        )
    return isinstance(value, list) and any(_mentions_code(item, depth + 1) for item in value)


def _check_no_code(report: Report) -> str:
    for path in sorted(report.folder.glob("*.json")):
        if path.name in ("tokenizer.json", "vocab.json") or path.name.endswith(".index.json"):
            continue
        try:
            mentions = _mentions_code(_read_json(path))
        except RecursionError:
            raise ModelUnfit(f"{path.name} is nested too deeply: download the model again.") from None
        if mentions:
            raise ModelUnfit(
                f"{path.name} requests custom code (auto_map or trust_remote_code), which never runs here: "
                "use a model whose architecture is part of transformers."
            )
    return "No custom code required."


def _shards(report: Report) -> Iterator[str]:
    """File names of the weights. Error: ModelUnfit."""
    folder = report.folder
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        yield "model.safetensors"
    elif index.is_file():
        weight_map = _read_json(index)
        weight_map = weight_map.get("weight_map") if isinstance(weight_map, dict) else None
        if not isinstance(weight_map, dict) or not weight_map:
            raise ModelUnfit("model.safetensors.index.json has no weight_map: download the model again.")
        for name in sorted({str(name) for name in weight_map.values()}):
            if "/" in name or "\\" in name or name in ("", ".", "..") or not name.endswith(".safetensors"):
                raise ModelUnfit(f"The shard name {name[:80]!r} leaves the folder: download the model again.")
            yield name
    elif any(path.suffix in PICKLES for path in folder.iterdir()):
        raise ModelUnfit(
            "The weights are pickles, which can run code when they are loaded: "
            "save the model again as safetensors (model.save_pretrained does so)."
        )
    else:
        raise ModelUnfit("There is no model.safetensors: copy the weights into the folder.")


def _check_weights(report: Report) -> str:
    if report.is_hub:
        report.facts |= weight_facts(report.location, report.revision)
    else:
        weights = WeightFiles()
        for name in _shards(report):
            path = report.folder / name
            if not path.is_file():
                raise ModelUnfit(f"{name} is missing: download the model again.")
            try:
                weights.add(path)
            except DamagedHeader as error:
                raise ModelUnfit(f"{name} is not a valid safetensors file ({error}): download it again.") from None
        report.shapes = weights.shapes
        report.facts |= weights.facts()
    if not report.facts["num_parameters"]:
        raise ModelUnfit("The safetensors files contain no weights: download the model again.")
    return f"{format_count(report.facts['num_parameters'])} numbers, {format_size(report.facts['weights_bytes'])}."


def tokenizer_hash(tokenizer: Any) -> str:
    """A hash that is the same for tokenizers that split every text alike."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        text = json.dumps(sorted(tokenizer.get_vocab().items()))
    else:
        state = json.loads(backend.to_str())
        state.pop("padding", None)
        state.pop("truncation", None)
        text = json.dumps(state, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _check_tokenizer(report: Report) -> str:
    from transformers.utils import logging

    if not any((report.folder / name).is_file() for name in TOKENIZER_FILES):
        # Without one, transformers creates an empty tokenizer from config.json.
        raise ModelUnfit("There is no tokenizer: copy tokenizer.json and tokenizer_config.json into the folder.")
    logging.set_verbosity_error()
    try:
        tokenizer = read_tokenizer(str(report.folder), local_files_only=True)
    except Exception as error:  # transformers raises all kinds of exceptions here
        raise ModelUnfit(
            f"The tokenizer does not load ({type(error).__name__}: {str(error)[:200]}): "
            "copy tokenizer.json and tokenizer_config.json into the folder."
        ) from None
    report.tokenizer = tokenizer
    for text in TEXTS:
        _check_encodes(tokenizer, text)
    rows, pieces = report.facts["vocab_size"], len(tokenizer)
    if rows is not None and pieces > rows:
        raise ModelUnfit(LARGER_TOKENIZER.format(f"{pieces:,}", f"{rows:,}"))
    generation = report.folder / "generation_config.json"
    stops = _read_json(generation) if generation.is_file() else {}
    stops = stops.get("eos_token_id") if isinstance(stops, dict) else None
    eos_ids = {*(stops if isinstance(stops, list) else [stops]), tokenizer.eos_token_id} - {None}
    report.facts |= {
        "tokenizer_hash": tokenizer_hash(tokenizer),
        "tokenizer_size": pieces,
        "vocab_size": rows or pieces,
        "eos": tokenizer.eos_token or "",
        "eos_ids": sorted(value for value in eos_ids if isinstance(value, int)),
    }
    if not report.facts["eos_ids"]:
        raise ModelUnfit("Neither the tokenizer nor generation_config.json names an end-of-text token: set eos_token.")
    return f"{pieces:,} tokens, ends with {tokenizer.eos_token or report.facts['eos_ids']}."


def _check_encodes(tokenizer: Any, text: str) -> None:
    """Encode the text. Error: ModelUnfit, if the tokenizer panics; a vocabulary need not have all characters."""
    try:
        tokenizer(text)
    except BaseException as error:
        if is_panic(error):
            raise ModelUnfit(
                f"The tokenizer fails at {text[:40]!r} ({str(error)[:200]}): use a model with a sound tokenizer."
            ) from None
        if not isinstance(error, Exception):
            raise


def _check_chat_template(report: Report) -> str:
    config = report.folder / "tokenizer_config.json"
    settings = _read_json(config) if config.is_file() else {}
    templates = settings.get("chat_template") if isinstance(settings, dict) else None
    if isinstance(templates, list):
        templates = [item.get("template") if isinstance(item, dict) else item for item in templates]
    for template in templates if isinstance(templates, list) else [templates]:
        if template is not None and not isinstance(template, str):
            raise ModelUnfit("chat_template in tokenizer_config.json is not text: correct or remove it.")
    report.facts["has_chat_template"] = bool(report.tokenizer.chat_template)
    report.facts["has_thinking_switch"] = has_thinking_switch(report.tokenizer)
    if not report.tokenizer.chat_template:
        return "None: questions are asked as plain text."
    try:
        text = _prompt(report.tokenizer, TEXTS[0])
    except Exception as error:  # a template may raise anything
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise ModelUnfit(f"chat_template does not work ({reason}): correct or remove it.") from None
    if TEXTS[0] not in text:
        raise ModelUnfit("chat_template leaves the question out: correct or remove it.")
    for text in TEXTS[1:]:
        with contextlib.suppress(Exception):  # it may refuse a question; the run that asks it says so
            _prompt(report.tokenizer, text)
    report.facts["takes_system"] = takes_system(report.tokenizer, AgentSpec(name="-", model="-"))
    reader = AgentSpec(name="-", model="-")
    by_thinking: dict[str, Any] = {"auto": {}}
    if report.facts["has_thinking_switch"]:
        by_thinking |= {"on": {"thinking": "on"}, "off": {"thinking": "off"}}
    report.facts["opens_thought"] = [
        name for name, own in by_thinking.items() if thought_opening(report.tokenizer, reader.model_copy(update=own))
    ]
    detail = "Yes: questions are asked through it."
    if adds_bos(report.tokenizer, reader):
        detail += " " + NO_BOS.format(report.tokenizer.bos_token)
    if report.facts["opens_thought"]:
        detail += " It opens a thought at the end of the prompt."
    if not report.facts["takes_system"]:
        detail += " It takes no system message: a benchmark's system prompt is put before the question."
    return detail


def _prompt(tokenizer: Any, question: str) -> str:
    """Errors: what a template raises."""
    turns = [{"role": "user", "content": question}]
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


def _check_sizes(report: Report) -> str:
    config = report.config.get("text_config") or report.config
    if not isinstance(config, dict):
        raise ModelUnfit("text_config in config.json is not an object: download the model again.")
    if report.config.get("quantization_config"):
        raise ModelUnfit("The weights are quantised, which cannot be trained: choose the model in full precision.")
    sizes = {name: config[name] for name in SIZES if name in config}
    context = next(
        (config[name] for name in ("max_position_embeddings", "n_positions", "seq_length") if name in config), None
    )
    optional = {name: config[name] for name in OPTIONAL_SIZES if name in config}
    for name, value in [*sizes.items(), *optional.items(), ("the context length", context)]:
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_VALUE):
            raise ModelUnfit(
                f"{name} is {str(value)[:40]} in config.json: a whole number from 1 to {MAX_VALUE:,} is needed."
            )
    embedding = (sizes.get("vocab_size"), sizes.get("hidden_size"))
    if report.shapes and None not in embedding and embedding not in report.shapes:
        raise ModelUnfit(
            f"No tensor has the shape of the embedding, {embedding[0]} x {embedding[1]} (vocab_size x hidden_size): "
            "weights and config.json do not belong together."
        )
    report.facts |= {"vocab_size": sizes.get("vocab_size"), "context_length": context, "sizes": sizes | optional}
    return f"Context of {context:,} tokens." if context else "The context length is not stated."
