"""The new-run form: it has every setting, says beside a field what is wrong, and a clone begins as its run did."""

from __future__ import annotations

import json
import re

import pytest
from django.urls import reverse

from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.launch.controls import SEARCH_FIELDS
from hacrl_web.runs.models import Run, Sweep
from hacrl_web.runs.variants.grid import GRID
from hacrl_web.web.errors import FieldErrors
from tests.support.web import factories
from tests.support.web.page_text import field_of, text_of
from workers.algorithms.registry import settings_schema
from workers.contract.spec.run import RunSpec


@pytest.fixture
def form(user):
    ticked = ["false", "true"]  # a ticked box comes after its hidden "false"
    return factories.launch_form(user) | {"algorithm.sharing": ticked}


def test_form_has_a_control_for_every_setting(web, user, form):
    factories.make_benchmark(user)  # with a second one runs may train on it and evaluations ask it
    html = text_of(web.get(reverse("runs:run_create")))
    drawn = set(re.findall(r'name="([a-z]+\.[a-z_0-9.]+)"', html))
    sections = ("algorithm", "rewards", "rollout", "training", "evaluation", "checkpoint", "compute", "telemetry")
    expected = {f"{s}.{name}" for s in sections for name in type(RunSpec.model_fields[s].default).model_fields}
    expected |= {f"algorithm.{name}" for name in settings_schema()}
    search = {control.path for control in SEARCH_FIELDS}
    drawn = {re.sub(r"^(training\.benchmarks)\.\d+$", r"\1", name) for name in drawn}  # a weight for each benchmark
    assert drawn == expected | search | {f"grid.{name}" for name in GRID}


def test_posted_form_queues_the_run_it_describes(web, user, form):
    response = web.post(reverse("runs:run_create"), {**form, "algorithm.alpha": "3", "evaluation.eval_interval": "2"})
    run = Run.objects.get()
    assert response.status_code == 302
    assert response["Location"] == run.get_absolute_url()
    assert (run.owner, run.state, run.seed, run.algorithm) == (user, "queued", 3, "hacpo")
    assert (run.spec["algorithm"]["alpha"], run.spec["evaluation"]["eval_interval"]) == (3.0, 2)
    assert run.spec["algorithm"]["sharing"] is True


def test_what_stands_under_the_closed_compare_switch_does_not_count(web, form):
    response = web.post(
        reverse("runs:run_create"), {**form, "algorithms": ["gspo", "gspox2"], "seeds": "0, 1", "preset": "0"}
    )
    assert response.status_code == 302
    assert list(Run.objects.values_list("algorithm", "sweep")) == [("hacpo", None)]


def test_unticked_box_turns_a_setting_off(web, form):
    web.post(reverse("runs:run_create"), {**form, "algorithm.sharing": "false"})
    assert Run.objects.get().spec["algorithm"]["sharing"] is False


def test_delta_above_one_half_asks_for_confirmation_beside_its_field(web, form):
    response = web.post(reverse("runs:run_create"), {**form, "algorithm.delta": "0.8"})
    shown = field_of(response, "algorithm.delta")
    assert response.status_code == 422
    assert "A delta of 0.8 means a lower bound of 0.2" in shown
    assert "is a delta of 0.2 here" in shown
    assert 'name="confirm" value="delta_above_half=0.8"' in shown
    assert not Run.objects.exists()
    confirmed = web.post(
        reverse("runs:run_create"), {**form, "algorithm.delta": ".80", "confirm": "delta_above_half=0.8"}
    )
    assert confirmed.status_code == 302
    assert Run.objects.get().spec["algorithm"]["delta"] == 0.8


def test_warm_up_beyond_the_run_is_confirmed_beside_its_field(web, form):
    values = {**form, "training.warmup_steps": "50"}
    shown = field_of(web.post(reverse("runs:run_create"), values), "training.warmup_steps")
    assert 'name="confirm" value="warmup_beyond_run=50"' in shown
    assert web.post(reverse("runs:run_create"), {**values, "confirm": "warmup_beyond_run=50"}).status_code == 302


def test_audit_that_decides_little_is_asked_about_beside_its_field(web, form):
    Benchmark.objects.filter(pk=form["benchmark"]).update(verifier="regex")
    values = {**form, "algorithm.audit_share": "0.1"}
    shown = field_of(web.post(reverse("runs:run_create"), values), "algorithm.audit_share")
    assert 'name="confirm" value="audit_decides_little=0.1"' in shown
    assert web.post(reverse("runs:run_create"), {**values, "confirm": "audit_decides_little=0.1"}).status_code == 302


