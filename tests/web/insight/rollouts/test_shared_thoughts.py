"""A thought that one template opens, from the real trainer to the page: what a peer is taught, and what is shown."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.urls import reverse

from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.tables import insert
from tests.support.workers.tiny import make_spec, train
from tests.workers.agents.test_thoughts import agents as agents  # its fixture
from workers.agents.local import LocalAgent
from workers.contract.spool import read_records
from workers.model.policy import Policy
from workers.rollouts.sampler import Sample

SAID = {"opens": ("I add.\n</think>\n\nIt is 4.", "Hm.\n</think>\n\n5"), "plain": ("It is 4.", "No.")}


@pytest.mark.slow
def test_peer_without_thinking_is_taught_the_answer_with_its_thought_and_the_page_shows_it(
    agents, make_run, client, tmp_path, monkeypatch
):
    taught: list[tuple[str, str, str]] = []

    def draw(agent: LocalAgent, sampling: Any, prompts: Any, rows: Any, keys: Any, limits: Any = ()) -> list[Sample]:
        ids = [agent.policy.encode_response(SAID[agent.name][place % 2]) for place, _ in enumerate(rows)]
        return [Sample([*one, agent.policy.turn_eos], [-5.0] * (len(one) + 1), True, 0.0) for one in ids]

    def logps(policy: Policy, prompts: Any, responses: Any, **settings: Any) -> Any:
        masks = settings.get("train_masks") or [()] * len(responses)
        for response, mask in zip(responses, masks, strict=True):
            own = [token for token, trains in zip(response, mask or [True] * len(response), strict=True) if trains]
            taught.append((policy.agent.name, *(policy.decode(one, literal=True) for one in (response, own))))
        return scored(policy, prompts, responses, **settings)

    scored = Policy.token_logps
    monkeypatch.setattr(LocalAgent, "_draw", draw)
    monkeypatch.setattr(Policy, "token_logps", logps)
    rows = [agents[name].policy.agent.model_dump() for name in SAID]
    rollout = {"max_prompt_length": 64, "max_completion_length": 100}
    spec = make_spec(tmp_path, rows, rollout=rollout, training={"steps": 1, "learning_rate": 2e-5})
    train(spec, tmp_path / "run")
    shared = "<think>\n" + SAID["opens"][0] + "<eos>"
    assert ("plain", shared, shared.removeprefix("<think>\n")) in taught  # the mark is read, and not trained on
    assert not [one for one in taught if one[0] == "plain" and one[1].startswith(SAID["opens"][0])]

    run = make_run()
    insert(run.pk, [record for _, record in read_records(tmp_path / "run" / "events.jsonl")])
    Run.objects.filter(pk=run.pk).update(spec=spec.model_dump(mode="json"), state="completed", step=1)
    shares = [
        row for row in run.contributions.values("agent", "source", "drop_reason") if row["agent"] != row["source"]
    ]
    assert {"agent": "plain", "source": "opens", "drop_reason": None} in shares
    client.force_login(run.owner)
    page = html.unescape(client.get(reverse("insight:run_rollouts", args=[run.pk])).content.decode())
    assert "<think>\n" + SAID["opens"][0] in page
    assert SAID["plain"][0] in page
