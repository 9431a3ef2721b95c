"""Agent groups: who may be in one, what each agent may carry, and what a page says of each pair."""

import re

import pytest
from django.urls import reverse

from hacrl_web.registry.agent_groups import service as groups
from hacrl_web.registry.models import AGENT_COLORS, Agent, AgentGroup, PairInspection
from hacrl_web.web.errors import FieldErrors
from tests.support.web.registry_help import answer_inspections, field_error, make_model, make_user, written_rows

pytestmark = pytest.mark.django_db
PAIR = {
    "kind": "model",
    "reason": "Different families: qwen3 and llama.",
    "same_tokenizer": False,
    "vocabulary_overlap": 0.25,
    "length_ratio": 0.8,
    "texts": [{"text": "1+1", "lengths": [5, 4], "survives": True}],
}


@pytest.fixture
def two(ada):
    return make_model(ada, "qwen"), make_model(ada, "llama")


def post(client, *agents, name="pair"):
    data = {"name": name}
    for position, agent in enumerate(agents):
        data |= {f"agents-{position}-{field}": value for field, value in agent.items()}
    return client.post("/groups/new", data)


def test_group_without_a_name_is_named_after_its_agents(client, ada, two):
    client.force_login(ada)
    first, second = two
    post(client, {"model": first.pk}, {"model": second.pk, "name": "Solver"}, name=" ")
    assert ada.agent_groups.get().name == "qwen + Solver"


def errors_of(owner, *agents, name="pair") -> list[tuple[str | None, str]]:
    with pytest.raises(FieldErrors) as refused:
        groups.create_group(owner, name=name, agents=agents)
    assert written_rows() == owner.language_models.count(), "nothing is written"
    return [(error.field, error.code) for error in refused.value.errors]


def test_form_makes_a_group_of_agents_in_their_order(client, two):
    qwen, llama = two
    response = post(
        client,
        {"model": qwen.pk, "name": "A", "learning_rate": "4e-4", "prompt_format": "plain"},
        {"model": llama.pk, "prompt_format": "auto"},
    )
    group = AgentGroup.objects.get()
    assert response["Location"] == f"/groups/{group.pk}"
    rows = group.agents.values_list("position", "name", "model__name", "learning_rate", "prompt_format")
    assert list(rows) == [(0, "A", "qwen", 4e-4, "plain"), (1, "llama", "llama", None, "auto")]
    assert [agent.color for agent in group.agents.all()] == ["#E69F00", "#56B4E9"]


def test_rows_left_empty_are_left_out(client, two):
    post(client, {"model": ""}, {"model": two[0].pk}, {"model": "", "name": ""}, {"model": two[1].pk})
    assert list(Agent.objects.values_list("position", "name")) == [(0, "qwen"), (1, "llama")]


def test_same_model_may_stand_there_twice_under_two_names(ada, two):
    qwen, _ = two
    group = groups.create_group(ada, name="twins", agents=[{"model": qwen.pk}, {"model": qwen.pk}])
    assert [agent.name for agent in group.agents.all()] == ["qwen", "qwen 2"]
    long = make_model(ada, "x" * 80)
    group = groups.create_group(ada, name="long", agents=[{"model": long.pk}, {"model": long.pk}])
    assert [agent.name for agent in group.agents.all()] == ["x" * 80, "x" * 77 + " 2"]
    group = groups.create_group(ada, name="taken", agents=[{"model": qwen.pk}, {"model": qwen.pk, "name": "qwen"}])
    assert [agent.name for agent in group.agents.all()] == ["qwen 2", "qwen"]


def test_one_to_eight_agents(ada, two):
    qwen, _ = two
    assert errors_of(ada) == [("agents", "agent_count")]
    assert errors_of(ada, *[{"model": qwen.pk}] * 9) == [("agents", "agent_count")]
    assert len(groups.create_group(ada, name="one", agents=[{"model": qwen.pk}]).agents.all()) == 1
    eight = groups.create_group(ada, name="eight", agents=[{"model": qwen.pk}] * 8)
    assert [agent.color for agent in eight.agents.all()] == list(AGENT_COLORS)


