"""The Rollouts tab: who may see it, odd addresses, one prompt side by side, the weight step by step."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from django.http import QueryDict
from django.urls import reverse

from hacrl_web.insight.rollouts.filter import read_filter
from hacrl_web.insight.rollouts.query_bar import chips, read_query
from hacrl_web.web.visible import visible
from tests.support.web.insight_rows import contribution, insert, made_up, rollout


@pytest.fixture
def run(make_run, user):
    return make_run(user, algorithm={"name": "hacpo", "cross_weight": 0.5})


def address(run) -> str:
    return reverse("insight:run_rollouts", args=[run.pk])


def page(web, run, query: str = "") -> str:
    answer = web.get(f"{address(run)}?{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def test_ignored_value_is_named(web, run):
    insert(run.pk, [rollout(1, 1, "A", "p", 0)])
    assert "Not understood and ignored: <code>step &#x27;x&#x27;</code>" in page(web, run, "step=x")


def test_run_without_rollouts_says_what_will_be_here(web, run):
    assert "No rollouts recorded yet" in page(web, run)


def test_prompt_shows_all_agents_and_the_chosen_rollout_step_by_step(web, run):
    # s = .9, band [.825, 1] at m = 1: c^2 = .81, * 1.25 * .5 * .5 = .253125.
    taught = {"sequence_ratio": 0.9, "clipped_ratio": 0.9, "omega": 1.25, "advantage": 0.5, "weight": 0.253125}
    insert(
        run.pk,
        [
            rollout(1, 3, "A", "p", 0, completion="of A"),
            rollout(2, 3, "B", "p", 0, completion="of B"),
            rollout(3, 3, "B", "other", 0, completion="elsewhere"),
            contribution(4, 3, "B", "A", "p", 0, mini_batch=1, **taught),
        ],
    )
    text = page(web, run, "rollout=1")
    assert "of A" in text
    assert "of B" in text
    assert "elsewhere" not in text
    assert "c^(1+α) · ω · A · cross_weight = 0.9^2 · 1.25 · 0.5 · 0.5" in text
    assert [float(value) for value in re.findall(r'data-product="([^"]+)"', text)] == [pytest.approx(0.253125)]
    assert "inside the band [0.825, 1]" in text
    [hit] = web.get(f"/api/v1/runs/{run.pk}/rollouts?learner=B").json()["items"]
    assert (hit["agent"], hit["taught"]["learner"], hit["taught"]["weight"]) == ("A", "B", 0.253125)
    # A contribution's own number leads to the same rollout.
    assert 'data-weight="0.253125"' in page(web, run, "learner=B&rollout=4")


def test_keys_lead_from_rollout_to_rollout_and_from_prompt_to_prompt(web, run):
    insert(
        run.pk,
        [rollout(seq, 1, "A", prompt, seq) for seq, prompt in ((1, "p"), (2, "p"), (3, "q"), (4, "q"))],
    )

    def keys(query: str) -> dict[str, str]:
        text = page(web, run, f"list=rollouts&{query}")
        links = re.findall(r'href="\?step=1&amp;list=rollouts&amp;rollout=(\d)" data-keep data-key="(\w)"', text)
        return {key: seq for seq, key in links}

    assert keys("step=1&rollout=2") == {"p": "1", "n": "3", "N": "3"}
    assert keys("step=1&rollout=3") == {"p": "2", "n": "4", "P": "1"}
    assert keys("step=1") == {"n": "2", "N": "3"}


def test_page_opens_at_a_rollout_that_taught_something(web, run):
    silent = {"advantage": 0.0, "sequence_ratio": None, "weight": 0.0}
    insert(
        run.pk,
        [
            *(rollout(seq, 4, "A", f"p{seq}", 0, completion=f"text {seq}") for seq in (1, 2, 3)),
            contribution(4, 4, "A", "A", "p1", 0, **silent),
            contribution(5, 4, "B", "A", "p2", 0, weight=-0.5),
            contribution(6, 4, "A", "A", "p3", 0),
        ],
    )
    answer = web.get(f"{address(run)}?list=rollouts")
    assert answer.context["group"].prompt_id == "p2"
    assert [line.is_selected for line in answer.context["lines"]] == [False, True, False]
    assert web.get(f"{address(run)}?list=rollouts&step=4").context["group"].prompt_id == "p1"  # the first
    answer.context["run"].contributions.all().delete()
    assert web.get(f"{address(run)}?list=rollouts").context["group"].prompt_id == "p1"


def test_long_text_is_cut_on_the_page_and_whole_in_the_api(web, run):
    insert(run.pk, [rollout(1, 1, "A", "p", 0, completion="x" * 300_000 + "\x1b[31m")])
    text = page(web, run)
    assert "x" * 4000 in text
    assert "x" * 4001 not in text
    assert "Show all 300" in text
    url = reverse("api-1:rollout_text", args=[run.pk])
    assert web.get(url, {"seq": 1}).json()["rollout"]["completion"].endswith("x\x1b[31m")
    cut = web.get(url, {"seq": 1, "shown": True}).json()["rollout"]
    assert (cut["shown"], cut["length"], len(cut["completion"])) == (200_000, 300_005, 200_000)
    assert web.get(url, {"seq": 7}).json() == {"rollout": None}
    assert web.get(url, {"seq": "x"}).status_code == 422


def test_hidden_and_commanding_characters_are_written_out(web, run):
    insert(run.pk, [rollout(1, 1, "A", "p", 0, completion="a\u202eb\x1b[2Jc\u2066d\r\ne\x07 ünïcode 漢\tf")])
    assert "a⟨U+202E⟩b␛[2Jc⟨U+2066⟩d\ne␇ ünïcode 漢\tf" in page(web, run)
    assert visible("\u200b\ufeff\x85\x7f\U000e0041") == "⟨U+200B⟩⟨U+FEFF⟩⟨U+0085⟩␡⟨U+E0041⟩"
    assert visible("नि\u200dम") == "नि\u200dम"


def test_search_that_ran_out_of_time_says_so(web, run, monkeypatch):
    monkeypatch.setattr("hacrl_web.insight.rollouts.search.PIECE", 4)
    monkeypatch.setattr("hacrl_web.insight.rollouts.search.BUDGET_S", 0.0)
    made_up(run, {1: range(1, 4)})
    text = page(web, run, "list=rollouts&agent=B")
    assert "Looked through 4 rows, to step 1" in text
    assert 'href="?agent=B&amp;list=rollouts&amp;after=1.' in text


def test_replayed_rollout_of_an_earlier_version_is_listed_in_its_own_step_alone(web, user, make_run):
    run = make_run(user)
    rows = [rollout(1, 4, "B", "p", 1, completion="sampled"), contribution(2, 4, "A", "B", "p", 1, weight=0.75)]
    insert(run.pk, [*rows, contribution(3, 6, "A", "B", "p", 1, attempt=2, age=2, weight=0.25)])
    found = web.get(f"{address(run)}?list=rollouts&learner=A&q=sampled").context["page"].hits
    assert [hit.seq for hit in found] == [2]
    assert web.get(f"{address(run)}?rollout=3").context["group"].step == 4


def test_penalty_of_a_long_answer_is_shown_and_the_reward_is_the_verifiers(web, user, make_run):
    run = make_run(user, algorithm={"name": "gspo", "overlong_cache": 4}, rollout={"max_completion_length": 10})
    rows = [rollout(1, 1, "A", "p", 0, num_tokens=9), rollout(2, 1, "A", "p", 1, num_tokens=3)]
    insert(run.pk, [*rows, contribution(3, 1, "A", "A", "p", 0), contribution(4, 1, "A", "A", "p", 1)])
    text = re.sub(r"<[^>]*>", "", page(web, run, "rollout=1"))
    assert "reward 1.000, in training 0.250" in text  # 1 - 3/4
    assert "here 1.000 − 0.750 = 0.250, by its source's 9 tokens" in text
    text = re.sub(r"<[^>]*>", "", page(web, run, "rollout=2"))
    assert "here 1.000 − 0.000 = 1.000, by its source's 3 tokens" in text
    plain = make_run(user, algorithm={"name": "gspo"}, rollout={"max_completion_length": 10})
    insert(plain.pk, [*rows, contribution(3, 1, "A", "A", "p", 0)])
    assert "overlong" not in page(web, plain)


NAMES = ("Qwen3 4B", "Qwen3 8B", "Llama")


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("", {}),
        ("step:5 learner:Llama sort:weight", {"step": "5", "learner": "Llama", "sort": "weight"}),
        ('learner:"Qwen3 4B" source:llama', {"learner": "Qwen3 4B", "agent": "Llama"}),
        ("agent:8b LESSON:rescue", {"agent": "Qwen3 8B", "prompt_kind": "rescue"}),
        ("learner:Qwen3", {"learner": "Qwen3"}),  # two agents: the page says that it is not understood
        (
            "tokens:2..6 advantage:..-1",
            {"min_tokens": "2", "max_tokens": "6", "min_advantage": "", "max_advantage": "-1"},
        ),
        ("tokens:7", {"min_tokens": "7", "max_tokens": "7"}),
        ('two words "and more" 12:30', {"q": "two words and more 12:30"}),
        ("step:", {"q": "step:"}),
        (r"\boxed{4} reward:0.2..0.8", {"q": r"\boxed{4}", "reward": "0.2..0.8"}),
    ],
)
def test_query_is_read_word_by_word_and_names_are_completed(text, parameters):
    assert read_query(text, NAMES) == parameters


def test_every_filter_is_a_chip_that_can_be_typed_again_and_removed():
    query = (
        "step=1-4&learner=Qwen3+4B&source=Llama&reward=0..0.5&sign=positive&clip=lower&min_advantage=0.1&max_tokens=6"
        "&sort=surprise&shared=yes&q=two+words&prompt=p&list=rollouts"
    )
    rollout_filter, ignored = read_filter(QueryDict(query), NAMES)
    assert ignored == []
    texts = [text for text, _ in chips(rollout_filter)]
    assert texts == [
        "step:1-4", 'learner:"Qwen3 4B"', "source:Llama", "shared:yes", "reward:0..0.5", "advantage:0.1..",
        "sign:positive", "clip:lower", "tokens:..6", "prompt:p", "sort:surprise", '"two words"',
    ]  # fmt: skip
    again = read_filter(QueryDict(urlencode(read_query(" ".join(texts), NAMES) | {"list": "rollouts"})), NAMES)[0]
    assert again == rollout_filter
    for text, rest in chips(rollout_filter):
        left = [one for one, _ in chips(read_filter(QueryDict(rest), NAMES)[0])]
        assert left == [one for one in texts if one != text]


def test_what_is_typed_is_added_to_the_chips_and_becomes_the_address(web, run):
    insert(run.pk, [rollout(1, 1, "A", "p", 0)])
    answer = web.get(f"{address(run)}?step=1&list=rollouts&maths=1&source=B&query=learner:b+source:A+two+words")
    assert (answer.status_code, answer.url) == (
        302, f"{address(run)}?step=1&list=rollouts&learner=B&agent=A&q=two+words&maths=1",
    )  # fmt: skip
    text = page(web, run, "step=1&agent=A")
    assert 'name="step" value="1"' in text  # the form keeps the chips
    assert 'href="?agent=A" data-keep data-chip title="Remove step:1"' in text
    assert '<option value="learner:B">' in text
    unknown = web.get(f"{address(run)}?query=learner:nobody", follow=True).content.decode()
    assert "Not understood and ignored: <code>learner &#x27;nobody&#x27;</code>" in unknown


def test_several_rewards_have_columns_and_numbers_on_the_card_and_correct_is_explained(web, run):
    run.spec = run.spec | {"rewards": {"terms": [{"name": "box", "kind": "boxed", "weight": 0.5}]}}
    run.save()
    insert(run.pk, [rollout(1, 1, "A", "p", 0, reward=0.8333333, rewards={"verifier": 0.75, "box": 1.0})])
    text = page(web, run, "list=rollouts")
    assert '<th scope="col" class="number">verifier</th><th scope="col" class="number">box</th>' in text
    assert "correct means the full reward, 1" in text
    assert re.search(r'verifier <span title="0\.75">0\.750</span> · box', text)
    assert "partial credit</span>" in text
