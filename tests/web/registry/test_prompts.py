"""Ready prompts, the thinking switch, and the page and API of what each agent reads."""

import json
from pathlib import Path

import pytest
import yaml

from hacrl_web.registry.base.children import PREVIEWER, ChildResult
from hacrl_web.registry.benchmarks.ready_prompts import READY_PROMPTS, ready_key
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark
from hacrl_web.runs.launch.again import request_of
from hacrl_web.runs.launch.launch import launch
from tests.support.web.factories import launch_request, make_group, make_model
from tests.support.web.registry_help import field_error, jsonl
from workers.contract.spec.run import RunSpec
from workers.verifiers.scoring.service import Verifier

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("forked_children")]
JSON = {"content_type": "application/json"}
MAPPED = {"name": "sums", "verifier": "exact", "held_out_fraction": "0.2"}
READY = {one.key: one for one in READY_PROMPTS}
# An answer in the form that each ready prompt asks for, and its reference.
GENERATORS = Path(__file__).resolve().parents[2] / "support" / "workers" / "generators"  # a stand-in of reasoning-gym
ANSWERS = {
    "boxed": ("3 + 14 = 17, so the answer is \\boxed{17}.", "17"),
    "numeric": ("3 + 14 = 17. The answer is 17.", "17"),
    "choice": ("(A) is too small. The answer is B.", "B"),
    "countdown": ("3 and 14 make it: \\boxed{3+14=17}", "3 14 = 17"),
    "code": ("```python\ndef f():\n    return 17\n```", "assert f() == 17"),
    "tags": ("So <answer>17</answer>", '{"answer": "17", "generator": "chain_sum", "metadata": {}}'),
}


@pytest.fixture
def benchmark(client, owner, folder):
    answer = client.post("/api/v1/benchmarks", MAPPED | {"file": jsonl(), "ready_prompt": "numeric"})
    return Benchmark.objects.get(pk=answer.json()["id"])


# Ready prompts


@pytest.mark.parametrize("key", ANSWERS)
def test_the_verifiers_of_a_ready_prompt_read_what_it_asks_for(key, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(GENERATORS))
    response, gold = ANSWERS[key]
    for kind in READY[key].verifiers:
        with Verifier(kind) as verifier:
            [right, wrong] = verifier.score([response, response.replace("17", "18").replace("B.", "C.")], [gold, gold])
        assert (right.reward, wrong.reward) == (1.0, 0.0), kind


def test_api_lists_ready_prompts_and_each_makes_a_benchmark_with_its_texts(client, owner, folder):
    listed = client.get("/api/v1/benchmarks/ready-prompts").json()
    assert [one["key"] for one in listed] == ["boxed", "numeric", "choice", "code", "countdown", "tags", "bare"]
    for one in listed:
        fields = MAPPED | {"name": one["key"], "ready_prompt": one["key"], "file": jsonl()}
        made = client.post("/api/v1/benchmarks", fields).json()
        assert (made["prompt_template"], made["system_prompt"]) == (one["prompt_template"], one["system_prompt"])
        assert ready_key(made["prompt_template"], made["system_prompt"]) == one["key"]


def test_ready_prompt_of_a_fetched_benchmark_replaces_the_suggested_one(client, owner, folder, settings, tmp_path):
    settings.MODEL_ROOTS = [tmp_path]
    place = tmp_path / "math500.jsonl"
    rows = [{"problem": f"p {n}", "answer": n, "subject": "a", "level": 1} for n in range(6)]
    place.write_bytes(jsonl(rows).read())
    body = {"built_in": "math-500", "location": str(place), "ready_prompt": "numeric"}
    made = client.post("/api/v1/benchmarks/built-in", body, **JSON).json()
    assert (made["prompt_template"], made["system_prompt"]) == ("{question}", READY["numeric"].system_prompt)
    own = {"kind": "local", "location": str(place), "name": "own", "prompt_template": "Q: {question}"}
    assert client.post("/api/v1/benchmarks/fetch", own, **JSON).json()["prompt_template"] == "Q: {question}"


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        (
            {"ready_prompt": "haiku"},
            "ready_prompt",
            "Choose one of: boxed, numeric, choice, code, countdown, tags, bare.",
        ),
        ({"ready_prompt": "boxed", "prompt_template": "Q: {question}"}, "ready_prompt", "has its own prompt_template"),
        ({"prompt_template": "{question} {topic}"}, "prompt_template", "There is no field {topic}, only {question}"),
        ({"prompt_template": "{{question}} {{hint}}"}, "prompt_template", "There is no field {hint}"),
        ({"system_prompt": "Solve {question}"}, "system_prompt", "is replaced in the prompt template only"),
        ({"system_prompt": "You are {role}."}, "system_prompt", "There is no field {role}"),
    ],
)
def test_bad_prompt_is_refused_in_one_sentence(client, owner, folder, fields, field, message):
    answer = client.post("/api/v1/benchmarks", MAPPED | {"file": jsonl()} | fields)
    [error] = answer.json()["errors"]
    assert error["field"] == field
    assert message in error["message"]
    assert not Benchmark.objects.exists()


