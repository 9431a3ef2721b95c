"""Pages of runs and leaderboard: they render, say what to do when empty, put errors beside fields, never answer 500."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from django.urls import reverse

from hacrl_web.alerts.signals import Facts
from hacrl_web.errors import FieldErrors
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.models import Contribution, RolloutSample, Run, Sweep, TelemetryEvent
from hacrl_web.runs.templatetags.show import size
from hacrl_web.runs.variants import GRID
from tests.web import factories
from workers.demo_recipe import AGENTS
from workers.spec import RunSpec

EVENT = {"attempt": 1, "step": 1, "agent": "A", "source": "", "time": 1.0}


@pytest.fixture
def web(client, user):
    client.force_login(user)
    return client


@pytest.fixture
def form(user):
    """What the browser posts for a run that is accepted."""
    return {
        "name": "from the form",
        "group": str(factories.make_group(user).pk),
        "benchmark": str(factories.make_benchmark(user).pk),
        "seed": "3",
        "algorithm.name": "hacpo",
        "algorithm.sharing": ["false", "true"],  # a ticked box comes after its hidden "false"
        "training.steps": "5",
        "training.train_batch_size": "4",
        "training.mini_batch_size": "4",
    }


def text_of(response) -> str:
    return response.content.decode()


def field_of(response, path: str) -> str:
    """The HTML of one field of the new-run form: from its data-field to the next one's."""
    html = text_of(response)
    start = html.index(f'data-field="{path}"')
    end = html.find("data-field=", start + 1)
    return html[start : end if end > 0 else None]


def add_event(run: Run, seq: int, kind: str, payload: dict, **changes) -> None:
    TelemetryEvent.objects.create(run=run, seq=seq, type=kind, payload=payload, **{**EVENT, **changes})


def complete(run: Run, accuracies: dict[str, tuple[float, float]]) -> None:
    """Give a run its evaluations before and after, and end it."""
    seq = 0
    for step, place in ((0, 0), (5, 1)):
        for agent, values in accuracies.items():
            seq += 1
            payload = {"metric": "accuracy", "value": values[place], "correct": 1, "asked": 2, "slices": {}}
            add_event(run, seq, "evaluation", payload, step=step, agent=agent)
    progress = {"step": 5, "total_steps": 5, "elapsed_s": 9.0, "eta_s": 0.0, "rollouts_generated": 320}
    Run.objects.filter(pk=run.pk).update(state="completed", step=5, last_seq=seq, progress=progress)


EMPTY_PAGES = {
    "home": "Register the models to train",
    "runs:run_list": "Start the first run",
    "runs:sweep_list": "Compare algorithms in a sweep",
    "leaderboard:index": "Compare algorithms in a sweep",
    "runs:worker_list": "Start a run",
    "runs:run_create": "Make an agent group",
}


@pytest.mark.parametrize("name", EMPTY_PAGES)
def test_empty_page_says_what_to_do_next(web, name):
    response = web.get(reverse(name))
    assert response.status_code == 200
    assert EMPTY_PAGES[name] in text_of(response)


@pytest.mark.parametrize("name", EMPTY_PAGES)
def test_visitor_is_sent_to_the_login(client, db, name):
    response = client.get(reverse(name))
    assert response.status_code == 302
    assert response["Location"].startswith(reverse("accounts:login"))


def test_every_page_of_a_run_renders(web, user):
    run = factories.make_run(user)
    complete(run, {"A": (0.2, 0.7), "B": (0.2, 0.6)})
    pages = [reverse("home"), reverse("runs:run_list"), reverse("runs:worker_list"), reverse("leaderboard:index")]
    own_pages = ("", "/rollouts", "/config", "/events", "/system", "/checkpoints", "?tab=logs", "?tab=%00")
    pages += [run.get_absolute_url() + end for end in own_pages]
    pages.append(reverse("runs:metrics_csv", args=[run.pk]))
    for page in pages:
        assert web.get(page).status_code == 200, page


@pytest.mark.parametrize(
    "query", ["page=-1", "page=x", "page=99999999999999999999", "state=bogus", "q=%00%ff", "q=" + "x" * 5000]
)
def test_odd_queries_of_the_run_list_are_harmless(web, user, query):
    factories.make_run(user)
    assert web.get(reverse("runs:run_list") + "?" + query).status_code == 200


