"""Reward functions are registered by those who may, tried out, versioned, and named by runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from hacrl_web.registry.models import Benchmark, RewardFunction
from hacrl_web.registry.rewards.service import register_source, update_source
from hacrl_web.runs.launch.check import data_values
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors
from tests.support.web import factories
from tests.support.web.leaderboard_help import finish, sweep_of, table_of
from tests.support.web.page_text import text_of
from workers.contract.spec.data import DataSpec

STEPS = "def reward(question, answer, response, **fields):\n    return 0.5 if answer in response else 0.25\n"
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("forked_children")]


@pytest.fixture(autouse=True)
def _own_folder(settings, tmp_path):
    settings.REWARD_FUNCTIONS_DIR = tmp_path
    settings.REWARD_AUTHORS = "members"


@pytest.fixture
def function(user) -> RewardFunction:
    return register_source(user, RewardFunction, name="steps", content=STEPS)


def test_page_registers_shows_and_tries_a_function(web, user):
    page = web.post(reverse("registry:function_create"), {"name": "steps", "source": STEPS})
    row = RewardFunction.objects.get()
    assert (page.status_code, page["Location"]) == (302, row.get_absolute_url())
    assert row.path.read_text() == STEPS
    shown = text_of(web.get(row.get_absolute_url()))
    assert row.version in shown
    assert re.search(r"here behind (Bubblewrap, )?Landlock and seccomp", shown)  # it was loaded when it was registered
    answer = {"question": "1+1=", "gold": "2", "response": "it is 2"}
    html = text_of(web.post(reverse("registry:function_try", args=[row.pk]), answer))
    assert re.search(r"<dt>Reward</dt><dd><strong>[^/]*>0\.500?<", html)
    assert "steps" in text_of(web.get(reverse("registry:function_list")))


def test_real_questions_show_what_a_correct_answer_and_none_are_paid(web, user, function):
    benchmark = factories.make_benchmark(user)
    benchmark.sample = [{"question": "1+1=", "answer": "2"}, {"question": "2+2=", "answer": "4"}]
    benchmark.save()
    html = text_of(web.get(function.get_absolute_url(), {"benchmark": benchmark.pk}))
    assert len(re.findall(r'title="0.5">0\.500</span></td>\s*<td class="number"><span title="0.25">0\.250<', html)) == 2
    path = f"/api/v1/reward-functions/{function.pk}/questions"
    rows = web.get(path, {"benchmark": benchmark.pk}).json()
    assert [(row["answer"], row["correct"]["reward"], row["none"]["reward"]) for row in rows] == [
        ("2", 0.5, 0.25),
        ("4", 0.5, 0.25),
    ]


def test_api_registers_changes_tries_and_deletes(web, user):
    body = {"name": "steps", "source": STEPS}
    made = web.post("/api/v1/reward-functions", body, content_type="application/json")
    assert made.status_code == 201
    path = f"/api/v1/reward-functions/{made.json()['id']}"
    changed = web.put(path, {"source": STEPS.replace("0.25", "0")}, content_type="application/json").json()
    assert changed["version"] != made.json()["version"]
    assert [one.version for one in RewardFunction.objects.get().versions.all()] == [
        changed["version"],
        made.json()["version"],
    ]
    tried = web.post(f"{path}/try", {"gold": "2", "response": "3"}, content_type="application/json").json()
    assert (tried["reward"], tried["version"]) == (0.0, changed["version"])
    assert tried["sandbox"].endswith("Landlock and seccomp")
    assert web.delete(path).status_code == 204
    assert not RewardFunction.objects.exists()


@pytest.mark.parametrize(
    ("name", "source", "reason"),
    [
        ("Steps", STEPS, "Use small letters, digits and _"),
        ("../x", STEPS, "Use small letters, digits and _"),
        ("steps", "x = 1", "It defines no function"),
        ("steps", "def score(a, b): return 1", "It defines score(a, b), but no function `reward`"),
        ("steps", STEPS.replace("0.25", "-1"), "It returns -1 in line 2, but a reward is a number from 0 to 1"),
        (
            "steps",
            "def f(completions, **kw):\n    return [1 / len(completions)] * len(completions)\n",
            "each response is rewarded alone",
        ),
        ("steps", "def reward(:", "No Python"),
        ("steps", "import nowhere_to_be_found\n" + STEPS, "ModuleNotFoundError in line 1"),
        ("steps", "NETWORK = 'mlp'\n" + STEPS, "NETWORK must be True or False (line 1)"),
        ("steps", "", "Write the function."),
    ],
)
def test_what_is_no_function_is_refused_with_the_reason(web, user, name, source, reason):
    page = web.post(reverse("registry:function_create"), {"name": name, "source": source})
    assert page.status_code == 422
    field = "source" if name == "steps" else "name"
    assert reason in text_of(page).split(f'id="{field}-error"')[1].split("</div>")[0]  # beside its field
    assert not RewardFunction.objects.exists()


def test_failing_try_out_names_the_line(web, user, function):
    update_source(user, function, STEPS.replace("return", "return 1 / 0 or"))
    page = web.post(reverse("registry:function_try", args=[function.pk]), {"response": "x"})
    assert "ZeroDivisionError in line 2" in text_of(page)


@pytest.mark.parametrize(
    ("authors", "may"), [("staff", ()), ("admins", ("admin",)), ("members", ("admin", "member")), ("all", ())]
)
def test_only_those_may_register_code_whom_the_operator_lets(settings, client, user, function, authors, may):
    settings.REWARD_AUTHORS = authors
    for role in ("admin", "member", "viewer"):
        client.force_login(factories.make_member(function.project, role))
        body = {"name": f"of_{role}", "source": STEPS}
        answer = client.post("/api/v1/reward-functions", body, content_type="application/json")
        path = f"/api/v1/reward-functions/{function.pk}"
        change = client.put(path, {"source": STEPS + f"# {role}\n"}, content_type="application/json")
        assert (change.status_code == 200) == (role in may), (role, change.content)
        if role != "viewer":  # who may be an admin elsewhere
            assert client.get(path).status_code == 200
        assert answer.status_code in ((201, 403) if role in may else (403,))


NETWORK = "NETWORK = True\n" + STEPS


def test_function_may_ask_for_the_network_only_where_the_operator_allows_it(web, user, settings, monkeypatch):
    body = {"name": "remote", "source": NETWORK}
    refused = web.post("/api/v1/reward-functions", body, content_type="application/json")
    assert refused.status_code == 422
    assert "HACRL_REWARD_NETWORK" in refused.content.decode()
    settings.REWARD_NETWORK = True
    monkeypatch.setenv("HACRL_REWARD_NETWORK", "1")
    made = web.post("/api/v1/reward-functions", body, content_type="application/json").json()
    assert made["uses_network"] is True
    row = RewardFunction.objects.get()
    assert "runs that use it cannot be repeated exactly" in text_of(web.get(row.get_absolute_url()))
    assert ">network<" in text_of(web.get(reverse("registry:function_list")))
    update_source(user, row, STEPS)
    assert web.get(f"/api/v1/reward-functions/{row.pk}").json()["uses_network"] is False
    monkeypatch.delenv("HACRL_REWARD_NETWORK")  # another host, or a change of mind: a call is refused as well
    settings.REWARD_NETWORK = True
    with pytest.raises(FieldErrors, match="which is allowed only where the operator sets HACRL_REWARD_NETWORK=1"):
        update_source(user, row, NETWORK)


def test_run_and_board_say_that_a_function_could_use_the_network(web, user, function):
    sweep = sweep_of(user, ["gspo", "hacpo"], [1])
    for run in sweep.runs.all():
        if run.algorithm == "hacpo":
            run.spec["data"] |= {"verifier": "function", "reward_function": "/functions/1/remote.py"}
            run.save()
            payload = {"versions": {"hacrl": "1", "network": "function/remote@0123456789ab"}}
            run.events.create(type="started", payload=payload, seq=1, attempt=1, time=1.0)
            run.events.create(type="started", payload={"versions": {"hacrl": "1"}}, seq=2, attempt=2, time=2.0)
        finish(run, {"A": 0.9, "B": 0.2})
    used, plain = sweep.runs.get(algorithm="hacpo"), sweep.runs.get(algorithm="gspo")
    assert "could use the network" in text_of(web.get(used.get_absolute_url()))
    assert "could use the network" not in text_of(web.get(plain.get_absolute_url()))
    named = [web.get(f"/api/v1/runs/{run.pk}").json()["network_functions"] for run in (used, plain)]
    assert named == [["function/remote@0123456789ab"], []]
    table = table_of(sweep)
    rows = {group.row.algorithm: group.row.network for group in table.groups}
    assert rows == {"gspo": [], "hacpo": ["function/remote@0123456789ab"]}
    html = text_of(web.get(sweep.get_absolute_url()))
    assert "network: not repeatable exactly" in html


def test_staff_may_always(settings):
    settings.REWARD_AUTHORS = "staff"
    assert register_source(factories.make_user(is_staff=True), RewardFunction, name="steps", content=STEPS).version
    with pytest.raises(FieldErrors, match="only staff may register them"):
        register_source(factories.make_user(), RewardFunction, name="steps", content=STEPS)


def test_run_names_a_function_and_trains_with_its_file(web, user, function):
    request = factories.launch_request(user, name="paid")
    request["rewards"] = {"terms": "function steps = 0.5"}
    answer = web.post("/api/v1/runs", request, content_type="application/json")
    assert answer.status_code == 201, answer.content
    [term] = Run.objects.get().spec["rewards"]["terms"]
    assert (term["function"], term["weight"]) == (str(function.path), 0.5)
    assert Path(term["function"]).read_text() == STEPS
    again = web.get(f"/api/v1/runs/{Run.objects.get().pk}/request").json()
    assert again["rewards"]["terms"][0]["function"] == "steps"


def test_run_that_would_pause_at_its_first_step_is_not_queued(web, user, function):
    """The function was registered, and fails on the questions: a range that only a call shows."""
    update_source(user, function, STEPS.replace("return", "bonus = 2 * len(answer)\n    return bonus or"))
    request = factories.launch_request(user, name="paid")
    request["rewards"] = {"terms": "function steps = 0.5"}
    benchmark = Benchmark.objects.get(pk=request["benchmark"])
    benchmark.sample = [{"question": "1+1=", "answer": "2"}]
    benchmark.save()
    answer = web.post("/api/v1/runs", request, content_type="application/json")
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["code"], error["field"]) == ("reward_fails", "rewards.terms")
    assert "it returned 2: a reward is a number from 0 to 1" in error["message"]
    assert "resume the run" not in error["message"]
    assert not Run.objects.exists()


def test_function_of_another_project_is_not_there(web, user):
    other = factories.make_user()
    register_source(other, RewardFunction, name="secret", content=STEPS)
    request = factories.launch_request(user, name="paid")
    request["rewards"] = {"terms": [{"name": "a", "function": "secret"}]}
    answer = web.post("/api/v1/runs", request, content_type="application/json")
    assert answer.status_code == 422
    assert "There is no reward function 'secret'." in answer.content.decode()


def test_benchmark_can_be_verified_by_a_function(web, user, function):
    file = SimpleUploadedFile(
        "sums.jsonl", b'{"question": "1+1=", "answer": "2"}\n{"question": "2+2=", "answer": "4"}\n'
    )
    fields = {"name": "sums", "verifier": "function", "reward_function": "steps", "held_out_fraction": "0.5"}
    answer = web.post("/api/v1/benchmarks", {**fields, "file": file})
    assert answer.status_code == 201, answer.content
    benchmark = Benchmark.objects.get(pk=answer.json()["id"])
    assert benchmark.reward_function == function
    assert data_values(benchmark)["reward_function"] == str(function.path)
    assert DataSpec.model_validate(data_values(benchmark)).verifier == "function"
    body = {"gold": "2", "response": "it is 2"}
    verdict = web.post(f"/api/v1/benchmarks/{benchmark.pk}/try", body, content_type="application/json").json()
    assert (verdict["reward"], verdict["extracted"]) == (0.5, None)
    assert "function: steps, version" in text_of(web.get(benchmark.get_absolute_url()))
    assert web.delete(f"/api/v1/reward-functions/{function.pk}").status_code == 409


@pytest.mark.parametrize("fields", [{"verifier": "function"}, {"verifier": "math", "reward_function": "steps"}])
def test_function_and_verifier_belong_together(web, user, function, fields):
    file = SimpleUploadedFile("sums.jsonl", b'{"question": "1+1=", "answer": "2"}\n')
    answer = web.post("/api/v1/benchmarks", {"name": "sums", **fields, "file": file})
    assert answer.status_code in (404, 422)
    assert "reward_function" in answer.content.decode()
