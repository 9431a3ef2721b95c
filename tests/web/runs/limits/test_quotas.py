"""Quotas of a project: what counts, who sets them, and that simultaneous launches and claims do not pass together."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.runs.launch.again import retry
from hacrl_web.runs.launch.launch import launch, launch_sweep, queue_draft
from hacrl_web.runs.limits.settings import QuotaLimits, RetentionDays
from hacrl_web.runs.models import GpuUse, Quota, Run, State, Worker
from hacrl_web.runs.models.quotas import QuotaReached, use_of, waiting_reason
from hacrl_web.runs.worker.tasks import claim_next, this_worker
from hacrl_web.runs.worker.usage import UnmeasuredFiles, UsageMeter
from tests.support.web.factories import launch_request, make_run, make_user
from tests.support.web.racing import racing

WORKER = Worker("here", 1, 1.0, "folder")
AT_ONCE = 50


def limited(user, **limits) -> Quota:
    return Quota.objects.update_or_create(project=user.memberships.get().project, defaults=limits)[0]


@pytest.mark.django_db
def test_waiting_runs_count_whether_queued_or_paused_and_a_sweep_is_refused_as_a_whole(user):
    limited(user, waiting=2)
    make_run(user).request_pause("by ada")
    request = launch_request(user)
    del request["algorithm"], request["seed"]
    with pytest.raises(QuotaReached, match="may have 2 waiting runs, and this launch would exceed that"):
        launch_sweep(user, {**request, "algorithms": ["gspo"], "seeds": [1, 2]})
    assert Run.objects.count() == 1
    queued = make_run(user)
    with pytest.raises(QuotaReached, match="wait until some have started"):
        make_run(user)
    Run.objects.filter(pk=queued.pk).update(state=State.RUNNING)
    make_run(user)
    assert (use_of(queued.project)["running"], use_of(queued.project)["waiting"]) == (1, 2)


@pytest.mark.django_db
def test_drafts_and_retries_pass_no_quota_by(user):
    draft = launch(user, launch_request(user, draft=True))
    ended = make_run(user)
    Run.objects.filter(pk=ended.pk).update(state=State.FAILED)
    ended.refresh_from_db()
    limited(user, waiting=0)
    with pytest.raises(QuotaReached):
        queue_draft(user, draft)
    with pytest.raises(QuotaReached):
        retry(user, ended)
    assert Run.objects.filter(state=State.QUEUED).count() == 0
    launch(user, launch_request(user, draft=True))  # a draft uses nothing


@pytest.mark.django_db
def test_gpu_hours_are_of_this_month(user):
    project = user.memberships.get().project
    now = datetime(2026, 11, 2, 12, tzinfo=UTC)
    for gpus, begin, end in (
        (2, now - timedelta(hours=3), now - timedelta(hours=1)),  # 4
        (1, datetime(2026, 10, 31, 20, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC)),  # 6 of its 10
        (8, datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC)),  # 0
    ):
        GpuUse.objects.create(project=project, run_id=uuid4(), attempt=1, gpus=gpus, from_at=begin, until_at=end)
    assert GpuUse.hours_of(project.pk, now) == 10
    run = make_run(user)
    limited(user, gpu_hours=0)
    with pytest.raises(QuotaReached, match=r"of its 0\.0 GPU hours of this month"):
        make_run(user)
    assert "wait for the next month" in waiting_reason(run)
    assert claim_next() is None


@pytest.mark.django_db
def test_disk_is_the_files_of_the_runs_as_measured(user):
    run = make_run(user)
    run.run_dir.mkdir(parents=True)
    (run.run_dir / "weights").write_bytes(b"x" * 3 * 2**20)
    Run.objects.filter(pk=run.pk).update(state=State.COMPLETED, attempt=1, data_folder=this_worker().data_folder)
    limited(user, disk_gib=2 / 1024)
    make_run(user)  # nothing is measured yet
    UnmeasuredFiles().tick()
    assert 3 / 1024 <= use_of(run.project)["disk_gib"] < 3.1 / 1024
    with pytest.raises(QuotaReached, match="delete some"):
        make_run(user)


@pytest.mark.django_db
def test_supervisor_counts_the_gpus_of_an_attempt_and_deleting_its_run_gives_none_back(user):
    run = make_run(user)
    Run.objects.filter(pk=run.pk).update(state=State.RUNNING, attempt=1)
    run.refresh_from_db()
    run.run_dir.mkdir(parents=True)
    (run.run_dir / "events.jsonl").write_bytes(b"x" * 8192)
    meter = UsageMeter(run)
    meter.write()
    assert not GpuUse.objects.exists()
    meter.gpus, meter.from_at = 2.0, timezone.now() - timedelta(hours=3)
    meter.write()
    meter.write(is_last=True)
    [row] = GpuUse.objects.all()
    assert (row.gpus, round((row.until_at - row.from_at).total_seconds())) == (2, 3 * 3600)
    run.refresh_from_db()
    assert run.files_bytes >= 8192
    Run.objects.filter(pk=run.pk).delete()
    assert GpuUse.objects.exists()


@pytest.mark.django_db
def test_project_at_its_limit_waits_and_holds_nobody_up(user, monkeypatch):
    full = [make_run(user, name=f"full {n}") for n in range(3)]
    limited(user, running=1)
    assert claim_next() == full[0]
    assert not Run.objects.startable()
    monkeypatch.setattr("hacrl_web.runs.worker.tasks.MAX_TRIES", 1)  # fewer than stand in front
    other = make_run()
    assert claim_next() == other
    assert claim_next() is None
    assert "may run 1 at once, and 1 run now" in waiting_reason(full[1])
    Run.objects.filter(pk=full[0].pk).update(state=State.COMPLETED)
    assert claim_next() == full[1]


@pytest.mark.django_db
def test_staff_set_quotas_on_the_page_and_by_the_api_and_members_see_them(client, user):
    project = user.memberships.get().project
    path, api = f"/projects/{project.pk}/quota", f"/api/v1/projects/{project.pk}/quota"
    client.force_login(user)
    assert client.post(path, {"running": "3"}).status_code == 403
    assert client.put(api, {"running": 3}, content_type="application/json").status_code == 403
    assert b'name="running"' not in client.get(project.get_absolute_url()).content
    client.force_login(make_user())
    assert client.post(path, {"running": "3"}).status_code == client.get(api).status_code == 404

    client.force_login(make_user(is_staff=True))
    assert client.post(path, {"running": "3", "gpu_hours": "12.5"}).status_code == 302
    assert 'value="12.5"' in client.get(project.get_absolute_url()).content.decode()
    answer = client.get(api).json()
    assert answer["limits"] == {"running": 3, "waiting": None, "gpu_hours": 12.5, "disk_gib": None}
    assert client.put(api, {"waiting": 7}, content_type="application/json").json()["limits"]["running"] is None
    assert AuditEntry.objects.filter(kind="quota", project_id=project.pk).count() == 2

    limited(user, waiting=0)
    client.force_login(user)
    launched = client.post("/api/v1/runs", json.dumps(launch_request(user)), content_type="application/json")
    assert (launched.status_code, launched.json()["error"]["code"]) == (409, "quota")


WHOLE = ("0.5", "-1", "9" * 5000, "x", "\x00", "1e3", "<b>", True, [], 10**30, 1.5, float("inf"))
AMOUNT = ("nan", "inf", "-1", "1,5", "x", "many", 1e300, True, "2")
BAD = {
    "quota": {"running": (*WHOLE, "3", 100_001), "waiting": WHOLE, "gpu_hours": AMOUNT, "disk_gib": AMOUNT},
    "retention": dict.fromkeys(("checkpoint_days", "archived_days"), (*WHOLE, 0, "0", 3651, "3651", "30")),
}
GOOD = {"quota": {"running": 3, "disk_gib": 0.5}, "retention": {"checkpoint_days": 1, "archived_days": 3650}}


@pytest.mark.django_db
@pytest.mark.parametrize("kind", [QuotaLimits, RetentionDays])
def test_values_out_of_bounds_are_refused_by_page_and_api_and_nothing_is_changed(client, user, kind):
    client.force_login(make_user(is_staff=True))
    project, name = user.memberships.get().project, kind.noun.removeprefix("the ")
    page, api = f"/projects/{project.pk}/{name}", f"/api/v1/projects/{project.pk}/{name}"
    assert client.put(api, GOOD[name], content_type="application/json").status_code == 200
    for field, values in BAD[name].items():
        title = kind.model_fields[field].title
        for bad in values:
            answer = client.put(api, json.dumps({field: bad}), content_type="application/json")
            assert answer.status_code in (400, 422), (field, bad)
            if isinstance(bad, str) and bad not in ("2", "3", "30"):  # on a page all are texts
                assert f"{title}: " in client.post(page, {field: bad}, follow=True).content.decode(), (field, bad)
                if name == "retention":
                    assert f"{title}: " in client.get(page, {field: bad}, follow=True).content.decode(), (field, bad)
                    assert client.get(f"{api}/preview", {field: bad}).status_code == 422, (field, bad)
    assert client.put(api, {"cars": 1}, content_type="application/json").status_code == 422
    kept = kind.of(project).model_dump(exclude_none=True)
    assert kept == GOOD[name]


def together(count: int, act) -> list[object]:
    """What `act` returns in each of so many threads that begin at once, or the QuotaReached that it raises."""
    gate = threading.Barrier(count)

    def one(number: int) -> object:
        gate.wait()
        try:
            return act(number)
        except QuotaReached as refused:
            return refused
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_of_50_parallel_launches_and_claims_a_quota_lets_through_exactly_its_number():
    """On SQLite here, on PostgreSQL by tests/test_postgresql.py."""
    user = make_user()
    request = launch_request(user)
    limited(user, waiting=7, running=3)
    results = together(AT_ONCE, lambda number: launch(user, {**request, "seed": number}))
    assert sum(isinstance(one, Run) for one in results) == 7 == Run.objects.count()
    assert {str(one) for one in results if isinstance(one, QuotaReached)} == {
        f"Project “{user.memberships.get().project}” may have 7 waiting runs, and this launch would exceed that: "
        "wait until some have started, or ask the staff of this installation for a larger quota."
    }
    waiting = list(Run.objects.in_queue())
    claims = together(AT_ONCE, lambda number: Run.objects.claim(waiting[number % 7].pk, WORKER))
    assert sum(one is not None for one in claims) == 3
    assert Run.objects.filter(state=State.STARTING).count() == 3


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [QuotaLimits, RetentionDays])
def test_two_who_set_the_first_values_at_once_are_both_served(kind):
    staff = make_user(is_staff=True)
    projects = [make_user().memberships.get().project for _ in range(8)]
    with racing(4) as race:
        for project in projects:
            race(*[partial(kind.replace, staff, project, {}) for _ in range(4)])
    assert kind.table.objects.count() == len(projects)