def test_run_list_filters_by_state_and_name(web, user):
    factories.make_run(user, name="first light")
    done = factories.make_run(user, name="second sight")
    Run.objects.filter(pk=done.pk).update(state="completed")
    assert "first light" not in text_of(web.get(reverse("runs:run_list") + "?state=completed"))
    found = text_of(web.get(reverse("runs:run_list") + "?q=LIGHT"))
    assert "first light" in found
    assert "second sight" not in found


def test_foreign_runs_and_sweeps_do_not_exist(web, user):
    owner = factories.make_user()
    run = factories.make_run(owner, name="their run")
    sweep = Sweep.objects.create(owner=owner, name="theirs")
    for name in ("runs:run_detail", "insight:run_rollouts", "runs:run_clone", "runs:metrics_csv"):
        assert web.get(reverse(name, args=[run.pk])).status_code == 404, name
    assert web.post(reverse("runs:run_stop", args=[run.pk])).status_code == 404
    assert web.get(reverse("runs:sweep_detail", args=[sweep.pk])).status_code == 404
    assert run.name not in text_of(web.get(reverse("runs:run_list")))
    run.refresh_from_db()
    assert run.desired_state == "run"


@pytest.mark.parametrize(
    ("algorithm", "shares", "can_trap"),
    [
        ({"name": "hacpo"}, True, True),
        ({"name": "hacpo", "cross_clip_gradient": "sided"}, True, False),
        ({"name": "hacpo", "clip_cross": False}, True, False),
        ({"name": "hacpo", "sharing": False}, False, False),
        ({"name": "naive_source"}, True, False),
        ({"name": "naive_learner"}, True, False),
        ({"name": "grpo"}, False, False),
        ({"name": "gspo"}, False, False),
    ],
)
def test_run_page_draws_pairs_where_rollouts_are_shared_and_warns_where_the_papers_clip_acts(
    web, user, algorithm, shares, can_trap
):
    run = factories.make_run(user, algorithm=algorithm)
    response = web.get(reverse("runs:run_detail", args=[run.pk]))
    assert response.context["page_data"]["shares"] == shares
    # The warning is an alert: its rule knows where the paper's clip acts.
    assert Facts.of(RunSpec.model_validate(run.spec)).can_trap == can_trap
    assert ("so there are no charts of pairs" in text_of(response)) is not shares


@pytest.mark.parametrize(
    ("changes", "unmeasured"),
    [
        ({"algorithm": {"name": "hacpo"}, "telemetry": {"alignment_interval": 5}}, []),
        ({"algorithm": {"name": "hacpo"}, "telemetry": {"alignment_interval": 6}}, ["gradient_alignment"]),  # 5 steps
        ({"algorithm": {"name": "hacpo"}, "telemetry": {"alignment_interval": 0}}, ["gradient_alignment"]),
        ({"algorithm": {"name": "hacpo", "beta": 0}, "telemetry": {"alignment_interval": 1}}, ["kl"]),
        ({"algorithm": {"name": "naive_source"}, "telemetry": {"alignment_interval": 1}}, ["omega"]),
        ({"algorithm": {"name": "naive_learner"}, "telemetry": {"alignment_interval": 1}}, ["omega"]),
        ({"algorithm": {"name": "gspo"}, "telemetry": {"alignment_interval": 1}}, ["omega"]),
        # the paper's -omega still weighs its baseline by it; without both, nothing reads it
        ({"algorithm": {"modulate_gradient": False}, "telemetry": {"alignment_interval": 1}}, []),
        (
            {"algorithm": {"modulate_gradient": False, "advantage": "plain"}, "telemetry": {"alignment_interval": 1}},
            ["omega"],
        ),
    ],
)
def test_run_page_has_no_chart_of_what_the_run_does_not_measure_or_use(web, user, changes, unmeasured):
    run = factories.make_run(user, **changes)
    assert web.get(run.get_absolute_url()).context["page_data"]["unmeasured"] == unmeasured


