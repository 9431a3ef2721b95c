"""The Checkpoints tab: what is listed, handed out and promoted is what lies there, whole, and only the owner's."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from django.urls import reverse
from django.utils.html import escape

from hacrl_web.insight.checkpoints import ask_agents, checkpoints, reuse
from hacrl_web.insight.checkpoints.reuse import launch_extension
from hacrl_web.insight.checkpoints.zip_stream import zip_of_agent
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.models import Run
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import make_user
from tests.support.web.insight_help import add_checkpoint, claimed, evaluation, store
from tests.support.web.registry_help import PASSED, answer_inspections, replace_child
from workers.contract.checkpoint_manifest import DamagedCheckpoint, read_manifest
from workers.contract.events import Checkpoint
from workers.trainer.checkpoints import newest_checkpoint

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(client, settings, tmp_path):
    settings.MODELS_DIR = tmp_path / "models"
    settings.MODEL_ROOTS = [settings.MODELS_DIR]
    settings.DATA_DIR = tmp_path
    user = make_user()
    client.force_login(user)
    return user


@pytest.fixture
def run(owner):
    """Checkpoints of steps 5 to 20; accuracy .5 at 10 and .25 at 20, of A alone at 15."""
    run = claimed(owner)
    for step in (5, 10, 15, 20):
        add_checkpoint(run, step)
        store(run, Checkpoint(step=step, path=f"checkpoints/step-{step:06d}", size_bytes=1))
    scores = {10: (0.25, 0.75), 20: (0.25, 0.25)}
    bodies = [evaluation(step, agent, v) for step, pair in scores.items() for agent, v in zip("AB", pair, strict=True)]
    store(run, *bodies, evaluation(15, "A", 1.0))
    return run


def promoted() -> list[LanguageModel]:
    """Models with a folder each, and no folder without a model; those that the run started from aside."""
    models = list(LanguageModel.objects.exclude(provenance={}))
    folders = [name for name in os.listdir(reuse.settings.MODELS_DIR) if not name.startswith("made")]
    assert sorted(folders) == sorted(os.path.basename(model.location) for model in models)
    return models


def address(name: str, run: Run, *more: int) -> str:
    return reverse(f"insight:{name}", args=[run.pk, *more])


class TestList:
    def test_newest_and_best_are_those_that_are_sound(self, run):
        listing = checkpoints.list_of_checkpoints(run)
        assert [(one.step, one.is_newest, one.is_best, one.accuracy) for one in listing.checkpoints] == [
            (20, True, False, 0.25),
            (15, False, False, None),
            (10, False, True, 0.5),
            (5, False, False, None),
        ]
        assert {one.checked for one in listing.checkpoints} == {"verified"}
        (run.run_dir / "checkpoints/step-000020/agents/0-a/weights.bin").unlink()
        (run.run_dir / "checkpoints/step-000010/manifest.json").write_text("{}")
        listing = checkpoints.list_of_checkpoints(run)
        assert [(one.step, one.is_newest, one.is_best, bool(one.damage)) for one in listing.checkpoints] == [
            (20, False, False, True),
            (15, True, False, False),
            (10, False, False, True),
            (5, False, False, False),
        ]

    @pytest.mark.parametrize(
        "lie",
        ['"step": 19', '"step": 1e999', '"x": ' + 100_000 * "[" + 100_000 * "]",
         r'"files": {"\ud800": {"size": 1, "sha256": "0"}}',
         r'"agents": [{"name": "\ud800", "folder": "agents/0-a"}]'],
        ids=["another step", "infinite", "nested", "half a character in a file", "and in a name"],
    )  # fmt: skip
    def test_manifest_that_lies_is_damage_and_the_others_are_shown(self, client, run, lie):
        """Of two equal keys JSON takes the last."""
        path = run.run_dir / "checkpoints/step-000020/manifest.json"
        path.write_text(path.read_text().rstrip()[:-1] + f", {lie}}}")
        assert client.get(address("run_checkpoints", run)).status_code == 200
        assert client.get(address("agent_archive", run, 20, 0)).status_code == 409
        assert [bool(one.damage) for one in checkpoints.list_of_checkpoints(run).checkpoints] == [
            True,
            False,
            False,
            False,
        ]

    def test_flipped_bit_is_found_where_every_byte_is_read(self, client, run, monkeypatch):
        path = run.run_dir / "checkpoints/step-000020/agents/1-b/weights.bin"
        data = bytearray(path.read_bytes())
        data[7] ^= 1
        path.write_bytes(data)
        assert "agents/1-b/weights.bin does not match" in checkpoints.list_of_checkpoints(run).checkpoints[0].damage
        monkeypatch.setattr(checkpoints, "READ_AT_ONCE_BYTES", 0)
        assert checkpoints.list_of_checkpoints(run).checkpoints[0].checked == "sizes match"
        monkeypatch.setattr(checkpoints, "READ_AT_ONCE_BYTES", 2 * read_manifest(path.parents[2]).size_bytes)
        labels = [one.checked for one in checkpoints.list_of_checkpoints(run).checkpoints]
        assert labels[1:] == ["verified",
                                                                              "sizes match", "sizes match"]  # fmt: skip
        assert "does not match" in client.get(address("run_checkpoints", run), {"verify": "20"}).content.decode()

    def test_removed_ones_are_counted_and_odd_values_are_no_error(self, client, run):
        store(run, Checkpoint(step=1, path="p", size_bytes=1), Checkpoint(step=2, path="p", size_bytes=1))
        assert "2 older ones removed" in client.get(address("run_checkpoints", run)).content.decode()
        for odd in ("x", "-1", "9" * 5000, "\x00", "１"):
            assert client.get(address("run_checkpoints", run), {"verify": odd, "ask": odd}).status_code == 200

    def test_files_on_another_host_are_said_to_be_there(self, client, run):
        Run.objects.filter(pk=run.pk).update(data_folder="another", worker_host="gpu-7")
        page = client.get(address("run_checkpoints", run)).content.decode()
        assert "The files of this run are on <strong>gpu-7</strong>" in page
        answer = client.get(address("agent_archive", run, 20, 0))
        assert answer.status_code == 404
        assert "on gpu-7, not on this one" in answer.content.decode()


class TestArchive:
    def test_zip_holds_the_agents_files_and_nothing_else(self, client, run):
        answer = client.get(address("agent_archive", run, 10, 1))
        assert answer["Content-Disposition"] == 'attachment; filename="b-hacpo-seed-1-step-10.zip"'
        with zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content))) as archive:
            assert archive.testzip() is None
            names = {name.removeprefix("b-hacpo-seed-1-step-10/") for name in archive.namelist()}
            assert names == {"weights.bin", "config.json", "README.md", "SHA256SUMS"}
            card = archive.read("b-hacpo-seed-1-step-10/README.md").decode()
            assert "vllm serve ./b-hacpo-seed-1-step-10 --served-model-name b" in card
            assert json.loads(archive.read("b-hacpo-seed-1-step-10/config.json")) == {"step": 10}

    def test_large_file_goes_through_in_pieces(self, run, tmp_path):
        folder = run.run_dir / "checkpoints/step-000010"
        manifest = read_manifest(folder)
        pieces = [len(piece) for piece in zip_of_agent(manifest, "A", "x")]
        assert max(pieces) < 8192  # of files of 4 KiB: nothing is gathered
        assert len(pieces) >= 4

    def test_file_that_has_changed_breaks_the_archive_off(self, run):
        manifest = read_manifest(run.run_dir / "checkpoints/step-000010")
        path = manifest.path / "agents/0-a/weights.bin"
        path.write_bytes(b"x" * path.stat().st_size)
        with pytest.raises(DamagedCheckpoint, match="does not match"):
            list(zip_of_agent(manifest, "A", "x"))

    @pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "agents/../../../x", "agents\\x"])
    def test_manifest_that_leads_out_of_the_checkpoint_is_damaged(self, run, name):
        path = run.run_dir / "checkpoints/step-000010/manifest.json"
        manifest = json.loads(path.read_text())
        manifest["files"][name] = {"size": 1, "sha256": ""}
        path.write_text(json.dumps(manifest))
        with pytest.raises(DamagedCheckpoint, match="leads out of the checkpoint"):
            read_manifest(path.parent)

    def test_link_in_a_checkpoint_is_not_followed(self, run):
        manifest = read_manifest(run.run_dir / "checkpoints/step-000010")
        path = manifest.path / "agents/0-a/weights.bin"
        path.rename(run.run_dir / "elsewhere")
        path.symlink_to(run.run_dir / "elsewhere")
        with pytest.raises(OSError, match="symbolic links"):
            list(zip_of_agent(manifest, "A", "x"))

    def test_missing_step_or_agent_is_404(self, client, run):
        for step, agent in ((7, 0), (10, 2), (2**40, 0), (10, 10**30)):
            assert client.get(address("agent_archive", run, step, agent)).status_code == 404


class TestExtend:
    def test_new_run_goes_on_with_the_whole_checkpoint_and_the_old_one_stays(self, client, run):
        assert "Continue training…" in client.get(address("run_checkpoints", run)).content.decode()
        answer = client.post(address("extend_run", run), {"step": "10", "steps": "30"})
        further = Run.objects.exclude(pk=run.pk).get()
        assert answer["Location"] == further.get_absolute_url()
        assert (further.cloned_from, further.start_step, further.step, further.total_steps) == (run, 10, 10, 40)
        assert further.name == f"{run.name} (to step 40)"
        assert further.data_folder == data_folder_id()
        assert further.spec["training"] == run.spec["training"] | {"steps": 40}
        assert {key for key in run.spec if further.spec[key] != run.spec[key]} == {"name", "training"}
        resumable, problems = newest_checkpoint(further.run_dir)
        assert (resumable.step, problems) == (10, [])
        [path] = (further.run_dir / "checkpoints").iterdir()
        weights = "agents/0-a/weights.bin"
        assert (path / weights).samefile(run.run_dir / "checkpoints/step-000010" / weights)
        page = client.get(further.get_absolute_url()).content.decode()
        assert f'Continued from <a href="{run.get_absolute_url()}">{run.name}</a> (step 10).' in page
        # Once more, from the second one.
        body = {"step": 10, "steps": 90}
        by_api = client.post(f"/api/v1/runs/{further.pk}/checkpoints/extend", body, content_type="application/json")
        assert (by_api.status_code, by_api.json()["name"]) == (201, f"{run.name} (to step 100)")
        assert by_api.json()["start_step"] == 10

    @pytest.mark.parametrize(
        ("form", "status", "told"),
        [
            ({"step": "10", "steps": "0"}, 422, "at least 1"),
            ({"step": "10", "steps": "a"}, 422, "at least 1"),
            ({"step": "10", "steps": "-3"}, 422, "at least 1"),
            ({"step": "10", "steps": "999999999"}, 422, "1000000"),
            ({"step": "11", "steps": "5"}, 404, "no checkpoint of step 11"),
        ],
    )
    def test_refusal_is_told_and_nothing_is_left(self, client, run, form, status, told, settings):
        answer = client.post(address("extend_run", run), form)
        assert (answer.status_code, told in answer.content.decode().replace(",", "")) == (status, True)
        assert Run.objects.count() == 1
        assert [path.name for path in Path(settings.RUNS_DIR).iterdir()] == [str(run.pk)]

    def test_checkpoint_that_goes_amid_the_copy_leaves_nothing(self, client, run, settings):
        (run.run_dir / "checkpoints/step-000010/state/trainer.json").unlink()
        answer = client.post(address("extend_run", run), {"step": "10", "steps": "5"})
        assert (answer.status_code, Run.objects.count()) == (409, 1)
        manifest = checkpoints.find_checkpoint(run, 20)
        shutil.rmtree(manifest.path)
        with pytest.raises(FieldErrors, match="could not be copied"):
            launch_extension(run.owner, run, manifest, 5)
        assert [path.name for path in Path(settings.RUNS_DIR).iterdir()] == [str(run.pk)]


class TestPromote:
    def test_agent_becomes_a_model_with_its_origin_and_stays_when_the_checkpoint_goes(self, client, run, monkeypatch):
        inspections = answer_inspections(monkeypatch, PASSED)
        form = {"step": "10", "agent": "1", "name": "Best of all"}
        answer = client.post(address("promote_agent", run), form)
        [model] = promoted()
        assert answer["Location"] == model.get_absolute_url()
        assert (model.name, model.owner, inspections) == ("Best of all", run.owner, [["model", model.location]])
        assert model.provenance == {
            "run": str(run.pk),
            "run_name": run.name,
            "step": 10,
            "agent": "B",
            "algorithm": "hacpo",
            "seed": 1,
            "started_from": run.spec["agents"][1]["model"],
        }
        page = client.get(model.get_absolute_url()).content.decode()
        assert f'<a href="{run.get_absolute_url()}">{run.name}</a>' in page
        source = run.run_dir / "checkpoints/step-000010/agents/1-b/weights.bin"
        data = source.read_bytes()
        source.unlink()
        assert Path(model.location, "weights.bin").read_bytes() == data
        run.delete()
        assert "deleted, or not visible to you" in client.get(model.get_absolute_url()).content.decode()

    def test_twice_with_one_name_is_refused_and_the_next_name_is_proposed(self, client, run, monkeypatch):
        answer_inspections(monkeypatch, PASSED)
        name = reuse.proposed_name(run, "A", 10, reuse.model_names(run))
        assert name == "A hacpo seed 1 step 10"
        form = {"step": "10", "agent": "0", "name": name}
        assert client.post(address("promote_agent", run), form).status_code == 302
        again = client.post(address("promote_agent", run), form)
        assert again.status_code == 422
        assert "already has one named" in again.content.decode()
        self.assert_form_kept(again, name, "already has one named")
        assert reuse.proposed_name(run, "A", 10, reuse.model_names(run)) == "A hacpo seed 1 step 10 2"
        assert client.post(address("promote_agent", run), form | {"name": name + " 2"}).status_code == 302
        assert len(promoted()) == 2

    def test_script_that_gives_no_name_gets_the_proposed_one(self, client, run, monkeypatch):
        answer_inspections(monkeypatch, PASSED)
        path = f"/api/v1/runs/{run.pk}/checkpoints/promote"
        for _ in range(2):
            answer = client.post(path, {"step": 10, "agent": 0}, content_type="application/json")
            assert answer.status_code == 201, answer.content
        assert {model.name for model in promoted()} == {"A hacpo seed 1 step 10", "A hacpo seed 1 step 10 2"}

    def test_refused_or_damaged_model_leaves_nothing(self, client, run, monkeypatch):
        failed = {"checks": [{"name": "config", "ok": False, "detail": "no model_type"}], "facts": {}}
        answer_inspections(monkeypatch, failed)
        form = {"step": "10", "agent": "0", "name": "x"}
        answer = client.post(address("promote_agent", run), form)
        assert (answer.status_code, "no model_type" in answer.content.decode()) == (422, True)
        answer_inspections(monkeypatch, PASSED)
        path = run.run_dir / "checkpoints/step-000010/agents/0-a/weights.bin"
        path.write_bytes(b"x" * path.stat().st_size)
        answer = client.post(address("promote_agent", run), form)
        assert "does not match its manifest. Choose another checkpoint." in answer.content.decode()
        assert promoted() == []

    @staticmethod
    def assert_form_kept(answer, name, reason):
        """Of agent A of step 10: open, with what was typed and, beside it alone, why it was refused."""
        page = answer.content.decode()
        [form] = re.findall(r"<details open><summary[^>]*>Promote….*?</details>", page, re.DOTALL)
        [field] = re.findall(r"<input[^>]* id=\"name-10-0\"[^>]*>", form)
        assert f'value="{escape(name)}"' in field
        assert not reason or (reason in form.partition('id="name-10-0-error"')[2], page.count(reason)) == (True, 1)

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("", "This field is required."),
            ("a/b", "Slashes are not allowed"),
            ("a\u202eb", "Control characters"),
            ('"><b>', ""),
        ],
    )
    def test_refused_names_stand_in_their_form_with_the_reason(self, client, run, monkeypatch, name, reason):
        inspections = answer_inspections(monkeypatch, PASSED if reason else {"checks": [], "error": "no such thing"})
        answer = client.post(address("promote_agent", run), {"step": "10", "agent": "0", "name": name})
        assert (answer.status_code, len(inspections)) == (422, 0 if reason else 1)
        assert promoted() == []
        self.assert_form_kept(answer, name, reason)

    def test_odd_places_are_not_found(self, client, run):
        for odd in ("", "x", "-1", "9" * 5000):
            assert client.post(address("promote_agent", run), {"step": odd, "agent": "0"}).status_code == 404


class TestAsk:
    form = {"question": "1+1=", "expected": "2", "step": "10", "temperature": "0", "max_new_tokens": "5", "seed": "0"}

    def child(self, monkeypatch, tmp_path, code: str):
        replace_child(monkeypatch, tmp_path, "ask", code)

    def test_answers_stand_side_by_side_as_text(self, client, run, monkeypatch, tmp_path):
        code = (
            "import json, sys\nasked = json.load(sys.stdin)\nassert asked['question'] == '1+1='\n"
            "for agent in asked['agents']:\n"
            "    print(json.dumps({'agent': agent['name'], 'text': '<b>2</b>', 'finish_reason': 'stop',\n"
            "        'num_tokens': 3, 'seconds': .1, 'verdict': {'reward': 1.0, 'reason': 'correct'}}))"
        )
        self.child(monkeypatch, tmp_path, code)
        answer = client.post(address("ask_agents", run), self.form, headers={"HX-Request": "true"})
        part = answer.content.decode()
        assert answer.status_code == 200
        assert part.count("<pre>&lt;b&gt;2&lt;/b&gt;</pre>") == 2
        assert part.count("correct") >= 2
        assert "<html" not in part
        assert "<html" in client.post(address("ask_agents", run), self.form).content.decode()

    def test_child_is_killed_at_its_time_limit_and_what_was_said_is_shown(self, client, run, monkeypatch, tmp_path):
        pid_file = tmp_path / "pid"
        code = (
            f"import os, time, json\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
            "print(json.dumps({'agent': 'A', 'text': 'seen', 'finish_reason': 'stop', 'num_tokens': 1, 'seconds': 1}),"
            " flush=True)\ntime.sleep(600)"
        )
        self.child(monkeypatch, tmp_path, code)
        monkeypatch.setattr(ask_agents, "TIMEOUT_S", 0.7)
        part = client.post(address("ask_agents", run), self.form, headers={"HX-Request": "true"}).content.decode()
        assert "<pre>seen</pre>" in part
        assert "Not answered: the time limit of 1 s was over. Ask for fewer tokens." in part
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid_file.read_text()), 0)

    def test_one_question_at_a_time_per_user(self, client, run, owner):
        with ask_agents._turn_of(owner):
            answer = client.post(address("ask_agents", run), self.form, headers={"HX-Request": "true"})
        assert answer.status_code == 409
        assert "still being answered" in answer.content.decode()

    @pytest.mark.parametrize(
        ("field", "value"),
        [("question", ""), ("question", "x" * 4001), ("temperature", "nan"), ("temperature", "-1"), ("seed", "x"),
         ("max_new_tokens", "0"), ("max_new_tokens", "1e9"), ("seed", "1.5"), ("step", ""), ("step", "7"),
         ("step", "9" * 5000)],
    )  # fmt: skip
    def test_odd_values_are_refused_beside_their_field_and_ask_nobody(self, client, run, monkeypatch, field, value):
        monkeypatch.setattr(ask_agents, "run_child", lambda *_, **__: pytest.fail("somebody was asked"))
        answer = client.post(address("ask_agents", run), self.form | {field: value}, headers={"HX-Request": "true"})
        assert answer.status_code in (404, 422)
        assert 'role="alert"' in answer.content.decode()

    def test_agents_too_large_for_the_free_memory_are_not_loaded(self, client, run, monkeypatch):
        monkeypatch.setattr(ask_agents, "run_child", lambda *_, **__: pytest.fail("somebody was asked"))
        monkeypatch.setattr(ask_agents, "BESIDE_WEIGHTS_BYTES", 2**60)
        answer = client.post(address("ask_agents", run), self.form, headers={"HX-Request": "true"})
        assert answer.status_code == 503
        assert "GiB of memory are free" in answer.content.decode()
