"""A gated model on a hub of this machine: what each kind of token leads to, and where the token is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.gated_hub import COMMIT, GATED, NO_ACCESS, RIGHT, WRONG, GatedHub, gated_hub
from tests.support.workers.tiny import make_agent
from workers.hub import account, client, download

PLACES = ("Account page", "project's page", "POST /api/v1/hub-token", "hacrl api POST /hub-token")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_agent(tmp_path_factory.mktemp("gated") / "model", "qwen3")


@pytest.fixture
def hub(folder, tmp_path, monkeypatch) -> Any:
    """The hub of this process, with an empty cache."""
    with gated_hub(folder) as made:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", made.address)
        template = made.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_HUB_CACHE", str(tmp_path / "cache"), raising=False)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield made


def says(text: str, hub: GatedHub, *parts: str) -> bool:
    page = f"{hub.address}/{GATED}"
    return all(part in text for part in (page, *PLACES, *parts)) and "hf_" not in text


CASES = [("", "and put a Hub token"), (NO_ACCESS, "has no access yet"), (WRONG, "wrong, expired or revoked")]


@pytest.mark.parametrize(("token", "cause"), CASES)
def test_inspection_names_the_licence_page_and_the_places_for_a_token(hub, monkeypatch, token, cause):
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(client.ModelUnfit) as refused:
        client.fetch_small_files(GATED, None)
    assert says(str(refused.value), hub, cause)


@pytest.mark.parametrize(("token", "cause"), CASES)
def test_download_says_the_same(hub, token, cause):
    assert says(download.download_model(GATED, COMMIT, token), hub, cause)


def test_right_token_reads_the_files_and_downloads_all_with_progress(hub, folder, monkeypatch, tmp_path, capsys):
    request: dict[str, Any] = {"hub_token": RIGHT, "other": 1}
    monkeypatch.setenv("HF_TOKEN", "")
    client.use_token(request)
    assert request == {"other": 1}
    assert (client.fetch_small_files(GATED, None) / "config.json").is_file()
    assert client.weight_facts(GATED, None)["commit"] == COMMIT
    assert download.download_model(GATED, COMMIT, RIGHT) == ""
    weights = tmp_path / "cache" / "models--meta--gated" / "snapshots" / COMMIT / "model.safetensors"
    assert weights.read_bytes() == (folder / "model.safetensors").read_bytes()
    whole = f"downloading {GATED}: 68.0 KiB of 68.0 KiB"
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()][-2:] == [
        {"phase": whole},
        {"message": whole},
    ]
    hub.hangs.set()
    assert download.download_model(GATED, COMMIT, "") == "", "a complete model needs neither hub nor token"
    stored = [path for path in tmp_path.rglob("*") if path.is_file() and RIGHT.encode() in path.read_bytes()]
    assert stored == []


def test_phase_of_a_download_says_how_long_the_rest_takes(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr("workers.hub.download.time.monotonic", lambda: clock[0])
    progress = download.DownloadProgress("a/model", 100)
    progress.receive(10)
    for clock[0] in (100.5, 105.0):
        progress.receive(5)  # 20 bytes in 5 s, so the other 80 take 20 s
    progress.add(80)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["phase"] for line in lines if "phase" in line] == [
        "downloading a/model: 10 B of 100 B",
        "downloading a/model: 20 B of 100 B, about 20 s left",
        "downloading a/model: 100 B of 100 B",
    ]
    assert len([line for line in lines if "message" in line]) == 2  # the first and the last


def test_hub_that_never_answers_is_told_in_time(hub, monkeypatch):
    hub.hangs.set()
    for module in (account, client, download):
        monkeypatch.setattr(module, "TIMEOUT_S", 0.2)
    with pytest.raises(client.ModelUnfit, match="Could not reach the hub for meta/gated"):
        client.fetch_small_files(GATED, None)
    assert "Could not download meta/gated from the hub" in download.download_model(GATED, None, RIGHT)
    assert "did not confirm the token" in account.account_of(RIGHT)["error"]


def test_hub_says_whose_a_token_is(hub):
    assert account.account_of(RIGHT) == {"name": "ada-on-the-hub"}
    assert "wrong, expired or revoked" in account.account_of(WRONG)["refused"]


def test_download_process_has_its_token_in_no_argument_and_no_environment(hub, tmp_path):
    environment = {**os.environ, "HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "workers.hub.download"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, **pipes) as process:
        seen = b"".join(Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps({"hub_token": RIGHT, "models": [[GATED, COMMIT]]}).encode() + b"\n")
        process.stdin.flush()
        printed = process.stdout.read()
    assert json.loads(printed.splitlines()[-1]) == {"ok": True}
    assert RIGHT.encode() not in seen + printed