def test_form_has_a_control_for_every_setting(web, user, form):
    factories.make_benchmark(user)  # with a second one evaluations may ask further benchmarks
    html = text_of(web.get(reverse("runs:run_create")))
    drawn = set(re.findall(r'name="([a-z]+\.[a-z_0-9]+)"', html))
    sections = ("algorithm", "rollout", "training", "evaluation", "checkpoint", "compute", "telemetry")
    expected = {f"{s}.{name}" for s in sections for name in type(RunSpec.model_fields[s].default).model_fields}
    assert drawn == expected | {f"grid.{name}" for name in GRID}


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


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("training.learning_rate", "nan", "finite number"),
        ("training.learning_rate", "inf", "finite number"),
        ("training.learning_rate", "1,5", "with a point, not a comma"),
        ("training.learning_rate", "0", "greater than 0"),
        ("training.learning_rate", "", "Must not be empty"),
        ("training.steps", "-3", "at least 0"),
        ("training.steps", "1e400", "whole number"),
        ("training.steps", "9" * 5000, ""),
        ("training.mini_batch_size", "3", "Must divide"),
        ("algorithm.name", "sgd", "Must be one of"),
        ("algorithm.sharing", "maybe", "true or false"),
        ("seed", "-1", "at least 0"),
        ("seed", "\uff13", "whole number"),
        ("name", "", "Must not be empty"),
        ("name", "x" * 121, "at most 120"),
        ("group", "", "Choose a group"),
        ("group", "999999", "no such group"),
        ("benchmark", "../etc", "no such benchmark"),
    ],
)
def test_bad_value_is_explained_beside_its_field_and_kept(web, form, field, value, message):
    response = web.post(reverse("runs:run_create"), {**form, field: value, "algorithm.alpha": "2.5"})
    assert response.status_code == 422
    shown = field_of(response, field)
    assert "field-error" in shown
    assert message in shown
    assert 'value="2.5"' in field_of(response, "algorithm.alpha")
    assert not Run.objects.exists()


def test_delta_above_one_half_asks_for_confirmation_beside_its_field(web, form):
    response = web.post(reverse("runs:run_create"), {**form, "algorithm.delta": "0.8"})
    shown = field_of(response, "algorithm.delta")
    assert response.status_code == 422
    assert "The lower bound becomes 0.2" in shown
    assert "did you mean 0.2?" in shown
    assert 'name="confirm" value="delta_above_half=0.8"' in shown
    assert not Run.objects.exists()
    confirmed = web.post(
        reverse("runs:run_create"), {**form, "algorithm.delta": ".80", "confirm": "delta_above_half=0.8"}
    )
    assert confirmed.status_code == 302
    assert Run.objects.get().spec["algorithm"]["delta"] == 0.8


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


def test_clone_of_a_confirmed_run_is_confirmed(web, user):
    request = factories.launch_request(user, algorithm={"name": "hacpo", "delta": 0.8}, confirm=["delta_above_half"])
    run = factories.launch(user, request)
    page = web.get(reverse("runs:run_create") + f"?clone={run.pk}")
    assert 'value="delta_above_half=0.8" checked' in field_of(page, "algorithm.delta")
    assert "confirm" not in field_of(page, "algorithm.delta_step")
    plain = factories.make_run(user)
    page = web.get(reverse("runs:run_create") + f"?clone={plain.pk}")
    assert 'name="confirm"' not in text_of(page)


def test_odd_mini_batch_of_gspox2_is_explained_beside_its_field(web, form):
    odd = {"algorithm.name": "gspox2", "training.train_batch_size": "9", "training.mini_batch_size": "3"}
    response = web.post(reverse("runs:run_create"), {**form, **odd})
    assert response.status_code == 422
    assert "mini_batch_size must be even" in field_of(response, "training.mini_batch_size")
    assert response.context["homeless"] == []


def test_seed_that_is_named_twice_is_said_and_not_merged(web, form):
    values = {**form, "compare": "1", "algorithms": ["gspo", "hacpo"], "seeds": "1, 0, 1"}
    response = web.post(reverse("runs:run_create"), values)
    assert response.status_code == 422
    assert "Named more than once: 1." in field_of(response, "seeds")
    assert 'value="1, 0, 1"' in text_of(response)
    assert not Run.objects.exists()


