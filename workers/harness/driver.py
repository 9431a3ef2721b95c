"""Calls lm-evaluation-harness, within the Python that has it; it imports nothing else of this project.

`driver.py describe RESULT` writes its version; `driver.py tasks RESULT [FOLDER]` the names of its tasks;
`driver.py evaluate RESULT REQUEST` evaluates one model. RESULT and REQUEST are JSON files; of a failure RESULT has
`error`, and the exit status is 1. The process ends with the one that started it, which holds its standard input.
"""

from __future__ import annotations

import difflib
import json
import os
import signal
import sys
import threading
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("lm_eval", "torch", "transformers", "datasets")
KEYS = ("results", "groups", "versions", "n-shot", "higher_is_better", "n-samples")
METRIC_CODE_VARIABLE = "HACRL_LM_EVAL_METRIC_CODE"  # as in workers/contract/spec/harness.py
MOST_NAMED, MOST_HINTS = 5, 3  # unknown tasks; a hint compares a name with thousands


class Refused(BaseException):
    """The request cannot be carried out; the text says why and what to do.

    No Exception: the harness catches those where it loads a metric, and continues without it.
    """


def end_with_starter() -> None:
    """When standard input closes, kill this process group."""

    def wait() -> None:
        os.read(0, 1)  # no buffer, whose lock the end of the interpreter would find taken
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="starter", daemon=True).start()


def describe() -> dict[str, Any]:
    """Versions, without loading any of the packages. Error: Refused."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise Refused(f"{sys.executable} has no package {name}") from None
    return {"version": versions["lm_eval"], "versions": versions}


def list_tasks(folders: list[str]) -> dict[str, Any]:
    """The names of all tasks, groups and tags."""
    from lm_eval.tasks import TaskManager

    return describe() | {"tasks": TaskManager(include_path=folders or None).all_tasks}


def device_and_dtype(device: str, dtype: str) -> tuple[str, str]:
    """The device and the type of the weights, as the trainer chooses them. Error: Refused."""
    import torch

    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise Refused("compute.device is cuda but the Python of the harness sees no GPU: choose auto or cpu")
    is_on_gpu = has_gpu and device != "cpu"
    return ("cuda:0" if is_on_gpu else "cpu"), (dtype if dtype != "auto" else "bfloat16" if is_on_gpu else "float32")


def has_chat_prompts(location: str, prompt_format: str) -> bool:
    """Whether prompts go through the chat template. Error: Refused."""
    from transformers import AutoTokenizer

    has_template = bool(AutoTokenizer.from_pretrained(location, trust_remote_code=False).chat_template)
    if prompt_format == "chat" and not has_template:
        raise Refused("the tokenizer has no chat template: choose prompt_format plain")
    return has_template and prompt_format != "plain"


def check_names(names: list[str], all_names: list[str]) -> None:
    """Error: Refused, with each unknown name, names similar to the first ones, and how to list all."""
    unknown = sorted(set(names) - set(all_names))
    if not unknown:
        return
    problems = []
    for place, name in enumerate(unknown[:MOST_NAMED]):
        similar = difflib.get_close_matches(name, all_names, 3) if place < MOST_HINTS else []
        problems.append(repr(name) + (f" (did you mean {' or '.join(similar)}?)" if similar else ""))
    further = f" and {len(unknown) - MOST_NAMED} others" if len(unknown) > MOST_NAMED else ""
    raise Refused(
        f"lm-evaluation-harness {metadata.version('lm_eval')} has no task {', '.join(problems)}{further}: "
        f"`{sys.executable} -m lm_eval ls tasks` lists all, on the host of the worker"
    )


def refuse_metric_code() -> None:
    """Let no task load a metric of the library `evaluate`, which fetches code from the hub and runs it."""
    import evaluate

    def load(path: str, *_: Any, **__: Any) -> None:
        raise Refused(
            f"metric {path!r} is code that the task fetches from the hub and runs: choose another task, or let the "
            f"operator allow it with {METRIC_CODE_VARIABLE}=1 on every host that trains"
        )

    evaluate.load = evaluate.loading.load = load


def evaluate_model(request: dict[str, Any]) -> dict[str, Any]:
    """The results of one model as the harness gives them, without texts. Error: Refused."""
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    if not request["has_metric_code"]:
        refuse_metric_code()
    manager = TaskManager(include_path=request["folders"] or None, include_defaults=request["has_built_in"])
    check_names(request["tasks"], manager.all_tasks)
    device, dtype = device_and_dtype(request["device"], request["dtype"])
    is_chat = has_chat_prompts(request["model"], request["prompt_format"])
    model = HFLM(
        pretrained=request["model"],
        device=device,
        dtype=dtype,
        batch_size=request["batch_size"],
        trust_remote_code=False,
        use_safetensors=True,
        # A chat template writes its own first token.
        add_bos_token=False if is_chat else None,
        chat_template_args=request["template_arguments"],
    )
    answer: Any = simple_evaluate(
        model=model,
        tasks=request["tasks"],
        task_manager=manager,
        num_fewshot=request["num_fewshot"],
        limit=request["limit"] or None,
        apply_chat_template=is_chat,
        fewshot_as_multiturn=is_chat,
        log_samples=False,
        random_seed=request["seed"],
        numpy_random_seed=request["seed"],
        torch_random_seed=request["seed"],
        fewshot_random_seed=request["seed"],
    )
    return describe() | {"has_chat_template": is_chat} | {key: answer.get(key, {}) for key in KEYS}


def main(arguments: list[str]) -> int:
    verb, result, *rest = arguments
    status = 0
    try:
        if verb == "evaluate":
            answer = evaluate_model(json.loads(Path(rest[0]).read_text(encoding="utf-8")))
        else:
            answer = list_tasks(rest) if verb == "tasks" else describe()
    except Refused as refusal:
        answer, status = {"error": str(refusal)}, 1
    except Exception as error:  # a task, a data set or a model may raise anything
        traceback.print_exc()
        reason = " ".join(str(error).split())[:1000]
        answer, status = {"error": f"{type(error).__name__}: {reason}"}, 1
    Path(result).write_text(json.dumps(answer, default=str), encoding="utf-8")
    return status


if __name__ == "__main__":
    end_with_starter()
    sys.exit(main(sys.argv[1:]))
