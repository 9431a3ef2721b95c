"""Several training sets with weights: API, form, sweeps, drafts, files, boards and the Rollouts tab."""

import json

import pytest
import yaml

from hacrl_web.insight.run_tabs.views import as_yaml
from hacrl_web.leaderboard.board.rows import rows
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.launch import again
from hacrl_web.runs.launch import launch as launch_module
from hacrl_web.runs.launch.again import cannot_repeat, request_of, retry
from hacrl_web.runs.launch.launch import launch, launch_sweep, queue_draft
from hacrl_web.runs.launch.plan import LaunchError, named_request, plan_of
from hacrl_web.runs.models import Run, State, Sweep
from hacrl_web.runs.telemetry.tables import insert
from tests.support.web.factories import launch_request, make_benchmark, make_user
from tests.web.client.test_client import hacrl as hacrl  # its fixture

pytestmark = pytest.mark.django_db
TRAINING = {"steps": 5, "train_batch_size": 4, "mini_batch_size": 4}
FIELD = "training.benchmarks"


@pytest.fixture
def words(user):
    """A further benchmark with a verifier of its own."""
    row = make_benchmark(user)
    Benchmark.objects.filter(pk=row.pk).update(
        name="words", train_path="/data/words.jsonl", verifier="choice", prompt_template="Choose: {question}"
    )
    row.refresh_from_db()
    return row


def request_with(user, *sets, **training):
    return launch_request(user, training={**TRAINING, "benchmarks": list(sets), **training})


def sets_of(run: Run) -> list[tuple]:
    return [(one["benchmark"], one["weight"], one["verifier"]) for one in run.spec["training"]["benchmarks"]]


def post(web, request):
    return web.post("/api/v1/runs", json.dumps(request), content_type="application/json")


def test_request_names_sets_by_id_and_weight_and_the_run_has_them_in_full(web, user, words):
    answer = post(web, request_with(user, {"benchmark": words.pk, "weight": 3}))
    assert answer.status_code == 201, answer.content
    run = Run.objects.get()
    assert sets_of(run) == [("words", 3.0, "choice")]
    assert run.spec["training"]["benchmarks"][0]["prompt_template"] == "Choose: {question}"
    assert request_of(user, run)["training"]["benchmarks"] == [{"benchmark": words.pk, "weight": 3.0}]
    assert post(web, request_with(user, words.pk)).status_code == 201  # a plain id has weight 1
    assert sets_of(Run.objects.latest("created_at")) == [("words", 1.0, "choice")]


@pytest.mark.parametrize(
    ("entry", "field", "said"),
    [
        ({"benchmark": 10**12}, FIELD, "There is no such benchmark."),
        ({"benchmark": True}, FIELD, "There is no such benchmark."),
        ({"weight": 1}, FIELD, "Choose a benchmark."),
        ({"benchmark": "WORDS", "train_path": "/etc/passwd"}, FIELD, "a benchmark and a weight, no 'train_path'."),
        ({"benchmark": "WORDS", "weight": 0}, f"{FIELD}.0.weight", "greater than 0"),
        ({"benchmark": "WORDS", "weight": "NaN"}, f"{FIELD}.0.weight", "finite"),
        ({"benchmark": "WORDS", "weight": [1]}, f"{FIELD}.0.weight", "number"),
    ],
)
def test_set_that_cannot_be_used_is_refused_at_its_field(web, user, words, entry, field, said):
    entry = {key: words.pk if value == "WORDS" else value for key, value in entry.items()}
    answer = post(web, request_with(user, entry))
    assert answer.status_code == 422
    errors = [(error["field"], error["message"]) for error in answer.json()["errors"]]
    assert any(at == field and said in message for at, message in errors), errors
    assert not Run.objects.exists()


def test_sets_of_others_and_too_many_are_refused(web, user, words):
    foreign = make_benchmark(make_user())
    assert post(web, request_with(user, foreign.pk)).json()["error"]["field"] == FIELD
    many = post(web, request_with(user, *[words.pk] * 21)).json()["errors"]
    assert "At most 20 further training sets." in [one["message"] for one in many]
    [twice] = post(web, request_with(user, words.pk, words.pk)).json()["errors"]
    assert "'words' is listed twice" in twice["message"]


