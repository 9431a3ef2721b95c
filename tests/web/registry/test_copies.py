"""Copies of groups and benchmarks: what they change is new, and what runs refer to stays as it was."""

from __future__ import annotations

import pytest

from hacrl_web.registry.benchmarks.benchmarks import create_benchmark
from hacrl_web.registry.models import AgentGroup, Benchmark
from tests.support.web.factories import make_group, make_run, make_user
from tests.support.web.registry_help import QUESTIONS, jsonl

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(client, settings, tmp_path):
    settings.BENCHMARKS_DIR = tmp_path / "benchmarks"
    user = make_user()
    client.force_login(user)
    return user


def test_copied_group_has_the_changes_and_the_old_one_and_its_run_do_not(client, owner):
    run = make_run(owner)
    group, before = run.group, run.spec["agents"]
    body = {"name": "copy", "agents": {"A": {"lora_rank": 8, "learning_rate": 1e-5}}}
    answer = client.post(f"/api/v1/groups/{group.pk}/copy", body, content_type="application/json")
    assert answer.status_code == 201, answer.content
    copied = AgentGroup.objects.get(pk=answer.json()["id"])
    assert [(a.name, a.learning_rate, a.settings) for a in copied.agents.all()] == [
        ("A", 1e-5, {"lora_rank": 8}), ("B", None, {}),
    ]  # fmt: skip
    assert [a.model_id for a in copied.agents.all()] == [a.model_id for a in group.agents.all()]
    assert [a.settings for a in group.agents.all()] == [{}, {}]
    run.refresh_from_db()
    assert (run.group_id, run.spec["agents"]) == (group.pk, before)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x", "agents": {"A": {"lora_rank": -1}}}, "agents.A.lora_rank"),
        ({"name": "x", "agents": {"C": {}}}, "agents"),
    ],
)
def test_copy_that_no_group_can_be_is_refused(client, owner, body, field):
    group = make_group(owner)
    answer = client.post(f"/api/v1/groups/{group.pk}/copy", body, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
    assert AgentGroup.objects.count() == 1


def test_form_of_a_copy_begins_with_the_group(client, owner):
    group = make_group(owner)
    group.agents.filter(name="A").update(settings={"lora_rank": 4, "chat_template_kwargs": {"x": True}})
    page = client.get(f"/groups/new?copy_of={group.pk}").content.decode()
    assert f'value="{group.name} copy"' in page
    assert 'value="4"' in page
    assert "{&quot;x&quot;: true}" in page
    assert "which stays as it is" in page
    foreign = make_group(make_user())
    assert foreign.name not in client.get(f"/groups/new?copy_of={foreign.pk}").content.decode()


def test_copied_benchmark_has_the_same_questions_and_other_options(client, owner):
    first = create_benchmark(owner, file=jsonl(QUESTIONS), name="sums", verifier="numeric", tolerance=0.01)
    body = {"name": "boxed", "prompt_template": "Box it: {question}"}
    answer = client.post(f"/api/v1/benchmarks/{first.pk}/copy", body, content_type="application/json")
    assert answer.status_code == 201, answer.content
    second = Benchmark.objects.get(name="boxed")
    assert (second.prompt_template, second.verifier, second.tolerance) == ("Box it: {question}", "numeric", 0.01)
    assert (second.num_train, second.questions_sha) == (first.num_train, first.questions_sha)
    assert second.train_path != first.train_path
    first.refresh_from_db()
    assert first.prompt_template == "{question}"


def test_page_leads_to_the_mapping_with_the_options_of_the_benchmark(client, owner):
    first = create_benchmark(owner, file=jsonl(QUESTIONS), name="sums", verifier="numeric", held_out_fraction=0.2)
    page = client.post(f"/benchmarks/{first.pk}/copy", follow=True)
    text = page.content.decode()
    assert 'value="sums copy"' in text
    assert '<option value="numeric" selected' in text
    assert 'value="0.2"' in text


def test_benchmark_without_its_files_says_so(client, owner):
    first = create_benchmark(owner, file=jsonl(QUESTIONS), name="sums")
    Benchmark.objects.update(train_path="/none/train.jsonl")
    answer = client.post(f"/api/v1/benchmarks/{first.pk}/copy", {"name": "x"}, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_copied")