def test_confirmation_survives_another_error(web, form):
    values = {**form, "algorithm.delta": "0.8", "confirm": "delta_above_half=0.8", "training.steps": "-1"}
    shown = field_of(web.post(reverse("runs:run_create"), values), "algorithm.delta")
    assert 'value="delta_above_half=0.8" checked' in shown


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
        {"compare": "1", "algorithms": ["hacpo", "nonsense"], "seeds": "1"},
        {"compare": "1", "seeds": "1"},
        {"compare": "1", "algorithms": "hacpo", "seeds": ""},
        {"compare": "1", "algorithms": "hacpo", "seeds": "1", "ablations": "no_such"},
        {"compare": "1", "algorithms": "hacpo", "seeds": "1", "grid.alpha": "1; 2"},
        {"compare": "1", "algorithms": "hacpo", "seeds": "1", "grid.alpha": "1, nan"},
        {"compare": "1", "algorithms": "hacpo", "seeds": "1", "grid.delta": "0.1 " * 300},
        {"compare": "1", "algorithms": "hacpo", "seeds": "1", "grid.beta": "1"},
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
    assert response.status_code == 422


def test_compare_launches_each_algorithm_with_each_seed(web, form):
    values = {**form, "compare": "1", "algorithms": ["gspo", "hacpo"], "seeds": "4, 7"}
    response = web.post(reverse("runs:run_create"), values)
    sweep = Sweep.objects.get()
    assert response["Location"] == sweep.get_absolute_url()
    launched = set(sweep.runs.values_list("algorithm", "seed"))
    assert launched == {("gspo", 4), ("gspo", 7), ("hacpo", 4), ("hacpo", 7)}
    page = text_of(web.get(sweep.get_absolute_url()))
    assert all(str(run.pk) in page for run in sweep.runs.all())


def test_every_preset_fills_fields_that_exist_with_values_that_are_accepted(web, form):
    html = text_of(web.get(reverse("runs:run_create")))
    data = json.loads(re.search(r'id="form-data" type="application/json">(.*?)</script>', html, re.DOTALL)[1])
    assert len(data["presets"]) == 7  # the demo's and the paper's six pairs
    for preset in data["presets"]:
        assert all(f'name="{path}"' in html for path in preset["values"]), preset["label"]
        values = {path: str(value) for path, value in preset["values"].items()}
        confirm = [one["text"] for one in preset["confirm"]]
        response = web.post(reverse("runs:run_create"), {**form, **values, "confirm": confirm})
        assert response.status_code == 302, preset["label"]


def test_page_of_a_sweep_of_the_demos_agents_says_what_they_do_not_show(web, user):
    sweep = Sweep.objects.create(owner=user, name="any")
    run = factories.launch(user, factories.launch_request(user), sweep=sweep)
    assert "no estimate" not in text_of(web.get(sweep.get_absolute_url()))
    run.spec["data"]["benchmark"] = "Order of operations"  # the demo's questions, asked of others
    run.save()
    assert "no estimate" not in text_of(web.get(sweep.get_absolute_url()))
    for agent, name in zip(run.spec["agents"], AGENTS.values(), strict=True):
        agent["name"] = name
    run.save()
    assert "no estimate of HACPO's benefit in general" in text_of(web.get(sweep.get_absolute_url()))


def test_clone_starts_from_the_settings_of_the_run(web, user):
    run = factories.make_run(user, algorithm={"name": "hacpo", "alpha": 2.5}, seed=11)
    response = web.get(reverse("runs:run_clone", args=[run.pk]), follow=True)
    assert 'value="2.5"' in field_of(response, "algorithm.alpha")
    assert 'value="11"' in field_of(response, "seed")
    assert f'value="{run.group_id}" selected' in field_of(response, "group")


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
    assert "Cloned from" in text_of(web.get(clone.get_absolute_url()))
    config = text_of(web.get(reverse("insight:run_config", args=[clone.pk])))
    assert "First</a>, which it was cloned from" in config
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


def test_stop_needs_a_post_and_repeats_harmlessly(web, user):
    run = factories.make_run(user)
    address = reverse("runs:run_stop", args=[run.pk])
    assert web.get(address).status_code == 405
    assert web.post(address).status_code == 302
    run.refresh_from_db()
    assert (run.state, run.reason) == ("stopped", f"stopped by {user.username}")
    assert "already ended" in text_of(web.post(address, follow=True))


def test_stop_says_that_a_run_that_nobody_began_loses_nothing(web, user):
    run = factories.make_run(user)
    hidden = re.compile(r'data-started="(no|yes)"( hidden)?>')
    assert dict(hidden.findall(text_of(web.get(run.get_absolute_url())))) == {"no": "", "yes": " hidden"}
    Run.objects.filter(pk=run.pk).update(attempt=1)  # back in the queue with what it has learnt
    assert dict(hidden.findall(text_of(web.get(run.get_absolute_url())))) == {"no": " hidden", "yes": ""}


