"""The model card in an agent's downloaded folder: it says what the run's record says, and no user's text acts."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml

from hacrl_web.insight.checkpoints.model_card import model_card, precision_of, serve_command, wilson_interval
from hacrl_web.runs.models import Run
from tests.support.web.factories import make_user
from tests.support.web.insight_help import claimed, evaluation, store

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    run = claimed(make_user())
    store(run, evaluation(0, "A", 0.25), evaluation(10, "A", 0.5), evaluation(10, "B", 0.75))
    return run


def rows(card: str, section: str) -> list[list[str]]:
    """The cells of a section's table, without its two first lines."""
    text = card.split(f"## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_interval_by_hand():
    # n = 100, c = 50: z^2/n = 0.0384146; centre (0.5 + 0.0192073) / 1.0384146 = 0.5;
    # half sqrt(0.25 * 0.0384146 + 0.0384146^2 / 4) / 1.0384146 = 0.0998630 / 1.0384146 = 0.0961687
    low, high = wilson_interval(50, 100)
    assert low == pytest.approx(0.4038315, abs=1e-6)
    assert high == pytest.approx(0.5961685, abs=1e-6)
    # Of no correct answer the interval begins at 0 and ends at z^2 / (n + z^2) = 3.84146 / 13.84146.
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.2775328), abs=1e-6)
    assert wilson_interval(10, 10)[1] == pytest.approx(1.0)


def test_card_has_the_evaluation_of_its_agent_and_step_with_its_interval(run):
    [row] = rows(model_card(run, "A", 10, "folder"), "Evaluation")
    assert row == ["b", "accuracy, avg@1", "0.250", "0.500", "0.404 to 0.596", "100"]
    [row] = rows(model_card(run, "B", 10, "folder"), "Evaluation")
    assert row == ["b", "accuracy, avg@1", "–", "0.750", "0.657 to 0.825", "100"]
    assert "was not evaluated at step 5" in model_card(run, "A", 5, "folder")


def test_card_says_how_far_a_bfloat16_copy_is_from_the_agent(run, tmp_path):
    assert "bfloat16" not in model_card(run, "A", 10, "folder", precision=precision_of(tmp_path))
    measured = {"surviving_in_bfloat16": 0.18, "nats": {"float32": 0.004, "bfloat16": 0.123}, "tokens": 96}
    (tmp_path / "precision.json").write_text(json.dumps(measured))
    card = model_card(run, "A", 10, "folder", precision=precision_of(tmp_path))
    assert "In bfloat16 18.0% of the updated weights would differ from their start" in card
    assert "of 96 sampled tokens would be off by 0.123 nats a token (as it is: 0.004)" in card
    assert "--dtype float32" in card
    (tmp_path / "precision.json").write_text("[1")  # a damaged file is no error of the download
    assert precision_of(tmp_path) == {}


def test_mean_reward_and_several_samples_have_no_interval(run):
    of_function = evaluation(20, "A", 0.5).model_copy(update={"verifier": "function/1"})
    sampled = evaluation(30, "A", 0.5).model_copy(update={"num_samples": 4})
    store(run, of_function, sampled)
    [graded] = rows(model_card(run, "A", 20, "folder"), "Evaluation")
    assert graded[4] == "–"
    [several] = rows(model_card(run, "A", 30, "folder"), "Evaluation")
    assert several[1].endswith("avg@4")
    assert several[4:] == ["–", "25"]


def test_front_matter_names_a_base_model_of_the_hub_and_no_folder(run):
    def front(card: str) -> dict:
        return yaml.safe_load(card.split("---\n")[1])

    spec = {**run.spec, "agents": [dict(agent) for agent in run.spec["agents"]]}
    spec["agents"][0]["model"] = "Qwen/Qwen3-0.6B"
    spec["agents"][1]["model"] = "/secret/place/llama"
    Run.objects.filter(pk=run.pk).update(spec=spec)
    run.refresh_from_db()
    first, second = (model_card(run, name, 10, "folder") for name in "AB")
    assert front(first)["base_model"] == "Qwen/Qwen3-0.6B"
    assert "base_model" not in front(second)
    assert front(second)["tags"] == ["hacrl", "reinforcement-learning", "hacpo"]
    for card in (first, second):
        assert "/secret" not in card
        assert "llama (a local folder)" in card
    assert [row[0] for row in rows(second, "Base models")] == ["A", "**B** (this model)"]


def test_card_lists_the_settings_that_differ_from_their_defaults(run):
    shown = dict(rows(model_card(run, "A", 10, "folder"), "Settings"))
    assert shown["`training.steps`"] == f"`{run.total_steps}`"
    assert "`rollout.top_k`" not in shown
    assert not any(name.startswith(("`data.train_path", "`agents.0.model")) for name in shown)


def test_texts_of_users_are_only_text(run):
    run.name = "x](http://evil) <script>alert(1)</script>\n\n# heading | `code`"
    card = model_card(run, "A", 10, "folder")
    assert "<script>" not in card.replace("\\<script\\>", "")
    assert "](http" not in card.replace("\\](http", "")
    assert "\n# heading" not in card
    assert "\\| \\`code\\`" in card


def test_command_to_serve_is_one_that_a_shell_reads_as_meant():
    assert shlex.split(serve_command("./a b; rm", "Qwen 3 $(x)")) == [
        *("vllm", "serve", "./a b; rm", "--served-model-name", "qwen-3-x")
    ]
