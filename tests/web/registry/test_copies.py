"""Copies of groups and benchmarks: what they change is new, and what runs refer to stays as it was."""

from __future__ import annotations

import pytest

from hacrl_web.registry.agent_groups import service as groups
from hacrl_web.registry.benchmarks.service import create_benchmark
from hacrl_web.registry.models import AgentGroup, Benchmark
from tests.support.web.factories import make_group, make_run, make_user
from tests.support.web.registry_help import QUESTIONS, jsonl

pytestmark = pytest.mark.django_db


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


def test_each_copy_is_a_newer_version_of_what_it_was_copied_from(client, owner):
    group = make_group(owner)
    path = f"/api/v1/groups/{group.pk}/copy"
    second = client.post(path, {"name": "second"}, content_type="application/json").json()
    assert (second["edit_of"], client.get(f"/api/v1/groups/{group.pk}").json()["edit_of"]) == (group.pk, None)
    model = group.agents.first().model_id
    client.post("/groups/new", {"name": "third", "copy_of": second["id"], "agents-0-model": model})
    assert AgentGroup.objects.get(name="third").edit_of_id == second["id"]

    first = create_benchmark(owner, file=jsonl(QUESTIONS), name="sums")
    path = f"/api/v1/benchmarks/{first.pk}/copy"
    answer = client.post(path, {"name": "boxed"}, content_type="application/json").json()
    assert (answer["edit_of"], first.edit_of_id) == (first.pk, None)
    page = client.post(f"/benchmarks/{first.pk}/copy")
    fields = {"name": "by form", "question_field": "question", "answer_field": "answer", "verifier": "math"}
    client.post(page["Location"].partition("?")[0], fields | {"answer_extraction": "as_is", "extraction": "strict"})
    assert set(first.edits.values_list("name", flat=True)) == {"boxed", "by form"}


def test_copy_into_another_project_is_no_version(owner):
    group = make_group(owner)
    foreign = make_group(make_user())
    agents = [{"model": group.agents.first().model_id}]
    assert groups.create_group(owner, name="mine", agents=agents, edit_of=foreign).edit_of is None


@pytest.mark.parametrize(("section", "rows"), [("groups", AgentGroup), ("benchmarks", Benchmark)])
def test_list_shows_the_newest_version_and_a_link_to_its_earlier_ones(client, owner, section, rows):
    versions = [rows.objects.create(owner=owner, name="version 1")]
    for number in (2, 3):
        versions.append(rows.objects.create(owner=owner, name=f"version {number}", edit_of=versions[-1]))
    rows.objects.create(owner=owner, name="alone")
    newest = client.get(f"/{section}/")
    assert [(row.name, row.num_earlier) for row in newest.context["page"]] == [("alone", 0), ("version 3", 2)]
    link = f"?versions_of={versions[2].pk}"
    assert f'href="{link}">2 earlier versions</a>' in newest.content.decode()
    assert [row.name for row in client.get(f"/{section}/{link}").context["page"]] == [
        "version 3", "version 2", "version 1",
    ]  # fmt: skip
    assert client.get(f"/{section}/?versions_of=999999").status_code == 404
    versions[1].delete()  # the first is again the newest of its own line
    assert [row.name for row in client.get(f"/{section}/").context["page"]] == ["alone", "version 3", "version 1"]


def test_page_names_the_versions_before_and_after(client, owner):
    group, benchmark = make_group(owner), create_benchmark(owner, file=jsonl(QUESTIONS), name="sums")
    for row in (group, benchmark):
        newer = type(row).objects.create(owner=owner, name="newer", edit_of=row)
        assert f'Newer versions: <a href="{newer.get_absolute_url()}">newer</a>' in page_at(client, row)
        assert "Edited from" not in page_at(client, row)
        assert f'Edited from <a href="{row.get_absolute_url()}">{row.name}</a>' in page_at(client, newer)


def page_at(client, row) -> str:
    return client.get(row.get_absolute_url()).content.decode()