@pytest.mark.parametrize("confirm", ["delta_above_half=0.8", "delta_above_half", "delta_above_half=x", "=0.9", "\x00"])
def test_what_was_confirmed_is_the_value_and_another_one_is_asked_about_again(web, form, confirm):
    response = web.post(reverse("runs:run_create"), {**form, "algorithm.delta": "0.9", "confirm": confirm})
    assert response.status_code == 422
    assert 'value="delta_above_half=0.9"' in field_of(response, "algorithm.delta")
    assert "checked" not in field_of(response, "algorithm.delta")
    assert not Run.objects.exists()


def test_clone_of_a_confirmed_run_is_confirmed_without_a_box(web, user):
    request = factories.launch_request(user, algorithm={"name": "hacpo", "delta": 0.8}, confirm=["delta_above_half"])
    run = factories.launch(user, request)
    page = web.get(reverse("runs:run_create") + f"?clone={run.pk}")
    assert 'type="hidden" name="confirm" value="delta_above_half=0.8"' in field_of(page, "algorithm.delta")
    assert "confirm" not in field_of(page, "algorithm.delta_step")
    plain = factories.make_run(user)
    page = web.get(reverse("runs:run_create") + f"?clone={plain.pk}")
    assert 'name="confirm"' not in text_of(page)


@pytest.mark.parametrize(
    "hostile",
    [
        {"agents.0.model": "/etc/passwd"},
        {"data.train_path": "/etc/passwd"},
        {"data": "x"},
        {"algorithm.bogus": "1"},
        {"algorithm.delta.x": "1"},
        {"algorithm": "hacpo"},
        {"algorithm.": "1"},
        {".": "1"},
        {"": "1"},
        {"name": "a\x00b"},
        {"training.steps": "\x00"},
        {"__proto__.x": "1"},
        {"schema_version": "2"},
        {"x" * 900: "y"},
        {"algorithm.name": "x" * 100_000},
        {"compare": "1", "algorithms": "hacpo", "seeds": "1;drop table"},
        {"compare": "1", "algorithms": "hacpo", "seeds": "0 " * 60_000},
        {"compare": "1", "algorithms": "hacpo", "seeds": "99999999999999999999"},
        {"compare": "1", "algorithms": "hacpo", "seeds": "4294967295"},
        {"compare": "1", "algorithms": "hacpo", "seeds": "1", "grid.alpha": "1; 2"},
        {"compare": "1", "algorithms": "hacpo", "seeds": "1", "grid.delta": "0.1 " * 300},
        {"grid": "1"},
    ],
)
def test_hostile_form_is_refused_and_nothing_is_written(web, form, hostile):
    response = web.post(reverse("runs:run_create"), {**form, **hostile})
    assert response.status_code == 422
    assert not Run.objects.exists()
    assert not Sweep.objects.exists()


def test_form_of_random_bytes_is_refused(web):
    response = web.post(
        reverse("runs:run_create"), b"\xff\xfe=%ff&%00=%f0%28", content_type="application/x-www-form-urlencoded"
    )
    assert response.status_code == 400  # at the door: these bytes are no text


def test_every_preset_fills_fields_that_exist_with_values_that_are_accepted(web, form):
    html = text_of(web.get(reverse("runs:run_create")))
    data = json.loads(re.search(r'id="form-data" type="application/json">(.*?)</script>', html, re.DOTALL)[1])
    assert len(data["presets"]) == 12  # four machines', the demo's, the recommended one and the paper's six pairs
    for preset in data["presets"]:
        assert all(f'name="{path}"' in html for path in preset["values"]), preset["label"]
        values = {path: str(value) for path, value in preset["values"].items()}
        confirm = [one["text"] for one in preset["confirm"]]
        response = web.post(reverse("runs:run_create"), {**form, **values, "confirm": confirm})
        assert response.status_code == 302, preset["label"]


def test_stop_strings_are_one_text_or_a_list_and_a_clone_shows_them(web, form):
    for text, stop in (("", []), ("Question:", ["Question:"]), ('["\\n\\n", " a"]', ["\n\n", " a"])):
        response = web.post(reverse("runs:run_create"), {**form, "rollout.stop": text})
        assert response.status_code == 302
        run = Run.objects.latest("created_at")
        assert run.spec["rollout"]["stop"] == stop
    clone = web.get(reverse("runs:run_clone", args=[run.pk]), follow=True)
    assert 'value="[&quot;\\n\\n&quot;, &quot; a&quot;]"' in field_of(clone, "rollout.stop")
    refused = web.post(reverse("runs:run_create"), {**form, "rollout.stop": "x" * 101})
    assert "Must have at most 100 characters" in field_of(refused, "rollout.stop")


