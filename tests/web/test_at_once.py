"""Simultaneous requests: the second is refused, and nothing is lost."""

from __future__ import annotations

import json
import threading
from functools import partial

import pytest
from django.db import connection
from django.test import Client

from hacrl_web.accounts.models import User
from hacrl_web.accounts.people import service as people
from hacrl_web.registry.agent_groups import service as groups
from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.runs.archive.archive import delete_benchmark
from hacrl_web.runs.launch import again
from hacrl_web.runs.launch import launch as launching
from hacrl_web.runs.launch.launch import launch, launch_sweep
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run
from hacrl_web.runs.sweeps import sweeps
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import launch_request, make_benchmark, make_run, make_user
from tests.support.web.racing import racing

pytestmark = pytest.mark.django_db(transaction=True)
AT_ONCE = 4


def test_of_edits_that_name_the_same_version_one_is_written():
    user = make_user()
    run = make_run(user)
    web = Client()
    web.force_login(user)
    edits = {
        f"/api/v1/runs/{run.pk}/labels": {"tags": [], "notes": "{n}"},
        "/api/v1/notifications": web.get("/api/v1/notifications").json() | {"email": "swan{n}@example.org"},
    }
    senders = [Client() for _ in range(AT_ONCE)]
    for sender in senders:
        sender.force_login(user)
    with racing(AT_ONCE) as race:
        for address, body in edits.items():
            version = {"If-Match": web.get(address)["ETag"]}
            answers = []

            def edit(number: int, address=address, body=body, version=version, answers=answers) -> None:
                sent = json.dumps(body).replace("{n}", str(number))
                answer = senders[number].put(address, sent, content_type="application/json", headers=version)
                answers.append(answer.status_code)

            race(*(partial(edit, number) for number in range(AT_ONCE)))
            assert sorted(answers) == [200] + [412] * (AT_ONCE - 1), address


def test_staff_who_close_each_other_leave_one():
    first, second = make_user(is_staff=True), make_user(is_staff=True)
    refused = []

    def close(by: User, user: User) -> None:
        try:
            people.set_active(by, user, False)
        except FieldErrors as errors:
            refused.append(errors.status)

    with racing(2) as race:
        race(lambda: close(first, second), lambda: close(second, first))
    assert refused == [403]
    assert User.objects.filter(is_staff=True, is_active=True).count() == 1


def test_run_launched_while_its_group_is_deleted_never_loses_it(monkeypatch):
    """It waits for the end of the deletion, and is refused then; without the lock it would stand without a group."""
    user = make_user()
    request = launch_request(user)
    counted, refused = groups.uses_of, []

    def late() -> None:
        try:
            launch(user, request)
        except LaunchError as error:
            refused.append(error.errors[0].field)
        connection.close()

    thread = threading.Thread(target=late)

    def uses_of(group: AgentGroup) -> groups.GroupUses:
        found = counted(group)
        thread.start()
        thread.join(2)  # as long as it takes, were it not held up
        return found

    monkeypatch.setattr(groups, "uses_of", uses_of)
    groups.delete_group(AgentGroup.objects.get(pk=request["group"]))
    thread.join()
    assert refused == ["group"]
    assert not AgentGroup.objects.exists()
    assert not Run.objects.exists()


@pytest.mark.parametrize("sweep", [False, True])
def test_launch_whose_benchmark_was_deleted_meanwhile_is_refused(monkeypatch, sweep):
    user = make_user()
    request = launch_request(user)
    if sweep:
        request |= {"algorithms": ["hacpo"], "seeds": [1]}
        del request["algorithm"], request["seed"]
    planned = launching.plan_of

    def then_delete(*arguments):
        found = planned(*arguments)
        Benchmark.objects.all().delete()
        return found

    monkeypatch.setattr(launching, "plan_of", then_delete)
    with pytest.raises(LaunchError, match="benchmark was deleted"):
        (launch_sweep if sweep else launch)(user, request)
    assert not Run.objects.exists()


@pytest.mark.parametrize("section", ["training", "evaluation"])
@pytest.mark.parametrize("add_seeds", [False, True])
def test_benchmark_is_not_deleted_under_a_run_that_is_launched_again(monkeypatch, section, add_seeds):
    user = make_user()
    further = make_benchmark(user)
    Benchmark.objects.filter(pk=further.pk).update(name="words", train_path="/data/words.jsonl")
    request = launch_request(user)
    request[section] = {**request.get(section, {}), "benchmarks": [further.pk]}
    if add_seeds:
        request |= {"algorithms": ["hacpo"], "seeds": [1]}
        del request["algorithm"], request["seed"]
        sweep = launch_sweep(user, request)
    else:
        run = launch(user, request)
    Run.objects.update(state="failed")
    module, name = (sweeps, "create_in") if add_seeds else (again, "create_run")
    create_run, refused = getattr(module, name), []

    def late() -> None:
        try:
            delete_benchmark(further)
        except FieldErrors as error:
            refused.append(error.status)
        finally:
            connection.close()

    thread = threading.Thread(target=late)

    def creating(*arguments, **further_columns):
        thread.start()
        thread.join(0.5)  # longer than it takes, were it not held up
        return create_run(*arguments, **further_columns)

    monkeypatch.setattr(module, name, creating)
    if add_seeds:
        sweeps.add_seeds(user, sweep, [2])
    else:
        run.refresh_from_db()
        again.retry(user, run)
    thread.join()
    assert refused == [409]
    assert Benchmark.objects.filter(pk=further.pk).exists()
    assert Run.objects.filter(state="queued").count() == 1
