"""Drafts: kept with all their settings, in nobody's way, and checked again when they are queued or changed."""

from __future__ import annotations

import subprocess

import pytest
import yaml
from django.urls import reverse

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark
from hacrl_web.runs.launch.launch import change_draft, launch, queue_draft
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.messages import worker_queue
from hacrl_web.runs.models import Run, Worker
from hacrl_web.runs.worker.dispatcher import Dispatcher
from hacrl_web.runs.worker.queue import places
from hacrl_web.web.errors import FieldErrors
from tests.support.web import factories
from tests.support.web.factories import launch_request, make_member, make_run
from tests.support.web.page_text import field_of, text_of
from tests.web.client.test_client import hacrl as hacrl  # its fixture
from tests.web.client.test_client import said_json

pytestmark = pytest.mark.django_db
JSON = "application/json"


@pytest.fixture
def notified(monkeypatch) -> list:
    """The runs that workers were notified of."""
    run_ids: list = []
    monkeypatch.setattr(worker_queue, "notify_worker", lambda pk, folder="": run_ids.append(pk) or True)
    monkeypatch.setattr(worker_queue, "waiting", lambda folder: 0)
    return run_ids


@pytest.fixture
def draft(user) -> Run:
    return launch(user, launch_request(user, name="swan", draft=True))


@pytest.fixture
def form(user):
    return factories.launch_form(user)


def codes(refused: FieldErrors) -> dict:
    return {error.field: error.code for error in refused.errors}


def test_draft_has_its_whole_spec_and_neither_queue_nor_worker_knows_it(
    user, notified, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        run = launch(user, launch_request(user, draft=True))
    assert (run.state, run.spec["training"]["learning_rate"], run.total_steps) == ("draft", 1e-6, 5)
    changes = run.status_changes.values_list("from_state", "to_state", "reason")
    assert list(changes) == [("", "draft", f"saved by {user.username}")]
    dispatcher = Dispatcher()
    dispatcher.tick()
    assert (places(), notified) == ({}, [])
    assert Run.objects.claim(run.pk, Worker("here", 1, 0.0, "folder")) is None
    run.refresh_from_db()
    assert (run.state, run.attempt) == ("draft", 0)


def test_queued_draft_goes_behind_those_that_wait(user, draft, notified, django_capture_on_commit_callbacks):
    waiting = make_run(user)
    with django_capture_on_commit_callbacks(execute=True):
        run = queue_draft(user, draft)
    assert (run.state, notified) == ("queued", [run.pk])
    assert sorted(places().items(), key=lambda one: one[1]) == [(waiting.pk, 1), (run.pk, 2)]
    assert run.status_changes.last().reason == f"queued by {user.username}"
    with pytest.raises(FieldErrors) as caught:
        queue_draft(user, draft)
    assert (codes(caught.value), caught.value.status) == ({None: "not_draft"}, 409)


def test_cautions_are_asked_about_when_it_is_queued(user):
    run = launch(user, launch_request(user, algorithm={"name": "hacpo", "delta": 0.8}, draft=True))
    with pytest.raises(LaunchError) as caught:
        queue_draft(user, run)
    assert codes(caught.value) == {"algorithm.delta": "delta_above_half"}
    run.refresh_from_db()
    assert run.state == "draft"
    assert queue_draft(user, run, ["delta_above_half"]).state == "queued"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda run: AgentGroup.objects.all().delete(), {"group": "missing"}),
        (lambda run: Benchmark.objects.all().delete(), {"benchmark": "missing"}),
        (lambda run: Agent.objects.update(learning_rate=0.5), {None: "changed_since"}),
        (lambda run: Benchmark.objects.update(prompt_template="Now: {question}"), {None: "changed_since"}),
        (lambda run: Benchmark.objects.update(num_train=2), {"training.train_batch_size": "too_few_questions"}),
    ],
    ids=["group deleted", "benchmark deleted", "agents changed", "benchmark changed", "too few questions"],
)
def test_what_has_changed_since_keeps_it_a_draft(user, draft, change, told):
    change(draft)
    with pytest.raises(LaunchError) as caught:
        queue_draft(user, draft)
    assert codes(caught.value) == told
    draft.refresh_from_db()
    assert draft.state == "draft"