def test_braces_of_latex_are_no_fields(client, owner, folder):
    template = '{question}\n\\boxed{answer}, $x_{max}^{ab} \\frac{num}{den}$, \\begin{align} { answer } {"answer": 1}'
    answer = client.post("/api/v1/benchmarks", MAPPED | {"file": jsonl(), "prompt_template": template})
    assert (answer.status_code, answer.json().get("prompt_template")) == (201, template)


def test_an_agents_template_with_an_unknown_field_is_refused(client, owner):
    data = {"name": "g", "agents-0-model": make_model(owner).pk, "agents-0-prompt_template": "{question} {hint}"}
    assert "There is no field {hint}" in field_error(client.post("/groups/new", data), "agents-0-prompt_template")


# The thinking switch


def thinker(owner, **facts):
    model = make_model(owner)
    model.facts |= {"has_thinking_switch": True} | facts
    model.save()
    return model


def test_thinking_is_stored_launched_cloned_and_written_as_yaml(client, owner):
    model = thinker(owner)
    body = {"name": "g", "agents": [{"model": model.pk, "name": "A", "thinking": "off"}, {"model": model.pk}]}
    made = client.post("/api/v1/groups", body, **JSON).json()
    assert [agent["thinking"] for agent in made["agents"]] == ["off", "auto"]
    assert [agent.settings for agent in Agent.objects.all()] == [{"thinking": "off"}, {}]
    run = launch(owner, launch_request(owner, group=made["id"]))
    again = launch(owner, request_of(owner, run) | {"name": "clone"})
    for spec in (RunSpec.model_validate(run.spec), RunSpec.model_validate(again.spec)):
        assert [agent.template_arguments for agent in spec.agents] == [{"enable_thinking": False}, {}]
    by_hand = yaml.safe_load(client.get(f"/api/v1/runs/{run.pk}/config.yaml").content.replace(b"'off'", b"off"))
    assert by_hand["agents"][0]["thinking"] is False  # so YAML reads the bare word
    assert RunSpec.model_validate(by_hand).agents == spec.agents
    assert "thinking" in client.get(f"/groups/{made['id']}").content.decode()


def test_form_names_the_models_that_have_the_switch(client, owner):
    model, other = thinker(owner), thinker(owner, has_thinking_switch=False)
    page = client.get("/groups/new").content.decode()
    assert f'<script id="thinking-models" type="application/json">["{model.pk}"]</script>' in page
    data = {"name": "g", "agents-0-model": other.pk, "agents-0-thinking": "on"}
    assert "has no thinking switch: choose auto" in field_error(client.post("/groups/new", data), "agents-0-thinking")
    data["agents-0-model"] = make_model(owner).pk  # registered before models were checked for it
    assert "register it again" in field_error(client.post("/groups/new", data), "agents-0-thinking")
    assert client.post("/groups/new", data | {"agents-0-thinking": ""}).status_code == 302


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"thinking": "maybe"}, "auto"),
        ({"thinking": "on", "prompt_format": "plain"}, "uses no chat template"),
        ({"thinking": "on", "chat_template_kwargs": {"enable_thinking": False}}, "sets enable_thinking too"),
    ],
)
def test_thinking_that_contradicts_another_setting_is_refused(client, owner, own, message):
    body = {"name": "g", "agents": [{"model": thinker(owner).pk, **own}]}
    [error] = client.post("/api/v1/groups", body, **JSON).json()["errors"]
    assert error["field"] == "agents.0.thinking"
    assert message in error["message"]
    assert not AgentGroup.objects.exists()


# What each agent reads


