"""Queue order, and the buttons and operations that pause, resume, retry, move, drain and forget."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.accounts.models import Membership, Role
from hacrl_web.runs.launch.again import retry
from hacrl_web.runs.models import Drain, Host, Run, State, Worker
from hacrl_web.runs.worker import queue
from hacrl_web.runs.worker import views as workers
from hacrl_web.web.errors import FieldErrors
from tests.support.web import factories
from tests.support.web.page_text import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client):
    client.force_login(factories.make_user("root", is_staff=True))
    return client


@pytest.fixture
def staff_of_all():
    client = Client()
    client.force_login(factories.make_user("root", is_staff=True))
    return client


def press(client, name: str, run: Run, **fields):
    """A button of the run header or the queue, without JavaScript."""
    response = client.post(reverse(f"runs:{name}", args=[run.pk]), fields)
    run.refresh_from_db()
    return response


def api(client, run: Run, operation: str, **body):
    response = client.post(f"/api/v1/runs/{run.pk}/{operation}", body, content_type="application/json")
    run.refresh_from_db()
    return response


def waiting() -> list[Run]:
    return list(Run.objects.in_queue())


def handles(client) -> dict[str, tuple[str, bool]]:
    """Of each row of the queue: among which rows its place counts, and whether it can be dragged."""
    html = text_of(client.get(reverse("runs:worker_list")))
    rows = re.findall(r'<tr data-queued="([^"]+)" data-among="([^"]+)">(.*?)</tr>', html, re.DOTALL)
    return {pk: (among, "queue-handle" in row) for pk, among, row in rows}


def shown(html: str, element: str) -> bool:
    """Whether the element with this id is in the page and not hidden."""
    start = html.index(f'id="{element}"')
    return " hidden" not in html[start : html.index(">", start)]


class TestOrder:
    def test_own_runs_change_places_and_those_of_others_stay(self, user):
        other = factories.make_user()
        a, x, b, y, c = (factories.make_run(owner) for owner in (user, other, user, other, user))
        assert queue.move_run(user, c, 1) == 1
        assert waiting() == [c, x, a, y, b]
        queue.move_run(user, c, 3)
        assert waiting() == [a, x, b, y, c]
        assert queue.place_in_queue(y) == 4

    def test_move_beyond_the_ends_goes_to_the_end(self, user):
        a, b, c = (factories.make_run(user) for _ in range(3))
        assert queue.move_run(user, a, 999) == 3
        assert waiting() == [b, c, a]
        assert queue.move_run(user, a, -5) == 1
        assert waiting() == [a, b, c]

    def test_runs_with_equal_keys_can_be_told_apart(self, user):
        a, b, c = (factories.make_run(user) for _ in range(3))
        Run.objects.update(queue_key=7.0)
        queue.move_run(user, c, 1)
        assert waiting() == [c, a, b]

    def test_move_through_a_long_queue_costs_few_queries_and_stands_in_the_log(
        self, web, user, django_assert_max_num_queries
    ):
        first = factories.make_run(user)
        values = {field.attname: getattr(first, field.attname) for field in Run._meta.concrete_fields}
        copies = [values | {"id": uuid4(), "queue_key": first.queue_key + place} for place in range(1, 300)]
        runs = [first, *Run.objects.bulk_create(Run(**one) for one in copies)]
        stranger = factories.make_run(factories.make_user())
        Run.objects.filter(pk=stranger.pk).update(queue_key=first.queue_key + 100.5)
        with django_assert_max_num_queries(60):  # of which the audit log takes a batch for every few changes
            assert api(web, runs[-1], "queue", place=1).status_code == 200
        assert waiting() == [runs[-1], *runs[:100], stranger, *runs[100:-1]]
        moved = AuditEntry.objects.filter(kind="run", action="changed", before__has_key="queue_key")
        assert moved.count() == len(runs)

    def test_run_that_begins_while_another_is_moved_keeps_its_slot(self, user):
        a, b, c = (factories.make_run(user) for _ in range(3))
        listed = list(queue.movable(user, c))
        slots = [(run.priority, run.queue_key) for run in listed]
        Run.objects.claim(a.pk, Worker("h", 1, 0.0, "f"))
        queue._write([listed[2], *listed[:2]], slots)
        assert Run.objects.get(pk=a.pk).queue_key == a.queue_key
        assert waiting() == [c, b]

    def test_moved_run_takes_the_priority_of_its_place(self, user):
        a, b = factories.make_run(user), factories.make_run(user)
        Run.objects.filter(pk=a.pk).update(priority=5)
        queue.move_run(user, b, 1)
        assert waiting() == [b, a]
        assert (b.priority, Run.objects.get(pk=a.pk).priority) == (5, 0)

    def test_resumed_run_has_its_old_place(self, user):
        a, b = factories.make_run(user), factories.make_run(user)
        a.request_pause("ada")
        assert waiting() == [b]
        a.request_resume("ada")
        assert waiting() == [a, b]

    def test_drawn_queue_costs_few_queries(self, web, user, django_assert_max_num_queries):
        for _ in range(12):
            factories.make_run(user)
        with django_assert_max_num_queries(15):
            web.get(reverse("runs:worker_list"))

    def test_own_run_behind_many_of_others_is_shown_and_the_others_are_counted(self, web, user, monkeypatch):
        monkeypatch.setattr(workers, "QUEUE_SHOWN", 2)
        stranger = factories.make_user()
        for _ in range(3):
            factories.make_run(stranger)
        own = [factories.make_run(user, name=f"own {number}") for number in range(3)]
        shown = web.get(reverse("runs:worker_list")).context
        assert [(run.pk, run.place) for run in shown["queue"]] == [(own[0].pk, 4), (own[1].pk, 5)]
        assert (shown["num_others"], shown["num_cut"]) == (3, 1)


class TestButtons:
    def test_pause_and_resume_say_who_and_the_header_shows_it(self, web, user):
        run = factories.make_run(user)
        html = text_of(web.get(run.get_absolute_url()))
        assert [shown(html, name) for name in ("pause", "resume", "retry", "stop", "pausing")] == [
            *(True, False, False, True, False)
        ]
        assert "place 1" in html
        press(web, "run_pause", run, why="the GPU is needed")
        assert (run.state, run.reason) == ("paused", f"paused by {user.username}: the GPU is needed")
        html = text_of(web.get(run.get_absolute_url()))
        assert [shown(html, name) for name in ("pause", "resume", "stop", "reason", "pausing")] == [
            *(False, True, True, True, False)
        ]
        assert run.reason in html
        press(web, "run_resume", run)
        assert (run.state, run.reason) == ("queued", f"resumed by {user.username}")

    def test_header_of_a_held_run_says_that_it_is_pausing(self, web, user):
        run = factories.make_run(user)
        Run.objects.claim(run.pk, Worker("h", 1, 0.0, "f"))
        press(web, "run_pause", run)
        assert (run.state, run.desired_state) == ("starting", "pause")
        html = text_of(web.get(run.get_absolute_url()))
        assert [shown(html, name) for name in ("pausing", "pause", "resume", "stop")] == [True, False, True, True]

    def test_buttons_say_what_will_happen_with_and_without_a_trainer(self, web, user):
        def said(name: str) -> str:
            press(web, name, run)
            html = text_of(web.get(run.get_absolute_url()))
            return next(line for line in html.splitlines() if "data-banner" in line)

        run = factories.make_run(user)
        Run.objects.claim(run.pk, Worker("h", 1, 0.0, "f"))
        assert "Pausing: the trainer ends after the current step" in said("run_pause")
        assert "Resumed: it continues." in said("run_resume")
        run.transition_to(State.LOST, reason="gone")
        assert "Pausing: no trainer is running" in said("run_pause")
        assert "continues from its newest checkpoint" in said("run_resume")
        assert "Stopping: no trainer runs" in said("run_stop")
        assert "The run is being stopped." in said("run_pause")
        run.transition_to(State.STOPPED, reason="")
        assert "The run has ended: stopped." in said("run_pause")

    def test_retry_is_a_new_run_of_the_same_settings(self, web, user):
        run = factories.make_run(user, seed=7)
        assert press(web, "run_retry", run).status_code == 302
        assert Run.objects.count() == 1  # it has not ended: nothing to retry
        Run.objects.filter(pk=run.pk).update(state="failed", attempt=4, last_seq=99, step=3, data_folder="f")
        response = press(web, "run_retry", run)
        new = Run.objects.exclude(pk=run.pk).get()
        assert response["Location"] == new.get_absolute_url()
        assert (new.spec, new.seed, new.group, new.benchmark, new.retry_of) == (
            *(run.spec, 7, run.group, run.benchmark, run),
        )
        assert (new.state, new.attempt, new.last_seq, new.step, new.data_folder) == ("queued", 0, 0, 0, "")
        assert run.state == "failed"
        page = text_of(web.get(new.get_absolute_url()))
        assert run.get_absolute_url() in page
        assert "Retry as a new run" in page
        assert "It starts at step 0" in page
        # Pressed again, in another tab: the retry that has not ended.
        assert press(web, "run_retry", run)["Location"] == new.get_absolute_url()
        assert Run.objects.count() == 2
        with pytest.raises(FieldErrors) as refusal:  # a viewer may not retry, also where a retry is under way
            retry(factories.make_member(run.project, "viewer"), run)
        assert refusal.value.status == 403
        Run.objects.filter(pk=new.pk).update(state="failed")
        press(web, "run_retry", run)
        assert Run.objects.count() == 3

    def test_queue_buttons_move_runs(self, web, user):
        a, b, c = (factories.make_run(user, name=f"run {n}") for n in range(3))
        for button, expected in (("down", [b, a, c]), ("up", [a, b, c]), ("last", [b, c, a]), ("first", [a, b, c])):
            press(web, "run_queue", a, move=button, **{"from": "queue"})
            assert waiting() == expected, button
        html = text_of(web.get(reverse("runs:worker_list")))
        assert html.count("Move run 0 up") == 1

    def test_only_runs_that_may_be_moved_have_a_handle_and_rows_say_among_which(self, web, staff_of_all, user):
        own, watched = factories.make_run(user), factories.make_run(factories.make_user())
        Membership.objects.create(project=watched.project, user=user, role=Role.VIEWER)
        rows = handles(web)
        assert rows == {str(own.pk): (str(own.project_id), True), str(watched.pk): (str(watched.project_id), False)}
        assert handles(staff_of_all) == {str(run.pk): ("all", True) for run in (own, watched)}

    @pytest.mark.parametrize(
        "fields",
        [{"move": "sideways"}, {"place": "-1"}, {"place": "9" * 50}, {"priority": "x"}, {"priority": "--5"}, {}],
    )
    def test_odd_orders_change_nothing(self, web, user, fields):
        a, b = factories.make_run(user), factories.make_run(user)
        assert press(web, "run_queue", b, **fields).status_code == 302
        assert waiting() == [a, b]
        assert b.priority == 0

    def test_move_of_a_run_that_does_not_wait_is_refused_in_words(self, web, user):
        run = factories.make_run(user)
        run.request_stop()
        response = web.post(reverse("runs:run_queue", args=[run.pk]), {"move": "up"}, follow=True)
        assert "Only a run that waits in the queue" in text_of(response)

    def test_paused_runs_stand_under_the_queue(self, web, user):
        run = factories.make_run(user)
        press(web, "run_pause", run)
        html = text_of(web.get(reverse("runs:worker_list")))
        assert f"Resume {run.name}" in html
        assert f"paused by {user.username}" in html

    def test_queue_says_which_host_a_begun_run_waits_for(self, web, user):
        run = factories.make_run(user)
        Run.objects.claim(run.pk, Worker("gpu-7", 1, 0.0, "its folder"))
        run.requeue(reason="deploy", attempt=1, is_interruption=False)
        assert "host gpu-7, which holds its files" in text_of(web.get(reverse("runs:worker_list")))


class TestOperations:
    def test_pause_resume_and_stop(self, web, user):
        run = factories.make_run(user)
        assert api(web, run, "pause", why="lunch").json()["state"] == "paused"
        assert run.reason.endswith(": lunch")
        assert api(web, run, "pause").status_code == 200
        assert api(web, run, "resume").json()["state"] == "queued"
        assert api(web, run, "resume").status_code == 200
        api(web, run, "pause")
        stopped = api(web, run, "stop").json()
        assert (stopped["state"], stopped["reason"]) == ("stopped", f"stopped by {user.username}")
        assert api(web, run, "pause").json()["desired_state"] == "stop"
        refused = api(web, run, "resume")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "ended")

    def test_place_and_priority(self, web, user):
        a, b = factories.make_run(user), factories.make_run(user)
        assert api(web, b, "queue", place=1).json()["place_in_queue"] == 1
        assert waiting() == [b, a]
        assert api(web, b, "queue", priority=-1).json()["place_in_queue"] == 2
        assert web.get(f"/api/v1/runs/{a.pk}").json()["place_in_queue"] == 1

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"place": 0}, "place"),
            ({"place": "x"}, "place"),
            ({"priority": 101}, "priority"),
            ({"priority": 1}, "priority"),
            ({"place": True}, "place"),
            ({"plase": 1}, "plase"),
        ],
    )
    def test_wrong_orders_name_their_field(self, web, user, body, field):
        response = api(web, factories.make_run(user), "queue", **body)
        assert response.status_code == 422
        assert response.json()["error"]["field"] == field

    def test_refused_place_leaves_the_priority(self, web, user):
        run = factories.make_run(user)
        run.request_pause("later")
        assert api(web, run, "queue", priority=-5, place=1).status_code == 409
        run.refresh_from_db()
        assert run.priority == 0

    def test_only_staff_raise_a_priority(self, staff, user):
        run = factories.make_run(user)
        assert api(staff, run, "queue", priority=100).json()["priority"] == 100

    def test_retry_of_a_run_that_goes_on_is_refused(self, web, user):
        run = factories.make_run(user)
        response = api(web, run, "retry")
        assert (response.status_code, response.json()["error"]["code"]) == (409, "not_ended")
        run.request_stop()
        created = api(web, run, "retry")
        assert (created.status_code, created.json()["retry_of"]) == (201, str(run.pk))

    def test_retry_of_a_run_whose_model_changed_is_refused(self, web, user):
        from pathlib import Path

        run = factories.make_run(user)
        run.request_stop()
        (Path(run.group.agents.first().model.location) / "config.json").write_text("{}")
        response = api(web, run, "retry")
        assert response.status_code == 422
        assert Run.objects.count() == 1


class TestDrain:
    def test_operation_is_for_staff(self, web):
        Host.objects.create(name="gpu-7")
        body = {"name": "gpu-7", "drain": "finish"}
        response = web.post("/api/v1/hosts/drain", body, content_type="application/json")
        assert response.status_code == 403
        web.post(reverse("runs:host_drain"), body)
        assert not Host.objects.get().is_drained

    def test_staff_drain_a_host_and_let_it_work_again(self, staff):
        Host.objects.create(name="gpu-7")
        for drain, words in (("now", "drained by root: disks"), ("no", "")):
            body = {"name": "gpu-7", "drain": drain, "why": "disks"}
            answer = staff.post("/api/v1/hosts/drain", body, content_type="application/json").json()
            assert (answer["drain"], answer["drain_reason"]) == (drain, words)
            Host.objects.update(drain="no", drain_reason="")
            staff.post(reverse("runs:host_drain"), body)
            assert (Host.objects.get().drain, Host.objects.get().drain_reason) == (drain, words)
        assert staff.get("/api/v1/hosts").json()["items"][0]["name"] == "gpu-7"

    @pytest.mark.parametrize("body", [{"name": "?", "drain": "now"}, {"name": "gpu-7", "drain": "later"}, {}])
    def test_odd_orders_change_nothing(self, staff, body):
        Host.objects.create(name="gpu-7")
        assert staff.post("/api/v1/hosts/drain", body, content_type="application/json").status_code in (404, 422)
        assert staff.post(reverse("runs:host_drain"), body).status_code == 302
        assert Host.objects.get().drain == Drain.NO


class TestForget:
    @pytest.fixture(params=["api", "page"])
    def forget(self, request):
        """Forgets a host by the API or the page; returns the status and the text of the answer."""

        def by_api(client, name):
            answer = client.post("/api/v1/hosts/forget", {"name": name}, content_type="application/json")
            return answer.status_code, answer.content.decode()

        def by_page(client, name):
            answer = client.post(reverse("runs:host_forget"), {"name": name}, follow=True)
            return answer.status_code, text_of(answer)

        return by_api if request.param == "api" else by_page

    def test_it_is_for_staff(self, web, forget):
        Host.objects.create(name="gpu-7")
        assert "Only staff" in forget(web, "gpu-7")[1]
        assert Host.objects.exists()

    def test_silent_host_is_removed(self, staff, forget):
        for name in ("gpu-7", "gpu-8"):
            Host.objects.create(name=name, last_seen=timezone.now() - timedelta(minutes=1))
        assert forget(staff, "gpu-7")[0] in (200, 204)
        assert Host.objects.get().name == "gpu-8"
        assert "no such host" in forget(staff, "gpu-7")[1]

    def test_host_that_lives_or_holds_runs_stays(self, staff, forget, make_run):
        Host.objects.create(name="gpu-7", last_seen=timezone.now())
        assert "still sends heartbeats" in forget(staff, "gpu-7")[1]
        Host.objects.update(last_seen=timezone.now() - timedelta(minutes=1))
        assert "Forget" in text_of(staff.get(reverse("runs:worker_list")))
        run = make_run()
        Run.objects.claim(run.pk, Worker("gpu-7", 1, 0.0, "f"))
        assert "still holds: 1" in forget(staff, "gpu-7")[1]
        assert "Forget" not in text_of(staff.get(reverse("runs:worker_list")))
        assert Host.objects.exists()


def test_draft_cannot_be_paused(make_run):
    run = make_run()
    Run.objects.filter(pk=run.pk).update(state=State.DRAFT)
    run.request_pause("ada")
    assert (run.state, run.desired_state) == ("draft", "run")