def test_set_with_fewer_questions_than_its_share_of_a_batch_is_refused(user, words):
    Benchmark.objects.filter(pk=words.pk).update(num_train=2)
    launch(user, request_with(user, words.pk))  # two of four prompts
    with pytest.raises(LaunchError) as refused:
        launch(user, request_with(user, {"benchmark": words.pk, "weight": 2}))
    [error] = refused.value.errors
    assert (error.code, error.field) == ("too_few_questions", FIELD)
    assert error.message == (
        "words has 2 training questions, and by its weight a batch of 4 takes 3 of them: lower its weight or "
        "train_batch_size."
    )


def test_evaluated_set_that_holds_no_question_out_is_refused(web, user, words):
    Benchmark.objects.filter(pk=words.pk).update(held_out_fraction=0)
    request = request_with(user, words.pk) | {"evaluation": {"benchmarks": [words.pk]}}
    [error] = post(web, request).json()["errors"]
    assert error["field"] == "evaluation"
    assert error["message"].startswith(
        "Benchmarks: 'words' is a training set and would be evaluated on all of its questions, those that are trained "
        "on: give it held-out questions"
    )
    assert not Run.objects.exists()
    Benchmark.objects.filter(pk=words.pk).update(held_out_fraction=0.1)
    assert post(web, request).status_code == 201


def deleting(words, function):
    """The function, after which the benchmark is deleted by somebody else."""

    def acting(*arguments):
        result = function(*arguments)
        Benchmark.objects.filter(pk=words.pk).delete()
        return result

    return acting


@pytest.mark.parametrize("section", ["training", "evaluation"])
def test_benchmark_that_is_deleted_after_planning_leaves_no_run(monkeypatch, user, words, section):
    request = request_with(user, words.pk) if section == "training" else launch_request(user)
    request |= {"evaluation": {"benchmarks": [words.pk]}} if section == "evaluation" else {}
    monkeypatch.setattr(launch_module, "plan_of", deleting(words, launch_module.plan_of))
    with pytest.raises(LaunchError) as refused:
        launch(user, request)
    [error] = refused.value.errors
    assert (error.code, error.field) == ("not_found", f"{section}.benchmarks")
    assert error.message == "Benchmark words was deleted just now."
    assert not Run.objects.exists()


def test_set_that_is_deleted_while_a_draft_is_queued_or_a_run_retried_leaves_no_queued_run(monkeypatch, user, words):
    draft = launch(user, request_with(user, words.pk) | {"draft": True})
    run = launch(user, request_with(user, words.pk))
    Run.objects.filter(pk=run.pk).update(state=State.FAILED)
    run.refresh_from_db()
    with monkeypatch.context() as patch:
        patch.setattr(launch_module, "plan_of", deleting(words, launch_module.plan_of))
        with pytest.raises(LaunchError, match="Benchmark words was deleted just now"):
            queue_draft(user, draft)
    assert Benchmark.objects.filter(pk=words.pk).exists()  # refused with its whole transaction, the deletion too
    monkeypatch.setattr(again, "cannot_repeat", deleting(words, cannot_repeat))
    with pytest.raises(LaunchError, match="The training set “words” of complete was deleted"):
        retry(user, run)
    assert not Run.objects.filter(state=State.QUEUED).exists()


