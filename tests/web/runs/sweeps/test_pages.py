"""Pages and API of sweeps: form and estimate, list, matrix, the buttons, and what a large sweep costs to show."""

from __future__ import annotations

import json
import re

import pytest
from django.urls import reverse

from hacrl_web.runs.launch.cost import cost_of
from hacrl_web.runs.launch.launch import launch_sweep
from hacrl_web.runs.models import Run, Sweep, TelemetryEvent
from tests.support.web import factories
from tests.support.web.page_text import complete, field_of, text_of
from tests.web.runs.sweeps.test_sweeps import set_state, sweep_request
from workers.algorithms.registry import algorithms
from workers.contract.spec.run import RunSpec

pytestmark = pytest.mark.django_db


@pytest.fixture
def form(user):
    return factories.sweep_form(user)


def post_json(web, path: str, body=None):
    return web.post(f"/api/v1{path}", json.dumps(body or {}), content_type="application/json")


# The form


def test_form_launches_ablations_and_a_grid(web, form):
    response = web.post(reverse("runs:run_create"), {**form, "ablations": ["no_omega"], "grid.alpha": "1, 3"})
    sweep = Sweep.objects.get()
    assert response["Location"] == sweep.get_absolute_url()
    assert set(sweep.runs.values_list("variant", flat=True)) == {
        "hacpo alpha=1", "hacpo alpha=3", "hacpo no_omega alpha=1", "hacpo no_omega alpha=3", "gspo",
    }  # fmt: skip
    assert sweep.runs.count() == 10


def test_learning_rates_are_a_grid_and_a_draft_keeps_further_settings(web, form):
    asked = {**form, "grid.training.learning_rate": "1e-6, 3e-6", "varied": "cross_gate = hacpo, signed"}
    response = web.post(reverse("runs:run_save"), asked)
    sweep = Sweep.objects.get()
    assert sweep.request["grid"] == {"cross_gate": ["hacpo", "signed"], "training.learning_rate": [1e-6, 3e-6]}
    edit = web.get(reverse("runs:run_create"), {"sweep": sweep.pk}).content.decode()
    assert 'name="grid.training.learning_rate" value="1e-06, 3e-06"' in re.sub(r'id="[^"]*" name', "name", edit)
    assert ">cross_gate = hacpo, signed</textarea>" in edit
    assert response.status_code == 302


def test_large_delta_in_a_grid_is_confirmed_beside_the_grid(web, form):
    asked = {**form, "grid.delta": "0.2, 0.8"}
    response = web.post(reverse("runs:run_create"), asked)
    assert 'value="delta_above_half=0.2, 0.8"' in field_of(response, "grid.delta")
    assert "confirm" not in field_of(response, "algorithm.delta")
    meant = {**asked, "confirm": "delta_above_half=0.2, 0.8"}
    other = web.post(reverse("runs:run_create"), {**meant, "grid.delta": "0.2, 0.9"})
    assert other.status_code == 422
    # What was confirmed of the one value below says nothing of the grid.
    below = {**asked, "algorithm.delta": "0.8", "confirm": "delta_above_half=0.8"}
    assert web.post(reverse("runs:run_create"), below).status_code == 422
    kept = web.post(reverse("runs:run_create"), {**meant, "training.steps": "-1"})
    assert 'type="hidden" name="confirm" value="delta_above_half=0.2, 0.8"' in field_of(kept, "grid.delta")
    assert web.post(reverse("runs:run_create"), {**meant, "grid.delta": ".2 .80"}).status_code == 302


def test_run_is_ablated_by_a_form_that_is_filled_in(web, user):
    run = factories.make_run(
        user, seed=7, algorithm={"name": "hacpo", "alpha": 0, "delta": 0.8}, confirm=["delta_above_half"]
    )
    page = text_of(web.get(run.get_absolute_url()))
    address = re.search(r'href="([^"]+\?ablate=1)"', page)[1]
    form = web.get(address, follow=True)
    html = text_of(form)
    ticked = re.findall(r'name="(algorithms|ablations)" value="(\w+)" checked', html)
    # alpha is 0 already, so there is no exponent to take away
    expected = ["no_adv", "no_omega", "no_stepwise", "no_clip", "own_only"]
    assert ticked == [("algorithms", "hacpo"), *(("ablations", key) for key in expected)]
    assert 'name="compare" value="1" checked' in html
    assert 'value="7, 8, 9"' in field_of(form, "seeds")
    assert "New ablation sweep" not in text_of(web.get(factories.make_run(user, algorithm="gspo").get_absolute_url()))


# The estimate


