"""Requests to the Hugging Face Hub for an inspection: small files and the weights' headers, but no weights.

Where the hub cannot be reached, earlier downloads in the local cache are used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workers.hub.safetensors_header import WeightFiles

PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
SMALL_FILES = ["*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken"]
TIMEOUT_S = 10


class ModelUnfit(Exception):
    """A model that is refused; the text says why and what to do."""


def hub_errors() -> tuple[type[Exception], ...]:
    """The exceptions of a request to the hub: OSError, the hub client's, and its HTTP client's."""
    from huggingface_hub import errors

    kinds = [OSError, *errors.HfHubHTTPError.__bases__, *vars(errors).values()]
    return tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception))


def refusal(error: Exception, kind: str, hub_id: str, revision: str | None) -> str:
    """Why the hub refuses a model or data set, and what to do; empty if the error is not its answer."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):  # a subclass of RepositoryNotFoundError
        if kind == "model":  # trainers have no token, so a model registered with one would fail there
            way = "download it with your own token (hf download ID --local-dir FOLDER), and register that folder"
        else:
            way = "and set HF_TOKEN where the web is started"
        return f"{hub_id} is gated: accept its terms on the hub, {way}"
    if isinstance(error, RepositoryNotFoundError):
        return f"The hub has no {kind} {hub_id}, or it is private: check the name"
    if isinstance(error, RevisionNotFoundError):
        return f"{hub_id} has no revision {revision}: check its name"
    return ""


def fetch_small_files(hub_id: str, revision: str | None) -> Path:
    """A local folder with the model's configuration and tokenizer. Error: ModelUnfit."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(hub_id, revision=revision, allow_patterns=SMALL_FILES, etag_timeout=TIMEOUT_S)
    except hub_errors() as error:
        if cause := refusal(error, "model", hub_id, revision):
            raise ModelUnfit(f"{cause}.") from None
        reason = type(error).__name__
        raise ModelUnfit(
            f"Could not reach the hub for {hub_id} (within {TIMEOUT_S} s, 1 try; {reason}), and it is not in the local "
            "cache: check the connection, or choose a local folder."
        ) from None
    return Path(folder)


def weight_facts(hub_id: str, revision: str | None) -> dict[str, Any]:
    """Parameter count, size and dtype of the weights on the hub, from their headers. Error: ModelUnfit."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    api = HfApi()
    try:
        info = api.model_info(hub_id, revision=revision, files_metadata=True, timeout=TIMEOUT_S)
        files = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}
        metadata = api.get_safetensors_metadata(hub_id, revision=revision)
    except NotASafetensorsRepoError:
        has_pickles = any(Path(name).suffix in PICKLES for name in files)
        kind = (
            "only pickled weights, which can run code when they are loaded" if has_pickles else "no safetensors weights"
        )
        raise ModelUnfit(f"{hub_id} has {kind}: choose a model with safetensors.") from None
    except SafetensorsParsingError:
        raise ModelUnfit(f"The safetensors headers of {hub_id} are damaged: use another revision or model.") from None
    except hub_errors() as error:
        cached = _cached_weight_facts(hub_id, revision)
        if cached is not None:
            return cached
        raise ModelUnfit(
            f"Could not reach the hub for the weights of {hub_id} ({type(error).__name__}), and they are not in the "
            "local cache: check the connection, or choose a local folder."
        ) from None
    counts = metadata.parameter_count
    return {
        "num_parameters": sum(counts.values()),
        "weights_bytes": sum(size for name, size in files.items() if name.endswith(".safetensors")),
        "dtype": max(counts, key=lambda dtype: counts[dtype]),
        "commit": info.sha,
    }


def _cached_weight_facts(hub_id: str, revision: str | None) -> dict[str, Any] | None:
    """The same from an earlier download; None if that is incomplete or damaged."""
    from huggingface_hub import snapshot_download

    weights = WeightFiles()
    try:
        folder = Path(snapshot_download(hub_id, revision=revision, local_files_only=True))
        index = folder / "model.safetensors.index.json"
        names = json.loads(index.read_bytes())["weight_map"].values() if index.is_file() else ["model.safetensors"]
        for name in sorted({Path(name).name for name in names}):
            weights.add(folder / name)
    except (KeyError, TypeError, AttributeError, ValueError):  # of a damaged index or header
        return None
    except hub_errors():
        return None
    return weights.facts() | {"commit": folder.name}