def test_settings_left_to_the_machine_are_a_choice_of_the_form(web, form):
    left = {"compute.gradient_checkpointing": "auto", "checkpoint.save_steps": ""}
    web.post(reverse("runs:run_create"), {**form, **left})
    run = Run.objects.get()
    assert run.spec["compute"]["gradient_checkpointing"] is None
    assert run.spec["checkpoint"]["save_steps"] is None
    web.post(reverse("runs:run_create"), {**form, "compute.gradient_checkpointing": "false"})
    clone = Run.objects.latest("created_at")
    assert clone.spec["compute"]["gradient_checkpointing"] is False
    page = web.get(reverse("runs:run_clone", args=[clone.pk]), follow=True)
    assert '<option value="false" selected>' in field_of(page, "compute.gradient_checkpointing")


def test_clone_of_a_run_of_version_2_keeps_the_defaults_of_that_version(web, user):
    run = factories.make_run(user)
    old = run.spec | {"schema_version": 2, "training": dict(run.spec["training"]), "compute": dict(run.spec["compute"])}
    for name in ("lora_rank", "lora_learning_rate_factor"):
        del old["training"][name]
    old["compute"]["gradient_checkpointing"] = False
    Run.objects.filter(pk=run.pk).update(spec=old)
    page = web.get(reverse("runs:run_clone", args=[run.pk]), follow=True)
    assert 'value="1"' in field_of(page, "training.lora_learning_rate_factor")
    assert '<option value="false" selected>' in field_of(page, "compute.gradient_checkpointing")


def test_presets_of_machines_are_estimated_for_a_group_that_the_user_may_see(web, user, form):
    address = reverse("runs:run_preset_memory")
    answer = web.get(address, {"group": form["group"]}).json()  # models without sizes
    assert answer["recommended"] is None
    tiles = {one["name"]: one for one in answer["presets"]}
    assert set(tiles) == {"demo", "laptop", "gpu-24gb", "gpu-80gb", "paper-8x80gb"}
    assert {one["text"] for one in tiles.values()} == {""}
    assert {one["seconds"] for one in tiles.values()} == {None}
    assert web.get(address, {"group": "x"}).json() == {"presets": [], "recommended": None}


def test_clone_remembers_its_origin_and_is_compared_with_it(web, user):
    run = factories.make_run(user, name="First", algorithm={"name": "hacpo", "alpha": 2.5}, seed=11)
    page = web.get(reverse("runs:run_clone", args=[run.pk]), follow=True)
    assert 'value="First (clone)"' in field_of(page, "name")
    assert f'<input type="hidden" name="cloned_from" value="{run.pk}">' in text_of(page)
    sent = {"group": run.group_id, "benchmark": run.benchmark_id, "name": "First (clone)", "cloned_from": run.pk}
    small = {"training.steps": "5", "training.train_batch_size": "4", "training.mini_batch_size": "4"}
    response = web.post(reverse("runs:run_create"), sent | small | {"algorithm.name": "gspo", "seed": "11"})
    clone = Run.objects.exclude(pk=run.pk).get()
    assert response["Location"] == clone.get_absolute_url()
    assert clone.cloned_from == run
    page = text_of(web.get(clone.get_absolute_url()))
    assert "Cloned from" in page
    assert "First (clone) queued." in page  # true also of a run that has left the queue
    config = text_of(web.get(reverse("insight:run_config", args=[clone.pk])))
    assert "First</a>, the run it was cloned from" in config
    # A clone of the clone is named once.
    again = web.get(reverse("runs:run_clone", args=[clone.pk]), follow=True)
    assert 'value="First (clone)"' in field_of(again, "name")


def test_run_of_another_is_no_origin(web, user):
    foreign = factories.make_run(factories.make_user())
    own = factories.launch(user, factories.launch_request(user, cloned_from=str(foreign.pk)))
    assert own.cloned_from is None
    with pytest.raises(FieldErrors):
        factories.launch(user, factories.launch_request(user, cloned_from="x"))


@pytest.mark.parametrize("clone", ["x", "0" * 32, "%00"])
def test_clone_of_nothing_is_the_plain_form(web, db, clone):
    assert web.get(reverse("runs:run_create") + "?clone=" + clone).status_code == 200


def test_rewards_are_sent_as_text_and_shown_again(web, form):
    posted = form | {"rewards.terms": "tags think answer = 0.2; short: length 4 = 0.1", "rewards.verifier_weight": "2"}
    response = web.post(reverse("runs:run_create"), posted)
    assert response.status_code == 302, text_of(response)
    run = Run.objects.get()
    assert [(term["name"], term["weight"]) for term in run.spec["rewards"]["terms"]] == [("tags", 0.2), ("short", 0.1)]
    html = text_of(web.get(reverse("runs:run_create") + f"?clone={run.pk}"))
    assert 'value="tags think answer = 0.2; short: length 4 = 0.1"' in html