def test_cost_without_a_measured_run_says_that_there_is_nothing_to_base_it_on(web, form):
    found = web.post(reverse("runs:run_estimate"), {**form, "algorithms": ["hacpo", "gspox2"]}).json()["cost"]
    # 2 agents x 4 prompts x 8 rollouts x 5 steps are 320; GSPOx2 takes twice as many; 2 seeds
    assert (found["runs"], found["rollouts"]) == (4, 2 * (320 + 640))
    assert found["max_tokens"] == 1920 * 4096
    assert found["device_seconds"] is None
    assert "nothing is known of the time" in found["basis"]
    # 100,000 parameters of each model, 14 bytes each; the two newest checkpoints of each run, and the best
    assert found["disk_bytes"] == 4 * 3 * 2 * 100_000 * 14
    assert not Run.objects.exists()


def test_cost_is_the_median_of_runs_of_the_same_group_and_benchmark(user):
    request = sweep_request(user)
    sweep = launch_sweep(user, {**request, "seeds": [0, 1, 2]})
    for run in sweep.runs.all():
        pace = {"hacpo": 0.5, "gspo": 0.25}[run.algorithm] + (4 if run.seed == 0 else 0)  # one slow machine
        progress = {"elapsed_s": pace * 320, "rollouts_generated": 320}
        set_state(run, "completed", progress=progress)
    other = factories.make_run(user)
    set_state(other, "completed", progress={"elapsed_s": 9e9, "rollouts_generated": 1})
    made_up = launch_sweep(user, request).runs.first()
    set_state(made_up, "completed", data_folder="generated", progress={"elapsed_s": 9e9, "rollouts_generated": 1})
    run = sweep.runs.filter(algorithm="hacpo").first()
    specs = [RunSpec.model_validate(run.spec)]
    found = cost_of(user, specs, run.group, run.benchmark)
    assert found.device_seconds == pytest.approx(320 * 0.5)
    assert found.basis_runs == 6
    naive = specs[0].model_copy(update={"algorithm": algorithms()["naive_source"]()})
    # Not measured: the median of all six, of 0.25 0.25 0.5 0.5 4.25 4.5
    found = cost_of(user, [naive], run.group, run.benchmark)
    assert found.device_seconds == pytest.approx(320 * 0.5)
    assert "naive_source" in found.basis
    assert cost_of(factories.make_user(), specs, run.group, run.benchmark).basis_runs == 0


def test_disk_is_that_of_the_newest_checkpoint_times_those_that_stay(user):
    run = factories.make_run(user, checkpoint={"save_steps": 2, "keep": 2})
    set_state(run, "completed")
    payload = {"path": "x", "size_bytes": 1000}
    TelemetryEvent.objects.create(run=run, seq=1, attempt=1, type="checkpoint", step=5, payload=payload, time=1.0)
    spec = RunSpec.model_validate(run.spec)
    # steps 2, 4 and 5 are saved; the newest two and the best stay
    assert cost_of(user, [spec], run.group, run.benchmark).disk_bytes == 3000
    short = spec.model_copy(update={"training": spec.training.model_copy(update={"steps": 1})})
    assert cost_of(user, [short], run.group, run.benchmark).disk_bytes == 1000


def test_sweep_says_which_agents_have_settings_of_their_own(web, form):
    web.post(reverse("runs:run_create"), {**form, "agents": "A: learning_rate = 1e-3"})
    html = web.get(Sweep.objects.get().get_absolute_url()).content.decode()
    assert "A: learning_rate = 1e-3" in html
    web.post(reverse("runs:run_save"), {**form, "agents": "A: lora_rank = 4"})
    draft = Sweep.objects.order_by("pk").last()
    assert "A: lora_rank = 4" in web.get(draft.get_absolute_url()).content.decode()


def test_sweep_without_the_baseline_announces_no_gain_over_it(web, form):
    for algorithms_, is_there in ((["hacpo"], False), (["hacpo", "gspo"], True)):
        web.post(reverse("runs:run_create"), {**form, "algorithms": algorithms_})
        html = web.get(Sweep.objects.order_by("pk").last().get_absolute_url()).content.decode()
        assert ("gain over GSPO" in html) == is_there


def test_estimate_says_what_is_wrong_and_does_not_ask_about_cautions(web, form):
    answer = web.post(reverse("runs:run_estimate"), {**form, "training.steps": "-1", "grid.alpha": "x"})
    assert answer.status_code == 200  # a browser logs other answers as errors, and nothing is wrong with the page
    assert {error["field"] for error in answer.json()["errors"]} == {"training.steps", "grid.alpha"}
    assert web.post(reverse("runs:run_estimate"), {**form, "grid.delta": "0.8"}).json()["cost"]["runs"] == 4
    one = {key: value for key, value in form.items() if key != "compare"}
    assert web.post(reverse("runs:run_estimate"), one).json()["cost"]["runs"] == 1
    evaluated = web.post(reverse("runs:run_estimate"), {**one, "training.steps": "0"}).json()["cost"]
    assert (evaluated["rollouts"], evaluated["device_seconds"], evaluated["disk_bytes"]) == (0, None, 0)
    assert "Nothing is trained" in evaluated["basis"]


