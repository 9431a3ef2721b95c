"""What the Collaboration tab adds up from a real training's rows is what its trainer logged."""

from __future__ import annotations

import pytest

from hacrl_web.insight.collaboration import ratio_histogram
from hacrl_web.insight.collaboration.collaboration import view
from hacrl_web.insight.collaboration.step_summary import recorded_steps, summary_of
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.tables import insert
from tests.support.workers.tiny import make_pair, make_spec, train
from workers.contract.spool import read_records


@pytest.mark.slow
def test_sums_agree_with_what_the_trainer_logged(make_run, tmp_path):
    """A real training of untrained models: no number may differ by one rollout."""
    spec = make_spec(tmp_path, make_pair(tmp_path), algorithm={"name": "hacpo", "delta": 0.8})
    train(spec, tmp_path / "run")
    run = make_run()
    records = [record for _, record in read_records(tmp_path / "run" / "events.jsonl")]
    insert(run.pk, records)
    Run.objects.filter(pk=run.pk).update(spec=spec.model_dump(mode="json"), state="completed", step=3)
    run.refresh_from_db()
    steps = recorded_steps(run)
    names, compared = [agent.name for agent in spec.agents], 0
    for event in run.events.filter(type="metrics").exclude(source=""):
        learner, source = names.index(event.agent), names.index(event.source)
        pairs = view(spec, summary_of(run, steps, event.step), event.step)["pairs"]
        [pair] = [one for one in pairs if (one["learner"], one["source"]) == (learner, source)]
        ratios = event.payload["ratios"]
        [bars] = ratio_histogram.clipping(run, spec, learner, {event.step: 1})["sources"]
        for place, sign in enumerate(("positive", "negative")):
            for side in ("lower", "upper"):
                logged = ratios[f"clip_{side}_frac/{sign}"]
                assert [pair[side][place], pair["evaluated"][place]] == logged, (event.step, side, sign)
                assert [bars[side][place], bars["evaluated"][place]] == logged, (event.step, side, sign)
                compared += logged[0] > 0
        assert [pair["used"][0], pair["rows"]] == ratios["used_frac"]
        assert [pair["rescue"][0], pair["prompts"]] == ratios["rescue_frac"]
        assert sum(counts[0] for counts in pair["dropped"].values()) == event.payload["values"]["dropped"]
        assert pair["omega"] == event.payload["values"]["omega"]
        compared += 1
    print(f"{compared} numbers above 0")
    assert compared >= 12