def test_csv_holds_the_plotted_numbers_of_the_highest_attempt(web, user):
    run = factories.make_run(user)
    add_event(run, 1, "metrics", {"values": {"kl": 0.5}, "ratios": {"reward/mean": [3.0, 4.0]}}, step=1)
    add_event(run, 2, "metrics", {"values": {"kl": 9.0}, "ratios": {}}, step=2)
    # The second attempt goes on from step 1 and repeats step 2.
    add_event(run, 3, "metrics", {"values": {"kl": 0.25}, "ratios": {}}, step=2, attempt=2)
    add_event(run, 4, "metrics", {"values": {"omega": 1.5}, "ratios": {}}, step=2, attempt=2, source="B")
    response = web.get(reverse("runs:metrics_csv", args=[run.pk]))
    rows = list(csv.reader(io.StringIO(b"".join(response.streaming_content).decode())))
    assert rows[0] == ["step", "agent", "source", "metric", "value"]
    assert sorted(rows[1:]) == [
        ["1", "A", "", "kl", "0.5"],
        ["1", "A", "", "reward/mean", "0.75"],  # 3 of 4
        ["2", "A", "", "kl", "0.25"],
        ["2", "A", "B", "omega", "1.5"],
    ]


def test_csv_cells_are_no_formulas(web, user):
    run = factories.make_run(user)
    add_event(run, 1, "metrics", {"values": {"@sum": -1.0}, "ratios": {}}, agent="=cmd")
    lines = b"".join(web.get(reverse("runs:metrics_csv", args=[run.pk])).streaming_content).decode().splitlines()
    assert lines[1] == "1,'=cmd,,'@sum,-1.0"


def test_rollout_text_is_never_markup_and_its_weight_is_shown(web, user):
    run = factories.make_run(user)
    common = {"run": run, "attempt": 1, "step": 2, "prompt_id": "q1", "sample": 0, "num_tokens": 4}
    attack = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    RolloutSample.objects.create(
        **common,
        seq=1,
        agent="A",
        prompt=attack,
        completion=attack,
        answer=attack,
        reward=1.0,
        finish_reason="stop",
        mean_logp=-0.5,
    )
    Contribution.objects.create(
        **common,
        seq=2,
        agent="B",
        source="A",
        advantage=0.5,
        sequence_ratio=0.9,
        clipped_ratio=0.9,
        clip_side="none",
        omega=1.25,
        weight=0.50625,
        mini_batch=1,
    )
    html = text_of(web.get(reverse("insight:run_rollouts", args=[run.pk])))
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "0.506" in html


def test_weight_of_a_shared_rollout_shows_its_equation(web, user):
    run = factories.make_run(user, algorithm={"name": "hacpo", "cross_weight": 0.5})
    place = {"run": run, "attempt": 1, "step": 1, "prompt_id": "q", "sample": 0, "num_tokens": 4}
    RolloutSample.objects.create(**place, seq=1, agent="A", prompt="p", completion="c", finish_reason="stop")
    numbers = {"advantage": 0.5, "sequence_ratio": 0.9, "clipped_ratio": 0.9, "omega": 1.25, "alpha": 1.0}
    # .9^(1 + 1) * 1.25 * .5 * .5 = .253125
    taught = {"weight": 0.253125, "capability": 0.4, "source_capability": 0.5, "source_num_tokens": 6}
    Contribution.objects.create(**place, seq=2, agent="B", source="A", clip_side="none", **numbers, **taught)
    html = text_of(web.get(reverse("insight:run_rollouts", args=[run.pk])))
    assert "c^(1+α) · ω · A · cross_weight = 0.9^2 · 1.25 · 0.5 · 0.5" in html
    assert "P of the source 0.5, of the learner 0.4" in html
    assert "over 4 tokens of the learner, 6 of the source" in html


