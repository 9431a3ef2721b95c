"""Pushing a trained agent to the hub: what arrives, who may, what is said of a hub that refuses; against a stub."""

import hashlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.urls import reverse

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.insight.checkpoints import uploads
from hacrl_web.registry.base.children import HUB_ACCOUNT, ChildResult
from hacrl_web.registry.hub_tokens import service as hub_tokens
from hacrl_web.runs.models import Run
from tests.support.upload_hub import READER, WRITER, upload_hub
from tests.support.web.factories import make_member, make_user
from tests.support.web.insight_help import claimed
from workers.trainer.checkpoints import save_checkpoint

pytestmark = pytest.mark.django_db
WEIGHTS = b"weights" * 50_000
FILES = {
    "config.json": json.dumps({"model_type": "qwen3", "_name_or_path": "/secret/models/base"}).encode(),
    "model.safetensors": WEIGHTS,
    "adapter/adapter_config.json": json.dumps({"base_model_name_or_path": "/secret/models/base", "r": 8}).encode(),
    "adapter/adapter_model.safetensors": b"matrices",
}


@pytest.fixture
def owner(client, monkeypatch):
    user = make_user()
    client.force_login(user)
    monkeypatch.setattr(HUB_ACCOUNT, "run", lambda *_: ChildResult(b'{"name": "ada"}', 0, False))
    hub_tokens.set_hub_token(user, WRITER)
    return user


@pytest.fixture
def run(owner):
    run = claimed(owner)

    def agent(name: str, files: dict[str, bytes]):
        def save(folder: Path) -> None:
            for path, content in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)

        return SimpleNamespace(name=name, save=save, save_state=lambda stem: stem.with_suffix(".bin").write_bytes(b"s"))

    run.run_dir.mkdir(parents=True, exist_ok=True)
    agents = [agent("A", FILES), agent("B", {"model.safetensors": b"all of B"})]
    save_checkpoint(run.run_dir, 5, agents, {"step": 5}, 10)
    return run


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with upload_hub() as made:
        monkeypatch.setenv("HF_ENDPOINT", made.address)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        yield made


def push(client, run: Run, **body):
    body = {"step": 5, "agent": 0, "repo": "trained", **body}
    path = f"/api/v1/runs/{run.pk}/checkpoints/push"
    return client.post(path, json.dumps(body), content_type="application/json")


def ended(client, run: Run) -> dict:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        newest = client.get(f"/api/v1/runs/{run.pk}/uploads").json()["items"][0]
        if not newest["is_running"]:
            return newest
        time.sleep(0.1)
    raise AssertionError(newest)


def check_sums(files: dict[str, bytes]) -> None:
    lines = files["SHA256SUMS"].decode().splitlines()
    assert {line.split("  ")[1]: line.split("  ")[0] for line in lines} == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != "SHA256SUMS"
    }


def test_agent_arrives_private_with_card_and_checksums_and_without_paths_of_this_machine(client, run, hub):
    answer = push(client, run)
    assert answer.status_code == 202, answer.content
    upload = ended(client, run)
    assert (upload["error"], upload["repo"], upload["is_private"]) == ("", "ada/trained", True)
    assert upload["url"] == f"{hub.address}/ada/trained"
    assert (upload["done"], upload["total"]) == (len(WEIGHTS), len(WEIGHTS))  # config.json is a text of its own
    assert hub.private == {"ada/trained": True}
    files = hub.files["ada/trained"]
    assert files.keys() == {"README.md", "SHA256SUMS", "config.json", "model.safetensors"}
    assert files["model.safetensors"] == WEIGHTS
    assert json.loads(files["config.json"]) == {"model_type": "qwen3", "_name_or_path": "base"}
    check_sums(files)
    assert "vllm serve trained --served-model-name" in files["README.md"].decode()
    assert not any(b"/secret/" in content for content in files.values())
    assert hub.messages == [f"A of {run.name}, step 5"]
    page = client.get(reverse("insight:run_checkpoints", args=[run.pk])).content.decode()
    assert f'<a href="{hub.address}/ada/trained"' in page
    assert "hx-get" not in page.partition('id="uploads"')[2].partition("</section>")[0]
    entry = AuditEntry.objects.filter(action="push").get()
    assert {name: after for name, _, after in entry.changes}["hub_repository"] == "trained"
    stored = b"".join(path.read_bytes() for path in run.run_dir.rglob("*") if path.is_file())
    assert WRITER.encode() not in stored


