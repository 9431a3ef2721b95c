"""Runs that are offered to be drawn behind a run: its parent and its sweep's baseline, if the user may see them."""

from __future__ import annotations

import pytest

from hacrl_web.insight.overview.results import suggested_overlays
from hacrl_web.runs.models import Run, Sweep
from tests.support.web.factories import launch_request, make_run, make_user
from tests.support.web.page_text import text_of

pytestmark = pytest.mark.django_db


def relations(run: Run, user) -> dict[str, str]:
    run.refresh_from_db()
    return {one["relation"]: one["name"] for one in suggested_overlays(run, user)}


def test_parent_retried_run_and_baseline_of_the_sweep_are_offered(web, user):
    request = launch_request(user)
    run, parent, baseline, other_seed = (
        make_run(user, **request | {"name": name, "algorithm": algorithm, "seed": seed})
        for name, algorithm, seed in (
            *(("run", "hacpo", 1), ("parent", "hacpo", 1)),
            *(("baseline", "gspo", 1), ("other seed", "gspo", 2)),
        )
    )
    assert relations(run, user) == {"baseline": "baseline"}  # outside of a sweep, any of the project
    sweep = Sweep.objects.create(owner=user, name="All")
    Run.objects.filter(pk__in=[run.pk, baseline.pk, other_seed.pk]).update(sweep=sweep)
    Run.objects.filter(pk=run.pk).update(cloned_from=parent, start_step=3, retry_of=other_seed)
    assert relations(run, user) == {"continued from": "parent", "retry of": "other seed", "baseline": "baseline"}
    assert str(baseline.pk) in text_of(web.get(f"/runs/{run.pk}"))
    Run.objects.filter(pk=run.pk).update(start_step=0)
    assert relations(run, user)["cloned from"] == "parent"
    assert relations(baseline, user) == {}


def test_run_of_another_project_is_not_named(user):
    run = make_run(user)
    Run.objects.filter(pk=run.pk).update(cloned_from=make_run(make_user()))
    assert relations(run, user) == {}