def answer_previews(monkeypatch, *agents) -> list[dict]:
    """Let the child answer this; returns what it is asked."""
    requests: list[dict] = []

    def run(arguments, stdin, memory_bytes):
        requests.append(json.loads(stdin))
        return ChildResult(json.dumps({"agents": agents}).encode(), 0, False)

    monkeypatch.setattr(PREVIEWER, "run", run)
    return requests


PIECES = [{"text": "<|im_start|>", "is_special": True}, {"text": "<b>1</b>\n", "is_special": False}]
READS = {"agent": "A", "text": "<|im_start|><b>1</b>\n", "token_ids": [5, 6], "pieces": PIECES, "notes": ["A note."]}


def test_page_shows_each_agents_tokens_as_text_and_the_api_all_of_them(client, owner, benchmark, monkeypatch):
    requests = answer_previews(monkeypatch, READS, {"agent": "B", "error": "no <tokenizer>"})
    group = make_group(owner)
    html = client.get(f"/prompts?group={group.pk}&benchmark={benchmark.pk}&number=3").content.decode()
    assert '<span class="special">&lt;|im_start|&gt;</span><span>&lt;b&gt;1&lt;/b&gt;↵\n</span></pre>' in html
    assert "2 tokens" in html
    assert "A note." in html
    assert "no &lt;tokenizer&gt;" in html
    address = f"/api/v1/groups/{group.pk}/prompts?benchmark={benchmark.pk}&line=2"
    found = client.get(address).json()
    assert found["question"]["question"] == "2+1="
    assert [one["token_ids"] for one in found["prompts"]] == [[5, 6], []]
    assert found["prompts"][0] | {"pieces": PIECES} == {**READS, "num_tokens": 2, "error": ""}
    for asked in requests:
        assert (asked["question"], asked["system"]) == ("2+1=", READY["numeric"].system_prompt)
        assert [agent["name"] for agent in asked["agents"]] == ["A", "B"]


def test_part_for_the_new_run_form_says_what_is_missing(client, owner, benchmark, monkeypatch):
    answer_previews(monkeypatch, READS, READS)
    group = make_group(owner)
    part = {"HX-Request": "true"}
    missing = client.get("/prompts?group=", headers=part).content.decode()
    assert "Choose an agent group and a benchmark first." in missing
    full = client.get(f"/prompts?group={group.pk}&benchmark={benchmark.pk}", headers=part).content.decode()
    assert full.count('class="tokens"') == 2
    assert "<html" not in full
    form = client.get("/runs/new").content.decode()
    assert 'hx-get="/prompts"' in form
    assert "data-has-system" in form
    far = client.get(f"/prompts?group={group.pk}&benchmark={benchmark.pk}&number=999")
    assert far.status_code == 422
    assert "The file has no question 999" in far.content.decode()


def test_a_model_that_takes_no_system_message_is_named_on_the_new_run_form(client, owner, benchmark):
    group = make_group(owner)
    agent = group.agents.select_related("model").first()
    agent.model.facts |= {"takes_system": False}
    agent.model.save()
    form = client.get("/runs/new").content.decode()
    assert form.count('"refuses_system": true') == 1
    Agent.objects.filter(pk=agent.pk).update(prompt_format="plain")  # it uses no chat template
    assert '"refuses_system": true' not in client.get("/runs/new").content.decode()


@pytest.mark.slow
def test_prompts_of_real_folders_are_shown(client, owner, benchmark, settings, tmp_path):
    tiny = pytest.importorskip("tests.support.workers.tiny", reason="needs the train extra: pip install '.[train]'")
    settings.MODEL_ROOTS = [tmp_path]
    folder = tiny.make_agent(tmp_path / "qwen", "qwen3")
    made = client.post("/api/v1/models", {"location": str(folder)}, **JSON).json()
    assert made["facts"]["has_thinking_switch"] is False
    group = client.post("/api/v1/groups", {"name": "g", "agents": [{"model": made["id"]}]}, **JSON).json()
    Benchmark.objects.filter(pk=benchmark.pk).update(system_prompt="", prompt_template="({question}")
    [prompt] = client.get(f"/api/v1/groups/{group['id']}/prompts?benchmark={benchmark.pk}").json()["prompts"]
    assert [piece["text"] for piece in prompt["pieces"]] == list("(0+1=")
    assert prompt["notes"] == ["The tokenizer has no chat template: the prompt is plain text."]
    assert prompt["num_tokens"] == 5
