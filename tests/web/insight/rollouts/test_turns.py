"""Rollouts with an environment: turns and a tool's answers are stored, shown apart, searched and returned as text."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from hacrl_web.runs.models import RolloutSample
from hacrl_web.runs.telemetry.table_upkeep import clear_texts
from tests.support.web.insight_rows import insert, rollout

HOSTILE = '<img src=x onerror="alert(1)">\x00\u202e"quoted" \\boxed'


def turn(role: str, text: str, *, is_failed: bool = False) -> dict:
    return {"role": role, "text": text, "has_eos": role == "assistant", "is_failed": is_failed}


TURNS = [
    turn("assistant", "<calculator>1/0</calculator>"),
    turn("tool", "error: division by zero", is_failed=True),
    turn("assistant", HOSTILE),
    turn("user", "Größe?"),
    turn("assistant", "so \\boxed{7}"),
]


@pytest.fixture
def run(make_run, user):
    run = make_run(user)
    insert(
        run.pk,
        [rollout(1, 1, "A", "p", 0, turns=TURNS, completion="so \\boxed{7}"), rollout(2, 1, "A", "p", 1, turns=[])],
    )
    return run


def page(web, run, **query) -> str:
    return web.get(reverse("insight:run_rollouts", args=[run.pk]), query).content.decode()


def test_page_shows_turns_and_answers_apart_and_as_text(web, run):
    text = page(web, run)
    assert text.count('<li class="turn turn-') == 5
    assert '<li class="turn turn-tool"><span class="small quiet">tool · failed</span>' in text
    assert "error: division by zero" in text
    assert '<li class="turn turn-user"><span class="small quiet">environment</span>' in text
    assert "&lt;calculator&gt;1/0&lt;/calculator&gt;" in text
    assert "<img" not in text.split('id="part-answers"')[1].split("</article>")[0]
    assert "\u202e" not in text


def test_single_turn_of_the_same_prompt_has_no_turns(web, run):
    assert RolloutSample.objects.get(run=run, seq=2).turns is None
    assert "<pre data-maths>one</pre>" in page(web, run)


@pytest.mark.parametrize(
    ("words", "count"),
    [("division by zero", 1), ("größe", 1), ('"quoted" \\boxed', 1), ("question p", 2), ("assistant", 0)],
)
def test_search_finds_what_stands_in_any_turn(web, run, words, count):
    answer = web.get(f"/api/v1/runs/{run.pk}/rollouts", {"q": words}).json()
    assert len(answer["items"]) == count


def test_api_returns_the_turns_whole_and_as_a_page_shows_them(web, run):
    address = f"/api/v1/runs/{run.pk}/rollout-text"
    turns = web.get(address, {"seq": 1}).json()["rollout"]["turns"]
    assert [one["role"] for one in turns] == ["assistant", "tool", "assistant", "user", "assistant"]
    assert turns[1] == {"role": "tool", "text": "error: division by zero", "is_failed": True}
    assert turns[2]["text"] == HOSTILE
    shown = web.get(address, {"seq": 1, "shown": True}).json()["rollout"]["turns"]
    assert "\x00" not in shown[2]["text"]
    assert web.get(address, {"seq": 2}).json()["rollout"]["turns"] == []


def test_export_has_the_turns(web, run):
    answer = web.get(f"/api/v1/runs/{run.pk}/export/rollouts.jsonl")
    rows = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    assert [len(json.loads(row["turns"] or "[]")) for row in rows] == [5, 0]


def test_old_texts_lose_their_turns_too(run):
    run.spec["telemetry"]["rollout_steps_kept"] = 1
    run.save()
    insert(run.pk, [rollout(3, 9, "A", "p", 0, turns=TURNS)])
    assert clear_texts(run) == 2
    assert RolloutSample.objects.get(run=run, seq=1).turns is None
    assert RolloutSample.objects.get(run=run, seq=3).turns


def test_turns_with_half_a_surrogate_pair_are_stored(run):
    insert(run.pk, [rollout(4, 2, "A", "p", 0, turns=[turn("assistant", "a\ud800b")])])
    assert json.loads(RolloutSample.objects.get(run=run, seq=4).turns) == [["a", 0, "a?b"]]