def test_form_sends_weights_and_shows_those_of_a_clone(web, user, words):
    request = launch_request(user)
    form = {key: request[key] for key in ("name", "group", "benchmark", "seed")} | {"algorithm.name": "gspo"}
    form |= {f"training.{name}": value for name, value in TRAINING.items()}
    other = make_benchmark(user)
    answer = web.post("/runs/new", form | {f"{FIELD}.{words.pk}": "2.5", f"{FIELD}.{other.pk}": ""})
    assert answer.status_code == 302, answer.content.decode()[:2000]
    run = Run.objects.get()
    assert sets_of(run) == [("words", 2.5, "choice")]
    shown = web.get(f"/runs/new?clone={run.pk}").content.decode()
    assert f'name="training.benchmarks.{words.pk}" value="2.5"' in shown
    assert f'name="training.benchmarks.{other.pk}" value=""' in shown
    refused = web.post("/runs/new", form | {f"{FIELD}.{words.pk}": "-1", f"{FIELD}.x": "1"})
    assert refused.status_code == 422
    page = refused.content.decode()
    assert f'name="training.benchmarks.{words.pk}" value="-1"' in page
    assert "greater than 0" in page or "There is no such benchmark" in page


def test_sweep_trains_on_the_sets_in_every_run_and_its_file_names_them(user, words):
    request = request_with(user, {"benchmark": words.pk, "weight": 2})
    del request["algorithm"], request["seed"]
    request |= {"algorithms": ["hacpo", "gspo"], "seeds": [0, 1]}
    file = named_request(plan_of(user, request, Sweep))
    assert file["training"]["benchmarks"] == [{"benchmark": "words", "weight": 2.0}]
    sweep = launch_sweep(user, request)
    assert [sets_of(run) for run in Run.objects.all()] == [[("words", 2.0, "choice")]] * 4
    assert sweep.request["training"]["benchmarks"] == [{"benchmark": words.pk, "weight": 2.0}]
    plan_of(user, sweep.request, Sweep)  # a stored request is read again


def test_deleted_set_is_in_the_request_of_its_run_which_is_refused_and_named(web, user, words):
    run = launch(user, request_with(user, {"benchmark": words.pk, "weight": 2}))
    Benchmark.objects.filter(pk=words.pk).delete()
    request = web.get(f"/api/v1/runs/{run.pk}/request").json()
    assert request["training"]["benchmarks"] == [{"benchmark": None, "name": "words", "weight": 2.0}]
    answer = post(web, request)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["code"], error["field"]) == ("benchmark_deleted", FIELD)
    assert error["message"].startswith("The training set “words” was deleted: ")


def test_form_of_a_clone_names_its_deleted_set_and_takes_no_other_of_that_name(web, user, words):
    run = launch(user, request_with(user, words.pk))
    renamed = Benchmark.objects.get(pk=words.pk)
    Benchmark.objects.filter(pk=words.pk).update(name="renamed")
    page = web.get(f"/runs/new?clone={run.pk}").content.decode()
    assert f'name="training.benchmarks.{words.pk}" value="1.0"' in page
    assert "is not among these benchmarks" not in page
    renamed.delete()
    other = make_benchmark(user)
    Benchmark.objects.filter(pk=other.pk).update(name="words")
    page = web.get(f"/runs/new?clone={run.pk}").content.decode()
    assert f'name="training.benchmarks.{other.pk}" value=""' in page
    assert "The training set “words” is not among these benchmarks" in page
    Benchmark.objects.exclude(pk=run.benchmark_id).delete()
    page = web.get(f"/runs/new?clone={run.pk}").content.decode()
    assert "The training set “words” is not among these benchmarks" in page, "also where one benchmark is left"


def test_sets_of_the_same_questions_are_refused_before_the_queue(web, user, words):
    request = request_with(user, words.pk)
    own = Benchmark.objects.get(pk=request["benchmark"])
    Benchmark.objects.update(questions_sha="a" * 64)
    for answer in (post(web, request), web.post("/api/v1/runs/estimate", request, content_type="application/json")):
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert (error["code"], error["field"]) == ("same_questions", FIELD)
        assert error["message"] == (
            f"“words” has the same questions as “{own.name}”, and each is trained on once: remove one."
        )
    Benchmark.objects.filter(pk=words.pk).update(questions_sha="b" * 64)
    assert post(web, request).status_code == 201


@pytest.mark.parametrize("value", ["3", 3, {}, None])
def test_what_is_no_list_of_sets_is_refused_in_plain_words(web, user, value):
    training = {**TRAINING, "benchmarks": value}
    [error] = post(web, launch_request(user, training=training)).json()["errors"]
    assert error["field"] == FIELD
    assert error["message"].startswith("Must be a list.")


