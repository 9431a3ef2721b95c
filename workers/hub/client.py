"""Requests to the Hugging Face Hub for an inspection: small files and the weights' headers, but no weights.

Where the hub cannot be reached, earlier downloads in the local cache are used.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from workers.hub.safetensors_header import WeightFiles

PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
SMALL_FILES = ["*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken"]
TIMEOUT_S = 10
# The places of a Hub token: the form, the API, the command.
WHERE = (
    "on the Account page or the project's page (Hub token), by POST /api/v1/hub-token, or with "
    "`hacrl api POST /hub-token -d -`"
)
WRONG_TOKEN = f"The hub refuses your Hub token, which is wrong, expired or revoked: replace it {WHERE}"


class ModelUnfit(Exception):
    """A model that is refused; the text says why and what to do."""


def hub_errors() -> tuple[type[Exception], ...]:
    """The exceptions of a request to the hub: OSError, the hub client's, and its HTTP client's."""
    from huggingface_hub import errors

    kinds = [OSError, *errors.HfHubHTTPError.__bases__, *vars(errors).values()]
    return tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception))


def use_token(request: dict[str, Any]) -> None:
    """Send a child's Hub token with every request to the hub. Call it before the hub's client loads."""
    if token := request.pop("hub_token", ""):
        os.environ["HF_TOKEN"] = token
        os.environ.pop("HF_HUB_DISABLE_IMPLICIT_TOKEN", None)


def refusal(error: Exception, kind: str, hub_id: str, revision: str | None, *, has_token: bool | None = None) -> str:
    """Why the hub refuses a model or data set, and what to do; empty if the error is not its answer.

    has_token: None if the requests had the token of this process, or none.
    """
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if status_of(error) is None and isinstance(error.__cause__, Exception):
        error = error.__cause__  # of a file that is not in the cache either
    has_token = bool(get_token()) if has_token is None else has_token
    page = f"{constants.ENDPOINT}/{'' if kind == 'model' else 'datasets/'}{hub_id}"
    status = status_of(error)
    if has_token and status == 401:
        return f"{WRONG_TOKEN}. Needed for {hub_id}: {page}"
    if isinstance(error, GatedRepoError) or (has_token and status == 403):  # a subclass of RepositoryNotFoundError
        if has_token:
            way = "with the account of your Hub token, which has no access yet (some owners approve each request)"
            return f"{hub_id} is gated: accept its licence at {page} {way}, or replace the token {WHERE}"
        return f"{hub_id} is gated: accept its licence at {page}, and put a Hub token {WHERE}"
    if isinstance(error, RepositoryNotFoundError):
        way = (
            "check the name, and that your Hub token may read it"
            if has_token
            else f"check the name, or put a Hub token {WHERE}"
        )
        return f"The hub has no {kind} {hub_id}, or it is private: {way}"
    if isinstance(error, RevisionNotFoundError):
        return f"{hub_id} has no revision {revision}: check its name"
    return ""


def status_of(error: Exception) -> int | None:
    """The HTTP status of the hub's answer; None if there was none."""
    return getattr(getattr(error, "response", None), "status_code", None)


def fetch_small_files(hub_id: str, revision: str | None) -> Path:
    """A local folder with the model's configuration and tokenizer. Error: ModelUnfit."""
    from huggingface_hub import HfApi, snapshot_download

    silence = ""
    try:  # snapshot_download would wait for a silent hub without end
        HfApi().model_info(hub_id, revision=revision, timeout=TIMEOUT_S)
    except hub_errors() as error:
        silence = "" if status_of(error) else type(error).__name__
    limits: dict[str, Any] = {"etag_timeout": TIMEOUT_S, "local_files_only": bool(silence)}
    try:
        folder = snapshot_download(hub_id, revision=revision, allow_patterns=SMALL_FILES, **limits)
    except hub_errors() as error:
        if cause := refusal(error, "model", hub_id, revision):
            raise ModelUnfit(f"{cause}.") from None
        reason = silence or type(error).__name__
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
        cached = cached_weight_facts(hub_id, revision)
        if cached is not None:
            return cached
        if cause := refusal(error, "model", hub_id, revision):
            raise ModelUnfit(f"{cause}.") from None
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
        "is_restricted": bool(info.gated or info.private),  # not everybody may download it
    }


def cached_weight_facts(hub_id: str, revision: str | None) -> dict[str, Any] | None:
    """The facts of weights that were downloaded earlier; None if they are incomplete or damaged."""
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
