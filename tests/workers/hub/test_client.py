"""Looking at a hub model: any failure of the connection is told as one, and an earlier download stands in."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HfHubHTTPError

from tests.support.workers.tiny import make_agent
from workers.hub.client import ModelUnfit, fetch_small_files, refusal, weight_facts

# The HTTP client's base error is no OSError; nor is the second.
CLIENT_ERROR = next(kind for kind in HfHubHTTPError.__bases__ if kind is not OSError)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def unreachable(monkeypatch, tmp_path):
    """A hub that cannot be reached, and an empty cache; returns the function that sets the error."""

    def fails_with(error: Exception) -> None:
        def fail(*arguments, **options):
            raise error

        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return fails_with


def cached_model(cache: Path) -> Path:
    """A whole model as an earlier download leaves it."""
    repository = cache / "models--owner--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return make_agent(repository / "snapshots" / COMMIT, "qwen3")


@pytest.mark.parametrize("error", [CLIENT_ERROR("read error"), EntryNotFoundError("gone"), ConnectionError("refused")])
def test_any_failure_of_the_connection_is_told_as_one(unreachable, monkeypatch, error):
    unreachable(error)
    with pytest.raises(ModelUnfit, match="Could not reach the hub for the weights of owner/model"):
        weight_facts("owner/model", None)

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelUnfit, match="Could not reach the hub for owner/model"):
        fetch_small_files("owner/model", None)


@pytest.mark.parametrize(("kind", "page"), [("model", "/owner/name,"), ("data set", "/datasets/owner/name,")])
def test_gated_names_the_page_of_the_licence_and_every_place_for_a_token(kind, page):
    error = GatedRepoError.__new__(GatedRepoError)  # its constructor wants an answer of a hub
    text = refusal(error, kind, "owner/name", None, has_token=False)
    assert f"accept its licence at {constants.ENDPOINT}{page}" in text
    assert all(place in text for place in ("Account page", "project's page", "POST /api/v1/hub-token", "hacrl api"))


def test_weights_of_an_earlier_download_are_counted_offline(unreachable, tmp_path):
    from transformers import AutoModelForCausalLM

    unreachable(CLIENT_ERROR("no route"))
    folder = cached_model(tmp_path / "cache")
    facts = weight_facts("owner/model", None)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert facts == {
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "weights_bytes": (folder / "model.safetensors").stat().st_size,
        "dtype": "F32",
        "commit": COMMIT,
    }


def test_download_without_its_weights_does_not_stand_in(unreachable, tmp_path):
    unreachable(CLIENT_ERROR("no route"))
    (cached_model(tmp_path / "cache") / "model.safetensors").unlink()
    with pytest.raises(ModelUnfit, match="they are not in the local cache"):
        weight_facts("owner/model", None)