def test_draft_does_not_keep_a_benchmark_from_being_deleted(web, draft):
    assert web.post(f"/api/v1/benchmarks/{draft.benchmark_id}/delete").status_code == 204
    draft.refresh_from_db()
    assert (draft.state, draft.benchmark) == ("draft", None)


def test_changed_draft_keeps_its_row(user, draft):
    change_draft(user, draft, launch_request(user, name="goose", seed=9, algorithm={"name": "gspo"}))
    run = Run.objects.get()
    assert (run.pk, run.state, run.name, run.seed, run.algorithm) == (draft.pk, "draft", "goose", 9, "gspo")
    assert run.spec["seed"] == 9
    with pytest.raises(LaunchError):
        change_draft(user, draft, launch_request(user, training={"steps": -1}))
    queue_draft(user, run)
    with pytest.raises(FieldErrors) as caught:
        change_draft(user, draft, launch_request(user))
    assert codes(caught.value) == {None: "not_draft"}


def test_draft_stays_in_its_project(staff, draft):
    with pytest.raises(LaunchError) as caught:
        change_draft(staff, draft, launch_request(factories.make_user()))
    assert codes(caught.value) == {"group": "other_project"}


@pytest.fixture
def staff(db):
    return factories.make_user(is_staff=True)


class TestForm:
    def test_saves_a_draft_and_shows_it_with_its_buttons(self, web, form):
        answer = web.post(reverse("runs:run_save"), form)
        run = Run.objects.get()
        assert (answer["Location"], run.state, run.seed) == (run.get_absolute_url(), "draft", 3)
        page = text_of(web.get(run.get_absolute_url()))
        assert f'action="{reverse("runs:run_queue_draft", args=[run.pk])}"' in page
        assert f"{reverse('runs:run_create')}?draft={run.pk}" in page
        assert f"{reverse('runs:runs_delete')}?runs={run.pk}" in page
        assert 'id="stop" hidden' in page
        assert 'data-state="draft"' in text_of(web.get(reverse("runs:run_list")))
        assert web.post(f"{reverse('runs:runs_delete')}?runs={run.pk}", {"runs": run.pk}).status_code == 302
        assert not Run.objects.exists()

    def test_caution_is_asked_about_on_the_page_of_the_draft(self, web, form):
        web.post(reverse("runs:run_save"), form | {"algorithm.delta": "0.8"})
        run = Run.objects.get()
        page = text_of(web.get(run.get_absolute_url()))
        assert "A delta of 0.8 means a lower bound of 0.2" in page
        assert 'name="confirm" value="delta_above_half" required' in page
        url = reverse("runs:run_queue_draft", args=[run.pk])
        assert "Nothing was changed. " in text_of(web.post(url, follow=True))
        run.refresh_from_db()
        assert run.state == "draft"
        web.post(url, {"confirm": "delta_above_half"})
        run.refresh_from_db()
        assert run.state == "queued"

    def test_edit_opens_its_settings_and_saves_them_in_its_place(self, web, form):
        web.post(reverse("runs:run_save"), form | {"algorithm.delta": "0.8"})
        run = Run.objects.get()
        page = web.get(reverse("runs:run_create"), {"draft": run.pk})
        assert f'name="draft" value="{run.pk}"' in text_of(page)
        assert 'value="from the form"' in field_of(page, "name")
        assert 'value="0.8"' in field_of(page, "algorithm.delta")
        assert "confirm" not in field_of(page, "algorithm.delta")
        edited = form | {"draft": str(run.pk), "name": "edited", "algorithm.delta": "0.3"}
        refused = web.post(reverse("runs:run_save"), edited | {"seed": "-1"})
        assert f'name="draft" value="{run.pk}"' in text_of(refused)
        web.post(reverse("runs:run_save"), edited)
        changed = Run.objects.get()
        assert (changed.pk, changed.name, changed.state) == (run.pk, "edited", "draft")
        assert changed.spec["algorithm"]["delta"] == 0.3

    def test_edited_draft_is_queued_with_its_new_settings(self, web, draft, form):
        sent = form | {"draft": str(draft.pk), "algorithm.delta": "0.8"}
        asked = web.post(reverse("runs:run_create"), sent)
        assert "is a delta of 0.2 here" in field_of(asked, "algorithm.delta")
        web.post(reverse("runs:run_create"), sent | {"confirm": "delta_above_half=0.8"})
        run = Run.objects.get()
        assert (run.pk, run.name, run.state) == (draft.pk, "from the form", "queued")
        # Sent from a page that was left open: the queued run stays as it is, and the form becomes one of a new run.
        late = web.post(reverse("runs:run_create"), sent | {"name": "late"})
        assert (late.status_code, f'name="draft" value="{draft.pk}"' in text_of(late)) == (409, False)
        assert [run.name for run in Run.objects.all()] == ["from the form"]

    def test_draft_that_is_gone_is_told(self, web, draft, form):
        Run.objects.all().delete()
        for named in (str(draft.pk), "no id"):
            answer = web.post(reverse("runs:run_save"), form | {"draft": named})
            assert (answer.status_code, "The draft was deleted" in text_of(answer)) == (404, True)
        assert not Run.objects.exists()
        assert web.get(reverse("runs:run_create"), {"draft": draft.pk}).status_code == 200

    @pytest.mark.parametrize("sent", [{}, {"seed": "-1"}, {"odd": "1"}])
    @pytest.mark.parametrize("button", ["run_cost", "run_download", "run_create", "run_save"])
    def test_odd_id_of_a_draft_is_left_out_of_the_form(self, web, form, button, sent):
        answer = web.post(reverse(f"runs:{button}"), form | {"draft": "../odd"} | sent)
        assert (answer.status_code in (200, 404, 422), "../odd" in text_of(answer)) == (True, False)

    def test_button_of_a_page_from_before_queues_nothing(self, web, form):
        """Buttons had keys of their own and one address: a page that was left open is refused, not queued."""
        for key in ("save", "estimate", "download"):
            answer = web.post(reverse("runs:run_create"), form | {key: "1"})
            assert (answer.status_code, 'value="from the form"' in field_of(answer, "name")) == (422, True)
        assert not Run.objects.exists()