def test_form_without_javascript_shows_the_estimate_and_queues_nothing(web, form):
    html = text_of(web.post(reverse("runs:run_cost"), form))
    assert '<span data-show="runs">4</span>' in html
    assert '<dd data-show="rollouts">1,280</dd>' in html
    assert "nothing is known of the time" in html
    assert 'name="compare" value="1" checked' in html
    assert not Run.objects.exists()


# The pages


def test_matrix_shows_the_run_that_counts_for_each_variant_and_seed(web, user):
    sweep = launch_sweep(user, sweep_request(user))
    run = sweep.runs.order_by("created_at").first()
    set_state(run, "failed")
    web.post(reverse("runs:sweep_retry", args=[sweep.pk]))
    html = text_of(web.get(sweep.get_absolute_url()))
    matrix = re.search(r'<table class="table sweep-matrix">.*?</table>', html, re.DOTALL)[0]
    shown = set(re.findall(r'data-run="([^"]+)"', matrix))
    assert len(shown) == 4
    assert str(run.pk) not in shown
    assert str(run.retries.get().pk) in shown
    assert str(run.pk) in html  # it stays in the table of all runs


def test_stop_all_names_what_is_lost_and_works_twice(web, user):
    sweep = launch_sweep(user, sweep_request(user))
    running = sweep.runs.order_by("created_at").first()
    set_state(running, "running", step=4)
    payload = {"path": "x", "size_bytes": 1}
    TelemetryEvent.objects.create(run=running, seq=1, attempt=1, type="checkpoint", step=3, payload=payload, time=1.0)
    panel = text_of(web.get(sweep.get_absolute_url())).partition('id="stop-all"')[2].partition("</details>")[0]
    assert "Ends 1 run in progress. 3 waiting or paused runs will not start or continue." in panel
    assert f"{running.name}: 4 of 5 steps, newest checkpoint: step 3" in panel
    address = reverse("runs:sweep_stop", args=[sweep.pk])
    assert web.get(address).status_code == 405
    assert "Stopping 4 runs" in text_of(web.post(address, follow=True))
    assert "There was no run to stop." in text_of(web.post(address, follow=True))
    assert sorted(sweep.runs.values_list("state", flat=True)) == ["running", "stopped", "stopped", "stopped"]


def test_buttons_are_there_when_they_do_something(web, user):
    sweep = launch_sweep(user, sweep_request(user))
    page = text_of(web.get(sweep.get_absolute_url()))
    assert "Pause all" in page
    assert "Resume all" not in page
    web.post(reverse("runs:sweep_pause", args=[sweep.pk]))
    page = text_of(web.get(sweep.get_absolute_url()))
    assert "Resume all" in page
    assert "Pause all" not in page
    web.post(reverse("runs:sweep_resume", args=[sweep.pk]))
    assert set(sweep.runs.values_list("state", flat=True)) == {"queued"}
    sweep.runs.update(state="completed")
    page = text_of(web.get(sweep.get_absolute_url()))
    assert "Stop all" not in page
    assert "Retry" not in page
    sweep.runs.filter(seed=1).update(state="failed")
    assert "Retry 2 failed" in text_of(web.get(sweep.get_absolute_url()))


def test_seeds_are_added_by_the_page(web, user):
    sweep = launch_sweep(user, sweep_request(user))
    address = reverse("runs:sweep_seeds", args=[sweep.pk])
    assert "Queued 2 runs." in text_of(web.post(address, {"seeds": "2, 5"}, follow=True))
    assert "already has all of these seeds" in text_of(web.post(address, {"seeds": "2, 5"}, follow=True))
    refused = web.post(address, {"seeds": "5, x"})
    assert refused.status_code == 422
    form = text_of(refused).partition('id="add-seeds" open')[2].partition("</form>")[0]
    assert "whole number" in form
    assert 'value="5, x"' in form
    assert sorted(sweep.runs.filter(seed=5).values_list("variant", flat=True)) == ["gspo", "hacpo"]