def test_two_agents_of_one_name_are_refused_beside_the_second(client, two):
    response = post(client, {"model": two[0].pk, "name": "A"}, {"model": two[1].pk, "name": "A"})
    assert response.status_code == 422
    assert "Agent 1 is also named" in field_error(response, "agents-1-name")
    assert AgentGroup.objects.count() == 0


@pytest.mark.parametrize(
    "rate",
    ["nan", "inf", "-inf", "0", "-1", "1.5", "1,5", "１", "1e-400", "1e400", "1_0", "0x1p-3", "lots",
     "1e99999999", " ", "true",
     float("nan"), float("inf"), 0, -1, 10**400, True, [], {}],
    ids=lambda rate: str(rate)[:20],
)  # fmt: skip
def test_learning_rate_that_is_no_rate_is_refused_beside_its_field(ada, two, rate):
    assert [field for field, _ in errors_of(ada, {"model": two[0].pk, "learning_rate": rate})] == [
        "agents.0.learning_rate"
    ]


@pytest.mark.parametrize(
    "model", ["", "x", "-1", "1.0", "９", "1 OR 1=1", None, True, [], {}, 1.5, "9" * 5000, 10**30, -(10**30)]
)
def test_odd_model_ids_are_refused(ada, two, model):
    assert [field for field, _ in errors_of(ada, {"model": model, "name": "A"})] == ["agents.0.model"]


def test_other_users_model_is_as_missing_as_one_that_never_was(ada, two):
    theirs = make_model(make_user("bob"), "theirs")
    for model_id in (theirs.pk, theirs.pk + 1, 10**17):
        with pytest.raises(FieldErrors) as refused:
            groups.create_group(ada, name="g", agents=[{"model": two[0].pk}, {"model": model_id}])
        assert refused.value.status == 404
        assert [(e.field, e.message) for e in refused.value.errors] == [("agents.1.model", "There is no such model.")]


def test_all_that_is_wrong_is_said_at_once(ada, two):
    wrong = {"model": two[0].pk, "learning_rate": "nan", "prompt_format": "yaml"}
    assert errors_of(ada, wrong, {"model": "x"}, name="") == [
        ("name", "missing"),
        ("agents.0.learning_rate", "finite_number"),
        ("agents.0.prompt_format", "literal_error"),
        ("agents.1.model", "bad_id"),
    ]


def test_page_asks_for_each_pair_and_keeps_what_was_measured(client, ada, two, monkeypatch):
    asked = answer_inspections(monkeypatch, PAIR)
    group = groups.create_group(ada, name="pair", agents=[{"model": model.pk} for model in two])
    page = client.get(f"/groups/{group.pk}").content.decode()
    pair_url = f"/groups/{group.pk}/pairs/0/1"
    assert f'hx-get="{pair_url}"' in page
    assert asked == [], "the page itself starts no child"
    row = client.get(pair_url, headers={"HX-Request": "true"}).content.decode()
    assert asked == [["pair", two[0].location, two[1].location]]
    assert "<html" not in row
    assert "hx-get" not in row
    for text in ("Heterogeneous model", "25.0 %", "0.800", "qwen3 and llama", ">no<", "alert-warning", "“own”"):
        assert text in row
    page = client.get(f"/groups/{group.pk}").content.decode()
    assert "hx-get" not in page
    assert "Heterogeneous model" in page
    client.get(pair_url)
    assert len(asked) == 1
    # The same two models in the other order, in another group, are not measured again.
    other = groups.create_group(ada, name="other", agents=[{"model": model.pk} for model in reversed(two)])
    page = client.get(f"/groups/{other.pk}").content.decode()
    assert "Heterogeneous model" in page
    shown = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    # Measured was tokens of llama / tokens of qwen = .8: llama re-reads qwen's text as .8 of its length.
    assert "llama ← qwen 0.800" in shown
    assert "qwen ← llama 1.25" in shown
    assert "“qwen” needs 25.0 % more tokens than “llama” for the same text" in shown