def test_settings_are_shown_in_words(web, user):
    run = factories.make_run(user)
    shown = text_of(web.get(reverse("insight:run_config", args=[run.pk]))).partition("As JSON")[0]
    assert '<th scope="row" class="mono">algorithm.sharing</th><td class="mono">yes</td>' in shown
    assert not re.search(r">(True|False|None|{})<", shown)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10_035, "9.8 KiB"), (1_005_568, "982 KiB"),
     (1_048_575, "1.0 MiB"), (1_048_576, "1.0 MiB"), (104_857_600, "100 MiB"), (3 * 2**30, "3.0 GiB")],
)  # fmt: skip
def test_bytes_are_written_in_one_way(num_bytes, text):
    assert size(num_bytes) == text


def test_hostile_names_stay_text(web, user):
    name = "</script><script>alert(1)</script>"
    run = factories.make_run(user, name=name)
    for page in (run.get_absolute_url(), reverse("runs:run_list"), reverse("home")):
        assert "<script>alert(1)" not in text_of(web.get(page)), page


def test_leaderboard_shows_the_gain_paired_by_seed(web, user):
    sweep = Sweep.objects.create(owner=user, name="compared")
    shared = factories.launch_request(user)
    gained = {("gspo", 0): 0.4, ("gspo", 1): 0.5, ("hacpo", 0): 0.6, ("hacpo", 1): 0.75}
    for (algorithm, seed), accuracy in gained.items():
        run = factories.launch(user, {**shared, "algorithm": {"name": algorithm}, "seed": seed}, sweep=sweep)
        complete(run, {"A": (0.2, accuracy), "B": (0.2, accuracy)})
    for page in (reverse("leaderboard:index"), sweep.get_absolute_url()):
        html = text_of(web.get(page))
        row = html[html.index('data-algorithm="hacpo"') :]
        assert "+0.225" in row[: row.index("</tr>")]  # ((.6 - .4) + (.75 - .5)) / 2
        assert "0.675" in row[: row.index("</tr>")]  # (.6 + .75) / 2
    figure = json.loads(re.search(r'id="pareto-\w+" type="application/json">(.*?)</script>', html, re.DOTALL)[1])
    assert figure["data"][0]["name"] == "hacpo"


def test_components_are_for_staff(client, db, web):
    assert web.get(reverse("runs:components")).status_code == 404
    client.force_login(factories.make_user(is_staff=True))
    assert client.get(reverse("runs:components")).status_code == 200


def test_menu_names_the_components_only_where_pages_are_worked_on(client, db, settings):
    client.force_login(factories.make_user(is_staff=True))
    address = reverse("runs:components")
    assert address not in text_of(client.get(reverse("runs:run_list")))
    settings.DEBUG = True
    assert address in text_of(client.get(reverse("runs:run_list")))


def test_pages_hold_no_inline_script_style_or_handler(web, user):
    run = factories.make_run(user)
    complete(run, {"A": (0.2, 0.7), "B": (0.2, 0.6)})
    pages = [reverse(name) for name in EMPTY_PAGES] + [run.get_absolute_url()]
    for page in pages:
        html = text_of(web.get(page))
        scripts = re.findall(r"<script([^>]*)>", html)
        assert all("src=" in attributes or 'type="application/json"' in attributes for attributes in scripts), page
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", html), page
        assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", html), page


def test_unknown_address_is_a_page_and_not_a_traceback(web):
    response = web.get("/no/such/page")
    assert response.status_code == 404
    assert "Go to the home page" in text_of(response)


def test_form_without_its_token_says_so(user):
    from django.test import Client

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    response = strict.post(reverse("runs:run_create"), {"name": "x"})
    assert response.status_code == 403
    assert "This form has expired" in text_of(response)


def test_stop_button_rings_the_bell_as_the_api_does(web, user, monkeypatch):
    rung = []
    for module in ("control_views", "api"):
        monkeypatch.setattr(f"hacrl_web.runs.{module}.ring_bell", rung.append)
    for path in ("/runs/{}/stop", "/api/v1/runs/{}/stop"):
        run = factories.make_run(user)
        web.post(path.format(run.pk))
        assert rung.pop() == run.pk


def test_number_in_the_header_is_what_its_link_shows(web, user):
    for state in ("queued", "starting", "running", "running", "paused"):
        Run.objects.filter(pk=factories.make_run(user).pk).update(state=state)
    html = text_of(web.get("/runs/"))
    shown = re.search(r'class="top-running" href="([^"]+)".*?<strong[^>]*>(\d+)</strong>', html)
    assert shown.group(2) == "3"  # a run that is starting is under way too
    assert web.get(shown.group(1)).context["page"].paginator.count == 3