def test_list_shows_states_algorithms_and_seeds_of_each_sweep(web, user):
    sweep = launch_sweep(user, sweep_request(user, name="first light"))
    set_state(sweep.runs.first(), "completed")
    theirs = launch_sweep(other := factories.make_user(), sweep_request(other, name="their sweep"))
    html = text_of(web.get(reverse("runs:sweep_list")))
    assert "first light" in html
    assert "1 / 4 runs" in html
    retried = sweep.runs.last()
    set_state(retried, "failed")
    web.post(reverse("runs:sweep_retry", args=[sweep.pk]))
    assert "1 / 4 runs" in text_of(web.get(reverse("runs:sweep_list")))
    assert "gspo, hacpo" in html
    assert theirs.name not in html
    assert 'aria-current="page"' in html.partition('href="/sweeps/"')[2].partition("</a>")[0]


def test_sweep_without_runs_is_shown(web, user):
    sweep = Sweep.objects.create(owner=user, name="empty")
    assert "No run of this sweep is left." in text_of(web.get(sweep.get_absolute_url()))
    assert "empty" in text_of(web.get(reverse("runs:sweep_list")))
    assert web.get(f"/api/v1/sweeps/{sweep.pk}").json()["progress"]["runs"] == 0


def test_large_sweep_is_shown_by_few_queries(web, user, django_assert_max_num_queries):
    agents = tuple(f"agent {number}" for number in range(8))
    request = sweep_request(user, group=factories.make_group(user, agents).pk, seeds=list(range(10)))
    request |= {"algorithms": ["hacpo", "gspo", "gspox2", "grpo", "naive_source", "naive_learner"]}
    sweep = launch_sweep(user, request)
    for run in sweep.runs.all()[:30]:
        complete(run, dict.fromkeys(agents, (0.2, 0.5)))
    assert sweep.runs.count() == 60
    address = sweep.get_absolute_url()
    web.get(address)
    with django_assert_max_num_queries(16):
        assert web.get(address).status_code == 200
    for run in sweep.runs.all()[30:]:
        complete(run, dict.fromkeys(agents, (0.2, 0.5)))
    web.get(address)
    with django_assert_max_num_queries(16):
        assert "0.500" in web.get(address).content.decode()
    with django_assert_max_num_queries(9):  # one of them for the user's projects
        assert web.get(reverse("runs:sweep_list")).status_code == 200


def test_launch_of_a_large_sweep_looks_at_its_material_once(user, django_assert_max_num_queries):
    request = sweep_request(user, seeds=list(range(30)))
    with django_assert_max_num_queries(10 + 60 * 4):  # a run, its status change, a savepoint around each
        launch_sweep(user, request)


# The API


def test_api_estimates_launches_shows_stops_and_retries(web, user):
    request = sweep_request(user, ablations=["no_adv"])
    cost = post_json(web, "/sweeps/estimate", request)
    assert (cost.status_code, cost.json()["runs"]) == (200, 6)
    assert not Run.objects.exists()
    launched = post_json(web, "/sweeps", request).json()
    assert [one["label"] for one in launched["variants"]] == ["hacpo", "gspo", "hacpo no_adv"]
    assert launched["seeds"] == [1, 2]
    path = f"/sweeps/{launched['id']}"
    listed = web.get("/api/v1/sweeps").json()
    assert (listed["count"], listed["items"][0]["id"]) == (1, launched["id"])
    assert web.get(f"/api/v1{path}/progress").json()["counts"] == {"queued": 6}
    stopped = post_json(web, f"{path}/stop").json()
    assert (len(stopped["changed"]), stopped["progress"]["counts"]) == (6, {"stopped": 6})
    assert post_json(web, f"{path}/stop").json()["changed"] == []
    run = Run.objects.get(variant="gspo", seed=2)
    Run.objects.filter(pk=run.pk).delete()
    rows = {one["label"]: one["runs"] for one in web.get(f"/api/v1{path}").json()["variants"]}
    assert (rows["gspo"][1], len(rows["hacpo"])) == (None, 2)
    assert post_json(web, f"{path}/retry").json()["changed"] == []
    assert len(post_json(web, f"{path}/retry", {"state": "stopped"}).json()["changed"]) == 5
    assert len(post_json(web, f"{path}/pause", {"why": "lunch"}).json()["changed"]) == 5
    assert "lunch" in Run.objects.filter(state="paused").first().reason
    assert len(post_json(web, f"{path}/resume").json()["changed"]) == 5
    assert len(post_json(web, f"{path}/seeds", {"seeds": [9]}).json()["changed"]) == 3


def test_results_fetched_by_htmx_leave_the_banner_to_the_page(web, user):
    page = launch_sweep(user, sweep_request(user)).get_absolute_url()
    web.post(f"{page}/stop")
    assert "data-banner" not in web.get(page, headers={"HX-Request": "true"}).text
    assert "data-banner" in web.get(page).text