def test_request_names_no_file_as_a_function(web, form):
    for terms in ("function /etc/passwd = 1", "function ../x = 1"):
        response = web.post(reverse("runs:run_create"), form | {"rewards.terms": terms})
        assert response.status_code == 422
        assert "There is no reward function" in text_of(response)
    assert not Run.objects.exists()


def test_setting_that_others_make_void_is_declared_on_its_control(web, db):
    page = web.get(reverse("runs:run_create"))
    fields = text_of(page)
    needs = re.search(r'data-field="rollout.gpu_memory_utilization"[^>]*data-needs="([^"]*)"', fields)[1]
    assert json.loads(needs.replace("&quot;", '"')) == [[{"path": "rollout.engine", "values": ["auto", "vllm"]}]]
    # A clip bound belongs to the rules that have one: SAPO and CISPO inherit it from GRPO, and do not clip below.
    users = re.search(r'data-field="algorithm.epsilon" data-algorithms="([^"]*)"', fields)[1].split()
    assert "gspo" in users
    assert not {"sapo", "cispo"} & set(users)


def test_estimate_lists_settings_that_have_no_effect(web, form):
    sent = {**form, "rollout.engine": "transformers", "rollout.gpu_memory_utilization": "0.5"}
    cost = web.post(reverse("runs:run_estimate"), sent).json()["cost"]
    assert cost["void_settings"] == ["rollout.gpu_memory_utilization: no effect with rollout.engine transformers."]


@pytest.mark.parametrize(
    ("refused", "code", "has_memory"),
    [
        ({"training.train_batch_size": "20000", "training.mini_batch_size": "20000"}, "too_few_questions", True),
        ({"training.mini_batch_size": "3"}, "invalid", False),
        ({"rollout.temperature": "9"}, "less_than_equal", False),
    ],
)
def test_estimate_of_a_form_that_is_refused_has_what_does_not_depend_on_it(web, form, refused, code, has_memory):
    sent = {**form, "rollout.num_generations": "8", "rollout.max_completion_length": "100", **refused}
    answer = web.post(reverse("runs:run_estimate"), sent)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (200, code)
    cost = answer.json()["cost"]
    prompts = int(sent["training.train_batch_size"])
    assert (cost["rollouts"], cost["max_tokens"]) == (5 * 2 * prompts * 8, 100 * 5 * 2 * prompts * 8)
    assert has_memory or cost["memory"] == ""


def test_estimate_counts_the_most_extra_prompts_and_says_so(web, form):
    sent = {**form, "training.train_batch_size": "4", "training.mini_batch_size": "4", "rollout.num_generations": "8"}
    sent |= {"rollout.max_completion_length": "100", "rollout.max_extra_prompts": "3"}
    cost = web.post(reverse("runs:run_estimate"), sent).json()["cost"]
    assert (cost["rollouts"], cost["extra_rollouts"]) == (5 * 2 * (4 + 3) * 8, 5 * 2 * 3 * 8)
    assert cost["max_tokens"] == 100 * 5 * 2 * (4 + 3) * 8
    assert cost["basis"].endswith("With all extra prompts; a step samples them only while prompts have no signal.")
    without = web.post(reverse("runs:run_estimate"), {**sent, "rollout.max_extra_prompts": "0"}).json()["cost"]
    assert (without["rollouts"], without["extra_rollouts"]) == (5 * 2 * 4 * 8, 0)
    assert "extra" not in without["basis"]


def test_estimate_is_empty_where_the_number_of_rollouts_is_refused(web, form):
    for path in ("training.steps", "rollout.num_generations", "rollout.max_completion_length"):
        answer = web.post(reverse("runs:run_estimate"), {**form, path: "odd"})
        assert (answer.status_code, answer.json()["cost"]) == (200, None), path


def test_help_links_the_page_that_it_names_and_shows_no_source_of_ours(web, db):
    html = web.get(reverse("runs:run_create")).content.decode()
    assert '<a href="/docs/science">Docs: science</a>' in html
    assert "design:" not in html
    assert not re.search(r"<label[^>]*>(Num|Max|Adam) ", html)


def test_message_of_a_queued_run_is_left_out_once_it_starts(web, form):
    answer = web.post(reverse("runs:run_create"), form)
    run = Run.objects.get()
    Run.objects.filter(pk=run.pk).update(state="starting", attempt=1)
    assert "from the form queued." not in text_of(web.get(answer["Location"]))
    answer = web.post(reverse("runs:run_create"), {**form, "name": "second"})
    assert "second queued." in text_of(web.get(answer["Location"]))
