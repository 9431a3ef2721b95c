"""Registering language models: what is checked, what is refused, and that a refusal writes nothing."""

import json
import os
from pathlib import Path

import pytest

from hacrl_web.registry.base import children
from hacrl_web.registry.base.locations import folder_fingerprint
from hacrl_web.registry.language_models import service as models
from hacrl_web.registry.models import LanguageModel
from hacrl_web.web.errors import FieldErrors
from tests.support.web.registry_help import (
    FACTS,
    PASSED,
    answer_inspections,
    field_error,
    make_model,
    make_user,
    model_folder,
    replace_child,
    written_rows,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(tmp_path, settings):
    """The only folder that models may lie in."""
    folder = tmp_path / "models"
    folder.mkdir()
    settings.MODEL_ROOTS = [folder]
    return folder


def post(client, **fields):
    return client.post("/models/new", {"kind": "local", "revision": "", "name": "", **fields})


def test_passing_model_is_registered_with_its_facts_and_checks(client, ada, root, monkeypatch):
    asked = answer_inspections(monkeypatch, PASSED)
    folder = model_folder(root)
    response = post(client, location=str(folder))
    model = LanguageModel.objects.get()
    assert response["Location"] == f"/models/{model.pk}"
    assert asked == [["model", str(folder)]]
    assert (model.owner, model.name, model.location, model.kind) == (ada, "tiny", str(folder), "local")
    found = {name: getattr(model, name) for name in FACTS if name != "weights_bytes"}
    assert found == {name: value for name, value in FACTS.items() if name != "weights_bytes"}
    page = client.get(response["Location"]).content.decode()
    assert 'data-check="pass"' in page
    assert "103,424" in page
    assert "tiny" in client.get("/models/").content.decode()


def test_failed_check_is_shown_beside_the_location_and_writes_nothing(client, ada, root, monkeypatch):
    detail = "no *.safetensors file in the folder"
    checks = [{"name": "config", "ok": True, "detail": "Llama"}, {"name": "safetensors", "ok": False, "detail": detail}]
    answer_inspections(monkeypatch, {"checks": checks, "facts": {}}, status=1)
    response = post(client, location=str(model_folder(root)))
    assert response.status_code == 422
    assert detail in field_error(response, "location")
    page = response.content.decode()
    assert page.count('data-check="pass"') == 1
    assert page.count('data-check="fail"') == 1
    assert written_rows() == 0


def test_what_lies_outside_is_not_told(ada, root):
    """The same words for a folder outside that exists and one that does not."""
    messages = set()
    for location in ("/etc", "/etc/no-such-folder", "/root/secret"):
        with pytest.raises(FieldErrors) as refused:
            models.register_model(ada, location=location, name="x")
        messages.add(refused.value.errors[0].message)
    assert len(messages) == 1
    assert f"Allowed folders: {root}" in messages.pop(), "and says what is allowed"


def test_folder_of_too_many_files_is_refused(ada, root):
    folder = model_folder(root)
    for number in range(10_001):
        (folder / f"{number}.txt").touch()
    with pytest.raises(FieldErrors, match="more than 10,000 files"):
        models.register_model(ada, location=str(folder))


def test_link_within_the_roots_is_followed(ada, root, monkeypatch):
    answer_inspections(monkeypatch, PASSED)
    folder = model_folder(root, "blobs")
    (root / "snapshot").symlink_to(folder)
    assert models.register_model(ada, location=f"{root}/snapshot/").location == str(folder)


@pytest.mark.parametrize("target", ["/etc/passwd", "/etc"])
def test_link_out_of_the_roots_is_refused_at_any_depth_and_behind_links(ada, root, tmp_path, target):
    folder, other = model_folder(root), model_folder(root, "other")
    (other / "deep" / "er").mkdir(parents=True)
    (other / "deep" / "er" / "x").symlink_to(target)
    (other / "deep" / "er" / "back").symlink_to(root)  # a circle
    (folder / "sub").symlink_to(other / "deep")
    with pytest.raises(FieldErrors, match="'sub/er/x' links to a place outside the model folders"):
        models.register_model(ada, location=str(folder))
    with pytest.raises(FieldErrors, match="'deep/er/x' links to a place outside the model folders"):
        models.register_model(ada, location=str(other))


def test_snapshot_of_a_cache_below_the_roots_may_link_to_its_files(ada, root, monkeypatch):
    answer_inspections(monkeypatch, PASSED)
    blobs, snapshot = root / "models--a--b" / "blobs", root / "models--a--b" / "snapshots" / "1"
    blobs.mkdir(parents=True)
    (snapshot / "sub").mkdir(parents=True)
    (blobs / "0").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/0")
    (snapshot / "sub" / "config.json").symlink_to("../../../blobs/0")
    assert models.register_model(ada, location=str(snapshot)).location == str(snapshot)


def test_file_below_the_first_level_that_changes_is_noticed_unless_the_fingerprint_is_an_old_one(
    ada, root, monkeypatch
):
    answer_inspections(monkeypatch, PASSED)
    folder = model_folder(root)
    old = folder_fingerprint(folder)
    (folder / "templates").mkdir()
    (folder / "templates" / "tool.jinja").write_text("a")
    (folder / "templates" / "back").symlink_to(folder)
    model = models.register_model(ada, location=str(folder))
    models.check_unchanged(model)
    (folder / "templates" / "tool.jinja").write_text("ab")
    with pytest.raises(FieldErrors, match="has changed"):
        models.check_unchanged(model)
    model.facts["folder_fingerprint"] = old
    models.check_unchanged(model)


def test_folder_changed_after_registration_is_noticed(ada, root, monkeypatch):
    answer_inspections(monkeypatch, PASSED)
    folder = model_folder(root)
    model = models.register_model(ada, location=str(folder))
    models.check_unchanged(model)
    (folder / "config.json").write_text('{"other": 1}')
    with pytest.raises(FieldErrors, match="has changed"):
        models.check_unchanged(model)
    (folder / "config.json").unlink()
    folder.rmdir()
    folder.symlink_to("/etc")
    with pytest.raises(FieldErrors, match="can no longer be used"):
        models.check_unchanged(model)


def test_hub_id_never_resolves_to_a_local_folder(ada, root, monkeypatch, tmp_path):
    """The child stands in an empty folder, so that `owner/name` can only be a hub id."""
    seen = {}

    class Child:
        pid, returncode = os.getpid(), 1

        def __init__(self, command, cwd, env, **options):
            seen.update(command=command, files=os.listdir(cwd), env=env, shell=options.get("shell", False))

        def communicate(self, input, timeout):
            return b'{"checks": [{"name": "hub", "ok": false, "detail": "could not reach the hub"}]}', None

    monkeypatch.setenv("HACRL_SECRET_KEY", "hush")
    monkeypatch.setenv("DATABASE_URL", "postgres://user:hush@host/db")
    monkeypatch.setattr(children.subprocess, "Popen", Child)
    monkeypatch.setattr(children, "_limit", lambda *limits: None)
    monkeypatch.setattr(children, "_kill_group", lambda child: None)
    with pytest.raises(models.ModelRefused, match="could not reach the hub"):
        models.register_model(ada, kind="hub", location="owner/name", revision="main")
    assert seen["files"] == []
    assert seen["command"][1:] == ["-m", "workers.inspection.inspect_model", "model", "owner/name", "--revision=main"]
    assert "hush" not in str(seen["env"])
    assert not seen["shell"]


def test_hub_model_is_pinned_to_the_commit_that_was_inspected(ada, root, monkeypatch):
    answer_inspections(monkeypatch, PASSED | {"facts": FACTS | {"commit": "ab" * 20}})
    model = models.register_model(ada, kind="hub", location="owner/name", revision="main")
    assert (model.name, model.revision, model.facts["asked_revision"]) == ("name", "ab" * 20, "main")


@pytest.mark.parametrize(
    "answer",
    [b"", b"not json", b"[]", b"{", b"[" * 100_000, b"\xff\xfe", {}, {"checks": []}, {"checks": "x"},
     {"error": "too large"},
     {"checks": [{"name": "a", "ok": True}], "facts": []}, {"checks": [{"ok": False}], "facts": FACTS},
     {"checks": [1], "facts": FACTS}],
)  # fmt: skip
def test_odd_answer_of_the_inspection_registers_nothing(client, ada, root, monkeypatch, answer):
    answer_inspections(monkeypatch, answer)
    response = post(client, location=str(model_folder(root)))
    assert response.status_code == 422
    assert field_error(response, "location")
    assert written_rows() == 0


def test_absurd_facts_are_stored_as_unknown(ada, root, monkeypatch):
    facts = FACTS | {"num_parameters": 10**30, "vocab_size": -1, "context_length": 1.5, "architecture": "A" * 5000}
    facts |= {"template": "a\x00b\ud800", "huge": 10**400}
    answer_inspections(monkeypatch, PASSED | {"facts": facts})
    models.register_model(ada, location=str(model_folder(root)))
    model = LanguageModel.objects.get()
    assert (model.num_parameters, model.vocab_size, model.context_length) == (None, None, None)
    assert model.architecture == "A" * 200
    assert model.facts["template"] == "a\ufffdb?"
    assert model.facts["huge"] is None


def test_slow_child_is_ended(ada, root, monkeypatch, tmp_path):
    """A real child that would sleep for ten minutes, with a limit of half a second."""
    pid_file = tmp_path / "pid"
    code = f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    monkeypatch.setattr(children.INSPECTOR, "timeout_s", 0.5)
    replace_child(monkeypatch, tmp_path, "inspect_model", code)
    with pytest.raises(FieldErrors, match="took longer than"):
        models.register_model(ada, location=str(model_folder(root)))
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert written_rows() == 0


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="limits from outside are a feature of Linux")
def test_child_that_eats_memory_is_refused(ada, root, monkeypatch, tmp_path):
    code = "import time\ntime.sleep(.2)\nfood = bytearray(2**30)\nprint('{}')"
    monkeypatch.setattr(children.INSPECTOR, "memory_bytes", 2**29)
    replace_child(monkeypatch, tmp_path, "inspect_model", code)
    with pytest.raises(FieldErrors, match="ended without an answer"):
        models.register_model(ada, location=str(model_folder(root)))