class TestCommand:
    def test_it_holds_the_settings_as_a_shell_reads_them(self, web, form, tmp_path):
        odd = "it's $HOME `id` \\ \" EOF"
        sent = form | {"name": odd, "algorithm.delta": "0.8", "confirm": "delta_above_half=0.8"}
        command = web.post(reverse("runs:run_command"), sent).json()["command"]
        assert command.startswith("./hacrl launch - <<'EOF'\n")
        (tmp_path / "hacrl").write_text("#!/bin/sh\ncat\n")
        (tmp_path / "hacrl").chmod(0o755)
        ran = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=True, text=True)
        text = ran.stdout
        assert (yaml.safe_load(text)["name"], yaml.safe_load(text)["confirm"]) == (odd, ["delta_above_half"])
        downloaded = web.post(reverse("runs:run_download"), sent)
        assert text == downloaded.content.decode()
        assert not Run.objects.exists()

    def test_what_is_wrong_is_told_by_its_field(self, web, form):
        answer = web.post(reverse("runs:run_command"), form | {"training.steps": "-3"})
        assert answer.status_code == 422
        assert [error["field"] for error in answer.json()["errors"]] == ["training.steps"]
        assert web.post(reverse("runs:run_command"), form | {"compare": "1"}).status_code == 422


class TestApi:
    def test_draft_is_made_once_for_each_key_changed_and_queued_once(self, web, user):
        body = launch_request(user, draft=True)
        first, again = (
            web.post("/api/v1/runs", body, content_type=JSON, headers={"Idempotency-Key": "k"}) for _ in range(2)
        )
        assert (first.status_code, first.json()["state"], first.content == again.content) == (201, "draft", True)
        path = f"/api/v1/runs/{first.json()['id']}"
        other = body | {"seed": 8}
        assert web.put(f"{path}/request", other, content_type=JSON).status_code == 428
        version = {"If-Match": web.get(f"{path}/request").headers["ETag"]}
        changed = web.put(f"{path}/request", other, content_type=JSON, headers=version)
        assert (changed.status_code, changed.json()["seed"], Run.objects.get().state) == (200, 8, "draft")
        own = web.get(f"{path}/request")
        kept = web.put(f"{path}/request", own.json(), content_type=JSON, headers={"If-Match": own.headers["ETag"]})
        assert (kept.status_code, Run.objects.get().cloned_from) == (200, None)
        assert web.put(f"{path}/request", other, content_type=JSON, headers=version).status_code == 412
        for _ in range(2):
            queued = web.post(
                f"{path}/queue-draft", {"confirm": []}, content_type=JSON, headers={"Idempotency-Key": "q"}
            )
            assert (queued.status_code, queued.json()["state"], queued.json()["place_in_queue"]) == (201, "queued", 1)
        refused = web.post(f"{path}/queue-draft", content_type=JSON)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_draft")
        version = {"If-Match": web.get(f"{path}/request").headers["ETag"]}
        assert web.put(f"{path}/request", body, content_type=JSON, headers=version).status_code == 409
        assert Run.objects.count() == 1

    def test_request_of_a_draft_confirms_nothing(self, web, user):
        run = launch(user, launch_request(user, algorithm={"name": "hacpo", "delta": 0.8}, draft=True))
        assert web.get(f"/api/v1/runs/{run.pk}/request").json()["confirm"] == []

    def test_viewer_is_refused_and_others_do_not_find_it(self, client, draft, user):
        body = launch_request(user)
        for somebody, status in ((make_member(draft.project, "viewer"), 403), (factories.make_user(), 404)):
            client.force_login(somebody)
            assert client.post(f"/api/v1/runs/{draft.pk}/queue-draft", content_type=JSON).status_code == status
            version = {"If-Match": client.get(f"/api/v1/runs/{draft.pk}/request").headers.get("ETag", "")}
            path = f"/api/v1/runs/{draft.pk}/request"
            assert client.put(path, body, content_type=JSON, headers=version).status_code == status
            assert client.post(reverse("runs:run_queue_draft", args=[draft.pk])).status_code == status
            # Of a draft that a form names in its fields, nothing changes either.
            sent = {"draft": str(draft.pk), "name": "taken"}
            for button in ("runs:run_create", "runs:run_save"):
                assert client.post(reverse(button), sent).status_code in (403, 404)
        draft.refresh_from_db()
        assert (draft.state, draft.name) == ("draft", "swan")

    def test_viewer_who_is_a_member_elsewhere_changes_no_draft_by_the_form(self, client, draft, form):
        viewer = make_member(draft.project, "viewer")
        factories.make_user().memberships.get().project.memberships.create(user=viewer, role="member")
        client.force_login(viewer)
        answer = client.post(reverse("runs:run_save"), form | {"draft": str(draft.pk)})
        assert answer.status_code == 403
        draft.refresh_from_db()
        assert draft.name == "swan"