def test_adapter_alone_is_a_repository_that_peft_loads(client, run, hub):
    assert push(client, run, repo="ada/adapter", content="adapter", is_private=False).status_code == 202
    assert ended(client, run)["error"] == ""
    files = hub.files["ada/adapter"]
    assert files.keys() == {"README.md", "SHA256SUMS", "adapter_config.json", "adapter_model.safetensors"}
    assert json.loads(files["adapter_config.json"]) == {"base_model_name_or_path": "base", "r": 8}
    check_sums(files)
    assert hub.private == {"ada/adapter": False}
    assert push(client, run, repo="ada/both", content="all").status_code == 202
    assert ended(client, run)["error"] == ""
    assert FILES.keys() < hub.files["ada/both"].keys()
    refused = push(client, run, agent=1, content="adapter")
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "content")
    assert "B was not trained with LoRA" in refused.json()["error"]["message"]


def test_public_repository_of_that_name_takes_nothing_private(client, run, hub):
    hub.files["ada/trained"], hub.private["ada/trained"] = {}, False
    push(client, run)
    assert "ada/trained exists on the hub and is public" in ended(client, run)["error"]
    assert hub.files["ada/trained"] == {}
    push(client, run, is_private=False)
    assert ended(client, run)["error"] == ""


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (lambda hub, run: hub_tokens.set_hub_token(run.owner, READER), "may not write to trained"),
        (lambda hub, run: hub_tokens.set_hub_token(run.owner, "hf_wrong_0123456789"), "The hub refuses your Hub token"),
        (lambda hub, run: setattr(hub, "full", True), "The hub has no room for trained"),
        (
            lambda hub, run: next(run.run_dir.rglob("0-a/model.safetensors")).write_bytes(b"x" * len(WEIGHTS)),
            "model.safetensors does not match the checkpoint's manifest",
        ),
    ],
    ids=["may not write", "wrong token", "no room", "damaged"],
)
def test_upload_that_fails_says_why_in_one_sentence(client, run, hub, trouble, said):
    trouble(hub, run)
    assert push(client, run).status_code == 202
    upload = ended(client, run)
    assert said in upload["error"]
    assert upload["error"].count(". ") == 0
    assert not upload["url"]
    page = client.get(reverse("insight:run_checkpoints", args=[run.pk])).content.decode()
    assert "failed" in page


def test_upload_shows_how_far_it_is_one_at_a_time_and_its_death(client, run, hub):
    hub.holds.clear()
    push(client, run)
    deadline = time.monotonic() + 60
    while (one := uploads.uploads_of(run)[0]).phase != "sending model.safetensors" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert one.is_running
    page = client.get(reverse("insight:run_checkpoints", args=[run.pk])).content.decode()
    assert 'hx-trigger="every 2s"' in page
    part = client.get(reverse("insight:uploads", args=[run.pk])).content.decode()
    assert "<progress" in part
    assert "sending model.safetensors" in part
    assert push(client, run).status_code == 409
    facts = json.loads(next((run.run_dir / uploads.FOLDER).glob("*.json")).read_text())
    os.kill(facts["pid"], signal.SIGKILL)
    assert "ended without an answer" in ended(client, run)["error"]
    hub.holds.set()
    assert push(client, run).status_code == 202
    assert ended(client, run)["error"] == ""


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"repo": "../x"}, "repo"),
        ({"repo": "a/b/c"}, "repo"),
        ({"repo": ""}, "repo"),
        ({"repo": "a" * 97}, "repo"),
        ({"repo": "x\u202e"}, "repo"),
        ({"content": "secrets"}, "content"),
        ({"step": 6}, "step"),
        ({"agent": 9}, "step"),
    ],
)
def test_bad_request_starts_nothing(client, run, monkeypatch, body, field):
    monkeypatch.setattr(subprocess, "Popen", None)
    answer = push(client, run, **body)
    assert answer.status_code in (404, 422)
    assert field in answer.json()["error"]["field"]
    assert uploads.uploads_of(run) == []


def test_viewers_and_users_without_a_token_push_nothing(client, run, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    form = {"step": 5, "agent": 0, "repo": "x"}
    client.force_login(make_member(run.project, "viewer"))
    assert push(client, run).status_code == 403
    assert client.post(reverse("insight:push_agent", args=[run.pk]), form).status_code == 403
    client.force_login(make_user())
    assert push(client, run).status_code == 404
    client.force_login(make_member(run.project, "member"))
    answer = client.post(reverse("insight:push_agent", args=[run.pk]), form)
    assert answer.status_code == 409
    assert "There is no Hub token" in answer.content.decode()


def test_downloaded_folder_has_the_checksums_of_its_files(client, run):
    import io
    import zipfile

    content = b"".join(client.get(reverse("insight:agent_archive", args=[run.pk, 5, 0])).streaming_content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    assert files.keys() == {*FILES, "README.md", "SHA256SUMS"}
    check_sums(files)