@pytest.mark.parametrize("name", ["a" * 81, "a\x00b", "a\nb", "a\u202eb", "a/b", "a\\b", "\ud800"])
def test_hostile_name_is_refused(ada, root, monkeypatch, name):
    answer_inspections(monkeypatch, PASSED)
    with pytest.raises(FieldErrors) as refused:
        models.register_model(ada, location=str(model_folder(root)), name=name)
    assert [error.field for error in refused.value.errors] == ["name"]


def test_name_taken_while_the_model_is_inspected_is_no_crash(ada, root, monkeypatch):
    folder = model_folder(root)

    def run(*_):
        make_model(ada, "tiny")
        return children.ChildResult(json.dumps(PASSED).encode(), 0, False)

    monkeypatch.setattr(children.INSPECTOR, "run", run)
    with pytest.raises(FieldErrors, match="already has one"):
        models.register_model(ada, location=str(folder))
    assert LanguageModel.objects.count() == 1


def test_checkpoint_folder_of_a_run_is_answered_with_promote(settings):
    folder = Path(settings.RUNS_DIR) / "some-run" / "checkpoints" / "step-5" / "A"
    with pytest.raises(FieldErrors) as refused:
        models.register_model(make_user(), kind="local", location=str(folder), name="", revision="")
    [error] = refused.value.errors
    assert (error.code, error.field) == ("of_a_run", "location")
    assert "Promote" in error.message