def test_audit_log_tells_what_became_of_a_draft(web, user, form):
    web.post(reverse("runs:run_save"), form)
    run = Run.objects.get()
    web.post(reverse("runs:run_save"), form | {"draft": str(run.pk), "algorithm.alpha": "3"})
    web.post(reverse("runs:run_queue_draft", args=[run.pk]))
    entries = list(AuditEntry.objects.filter(kind="run").order_by("pk"))
    assert [entry.action for entry in entries] == ["created", "edited", "changed"]
    assert (entries[0].after["state"], entries[1].after) == ("draft", {"settings": "algorithm.alpha"})
    assert (entries[2].before["state"], entries[2].after["state"]) == ("draft", "queued")
    assert {entry.actor for entry in entries} == {user.username}


def test_terminal_saves_and_queues_a_draft(hacrl, user, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(launch_request(user, algorithm={"name": "hacpo", "delta": 0.8})))
    assert hacrl("launch", str(file), "--draft").startswith("Draft of a run ")
    assert "A draft is not trained" in hacrl("launch", str(file), "--draft", "--watch", status=1)
    (run,) = said_json(hacrl("runs", "--state", "draft", "--json"))
    path = f"/runs/{run['id']}/queue-draft"
    assert "delta_above_half" in hacrl("api", "POST", path, status=1)
    assert said_json(hacrl("api", "POST", path, "-d", '{"confirm": ["delta_above_half"]}'))["state"] == "queued"
    assert Run.objects.get().state == "queued"