def test_grid_over_the_weight_of_the_only_benchmark_is_refused(user, words):
    request = request_with(user, words.pk)
    del request["algorithm"], request["seed"]
    request |= {"algorithms": ["gspo"], "seeds": [0], "grid": {"training.benchmark_weight": [1, 2]}}
    assert len(plan_of(user, request, Sweep).runs) == 2
    with pytest.raises(LaunchError) as refused:
        plan_of(user, request | {"training": TRAINING}, Sweep)
    assert [(one.code, one.field) for one in refused.value.errors] == [("unused", "grid.training.benchmark_weight")]


def test_settings_file_of_a_run_is_launched_again(hacrl, user, words, tmp_path):
    run = launch(user, request_with(user, {"benchmark": words.pk, "weight": 2}))
    file = tmp_path / "run.yaml"
    file.write_text(as_yaml(run))
    hacrl("launch", str(file), "--name", "again")
    assert sets_of(Run.objects.get(name="again")) == [("words", 2.0, "choice")]
    request = request_with(user, {"benchmark": "words", "weight": 4}) | {"name": "by name"}
    file.write_text(yaml.safe_dump(request))
    hacrl("launch", str(file))
    assert sets_of(Run.objects.get(name="by name")) == [("words", 4.0, "choice")]


def test_board_parts_runs_by_the_shares_of_their_sets(user, words):
    request = request_with(user, {"benchmark": words.pk, "weight": 2}, benchmark_weight=6)
    name = Benchmark.objects.get(pk=request["benchmark"]).name
    same = request | {"training": {**TRAINING, "benchmarks": [{"benchmark": words.pk, "weight": 1}]}, "seed": 2}
    same["training"]["benchmark_weight"] = 3
    plain = request | {"training": TRAINING, "seed": 3}
    runs = [launch(user, one) for one in (request, same, plain)]
    first, second = rows(runs)
    assert (first.num_planned, second.num_planned) == (2, 1)
    assert first.distinctions["training.benchmarks"] == f"{name} 75%, words 25%"


def test_alpha_parts_no_rows_of_agents_without_lora(user):
    def row_count(rank: int) -> int:
        runs = []
        for alpha in (16, 32):
            agents = {name: {"lora_alpha": alpha, "lora_rank": rank} for name in "AB"}
            runs.append(launch(user, request | {"agents": agents, "confirm": ["lora_learning_rate"]}))
        return len(rows(runs))

    request = launch_request(user, training={**TRAINING, "learning_rate": 1e-5})
    assert row_count(0) == 1
    assert row_count(8) == 2


def test_rollouts_are_found_by_their_set(web, user, words):
    run = launch(user, request_with(user, words.pk))
    common = {"attempt": 1, "step": 1, "sample": 0, "answer": "1", "reward": 1.0, "finish_reason": "stop"}
    common |= {"num_tokens": 1, "mean_logp": -1.0}
    rollouts = [
        {"type": "rollout", "seq": seq, "agent": "A", "prompt_id": f"p{seq}", "prompt": f"{name}?", "completion": "1",
         "benchmark": name, **common}
        for seq, name in enumerate(("own", "words", "words"), start=1)
    ]  # fmt: skip
    insert(run.pk, rollouts)
    answer = web.get(f"/api/v1/runs/{run.pk}/rollouts?set=words").json()
    assert [one["prompt_id"] for one in answer["items"]] == ["p2", "p3"]
    page = web.get(f"/runs/{run.pk}/rollouts?query=set:own&list=rollouts", follow=True).content.decode()
    assert "own?" in page
    assert "words?" not in page
    table = web.get(f"/api/v1/runs/{run.pk}/export/rollouts.jsonl")
    lines = [json.loads(line) for line in b"".join(table.streaming_content).splitlines()]
    assert [one["benchmark"] for one in lines] == ["own", "words", "words"]