@pytest.mark.parametrize(
    ("ratio", "warns"),
    [(1.049, False), (1.051, True), (0.96, False), (0.95, True), (1, False), (0, False), (None, False)],
)
def test_drift_above_five_percent_warns_of_ratio_length_own(client, ada, two, monkeypatch, ratio, warns):
    answer_inspections(monkeypatch, PAIR | {"length_ratio": ratio})
    group = groups.create_group(ada, name="pair", agents=[{"model": model.pk} for model in two])
    page = client.get(f"/groups/{group.pk}/pairs/0/1").content.decode()
    assert ("alert-warning" in page) is warns


def test_texts_that_do_not_survive_are_a_warning(client, ada, two, monkeypatch):
    texts = [{"text": "a", "survives": True}, {"text": "b", "survives": False}]
    answer_inspections(monkeypatch, PAIR | {"length_ratio": 1.0, "texts": texts})
    group = groups.create_group(ada, name="pair", agents=[{"model": model.pk} for model in two])
    assert b"1 of 2 sample texts change" in client.get(f"/groups/{group.pk}/pairs/0/1").content


def test_pair_of_one_model_needs_no_child(client, ada, two, monkeypatch):
    asked = answer_inspections(monkeypatch, PAIR)
    group = groups.create_group(ada, name="twins", agents=[{"model": two[0].pk}] * 2)
    page = client.get(f"/groups/{group.pk}").content.decode()
    assert "the same model twice" in page
    assert "100.0 %" in page
    assert asked == []


def test_pair_that_cannot_be_measured_says_why_and_is_not_kept(client, ada, two, monkeypatch):
    answer_inspections(monkeypatch, {"error": "llama: no such folder"}, b"", PAIR)
    group = groups.create_group(ada, name="pair", agents=[{"model": model.pk} for model in two])
    path = f"/groups/{group.pk}/pairs/0/1"
    assert b"no such folder" in client.get(path).content
    assert b"ended without an answer" in client.get(path).content
    assert PairInspection.objects.count() == 0
    assert b"Heterogeneous model" in client.get(path).content


def test_eight_agents_are_twenty_eight_pairs(client, ada, two):
    group = groups.create_group(ada, name="eight", agents=[{"model": two[n % 2].pk} for n in range(8)])
    assert client.get(f"/groups/{group.pk}").content.count(b"data-pair=") == 28
    for pair in ("0/0", "1/0", "0/8", "99999999999999999999/1"):
        assert client.get(f"/groups/{group.pk}/pairs/{pair}").status_code == 404


def test_odd_posts_are_no_crash(client, two):
    for data in (
        {},
        {"name": "x"},
        {"name": "x", "agents-8-model": "1"},
        {"agents-0-model": ["1", "x"]},
        {"agents": "[]"},
    ):
        assert client.post("/groups/new", data).status_code in (404, 422)
    assert client.post("/groups/new", b"\xff\xfe", content_type="application/json").status_code == 422
    assert AgentGroup.objects.count() == 0


def test_new_group_from_a_models_page_begins_with_that_model(client):
    user = make_user()
    client.force_login(user)
    make_model(user, "first")
    model = make_model(user, "second")
    page = client.get(reverse("registry:model_detail", args=[model.pk])).content.decode()
    address = f"{reverse('registry:group_create')}?model={model.pk}"
    assert f'href="{address}"' in page
    form = client.get(address).content.decode()
    assert form.count(f'<option value="{model.pk}" selected>') == 1
    assert client.get(reverse("registry:group_create") + "?model=x").status_code == 200
