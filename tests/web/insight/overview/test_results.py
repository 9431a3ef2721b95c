"""The result strip: accuracy from start to now, peers' share, and the difference to GSPO by seed."""

from __future__ import annotations

import re

import pytest

from hacrl_web.insight.overview.results import results
from hacrl_web.runs.models import Run, Sweep
from tests.support.web import factories
from tests.support.web.page_text import text_of
from tests.web.insight.overview.test_overview import store
from workers.contract.events import Evaluation


def evaluated(step: int, *values: float) -> list[Evaluation]:
    count = {"benchmark": "sums", "metric": "accuracy", "correct": 0, "asked": 0}
    return [
        Evaluation(step=step, agent=agent, value=value, **count) for agent, value in zip("AB", values, strict=False)
    ]


@pytest.fixture
def of_sweep(user):
    """Runs of one sweep, of one group and benchmark."""
    request = factories.launch_request(user)
    sweep = Sweep.objects.create(owner=user, name="All")

    def make(algorithm: str, seed: int, *evaluations: list[Evaluation], **changes) -> Run:
        run = factories.make_run(user, **request | {"algorithm": algorithm, "seed": seed, **changes})
        Run.objects.filter(pk=run.pk).update(sweep=sweep)
        return store(run, *(one for step in evaluations for one in step))

    return make


def test_gain_over_gspo_is_by_seed_and_over_runs_that_differ_in_the_algorithm_alone(of_sweep):
    run = of_sweep("hacpo", 0, evaluated(0, 0.1, 0.3), evaluated(4, 0.8, 0.6))
    assert results(run).gain is None  # no GSPO
    of_sweep("gspo", 0, evaluated(0, 0.1, 0.3), evaluated(4, 0.5, 0.5), evaluated(5, 0.9, 0.9))
    gain = results(run).gain
    assert (gain.mean, gain.count, gain.half_width) == (pytest.approx(0.2), 1, None)  # 0.7 - 0.5, at step 4 of both
    of_sweep("hacpo", 1, evaluated(4, 0.7, 0.9))
    of_sweep("gspo", 1, evaluated(4, 0.3, 0.5))
    of_sweep("hacpo", 2, evaluated(2, 0.7, 0.9))  # not evaluated at step 4
    of_sweep("gspo", 2, evaluated(4, 0.1, 0.1))
    of_sweep("gspo", 3, evaluated(4, 0.1, 0.1))  # no run of this seed to compare with
    gain = results(run).gain
    # 0.2 and 0.8 - 0.4: mean 0.3, standard deviation 0.1414, half width 12.706 * 0.1414 / sqrt(2)
    assert (gain.mean, gain.count) == (pytest.approx(0.3), 2)
    assert gain.half_width == pytest.approx(1.2706)
    other = of_sweep("hacpo", 0, evaluated(4, 0.8, 0.6), training={"steps": 7})
    assert results(other).gain is None  # GSPO with another number of steps
    assert results(of_sweep("gspo", 4, evaluated(4, 0.8, 0.6))).gain is None


def test_results_of_a_replay_are_those_of_its_step(web, of_sweep):
    run = of_sweep("hacpo", 0, evaluated(0, 0.1, 0.3), evaluated(4, 0.8, 0.6), evaluated(8, 0.9, 0.7))
    assert [[agent.now for agent in results(run, at).agents] for at in (-1, 0, 5)] == [
        [None, None], [0.1, 0.3], [0.8, 0.6],
    ]  # fmt: skip
    assert "Replay" not in text_of(web.get(run.get_absolute_url()))  # it has not ended
    assert ">0.900<" in text_of(web.get(f"{run.get_absolute_url()}?replay=5"))
    Run.objects.filter(pk=run.pk).update(state="completed")
    assert "Replay" in text_of(web.get(run.get_absolute_url()))
    begun = text_of(web.get(f"{run.get_absolute_url()}?replay=5"))
    assert '<label class="hero-scrubber small" hidden>' in begun  # the replay has a slider of its own
    assert '<label class="hero-scrubber small">' in text_of(web.get(run.get_absolute_url()))
    assert "End replay" in begun
    assert ">0.900<" not in begun
    assert ">0.800<" in text_of(web.get(f"{run.get_absolute_url()}?replay=5&at=4"))


def test_agent_goes_from_its_first_evaluation_to_its_last(web, of_sweep):
    run = of_sweep("hacpo", 0)
    assert [agent.now for agent in results(run).agents] == [None, None]
    assert "not evaluated yet" in text_of(web.get(run.get_absolute_url()))
    store(run, *evaluated(0, 0.25), *evaluated(2, 0.5), *evaluated(4, 0.2), attempt=2)
    first, second = results(run).agents
    assert (first.start, first.now, first.step, first.difference) == (0.25, 0.2, 4, pytest.approx(-0.05))
    assert second.points == ()
    assert results(run).step is None  # B is not evaluated
    page = text_of(web.get(run.get_absolute_url()))
    assert re.search(r"<strong>(<[^>]+>)?0\.200", page)
    assert "−0.050" in page


def test_results_of_a_continued_run_begin_with_its_parents_up_to_the_checkpoint(of_sweep):
    parent = of_sweep("hacpo", 0, evaluated(0, 0.1, 0.2), evaluated(2, 0.3, 0.4), evaluated(4, 0.9, 0.9))
    run = of_sweep("hacpo", 0)
    Run.objects.filter(pk=run.pk).update(cloned_from=parent, start_step=2)
    run.refresh_from_db()
    assert [agent.points for agent in results(run).agents] == [((0, 0.1), (2, 0.3)), ((0, 0.2), (2, 0.4))]
    store(run, *evaluated(4, 0.5, 0.6))
    assert [agent.now for agent in results(run).agents] == [0.5, 0.6]
    Run.objects.filter(pk=run.pk).update(start_step=0)  # a copy of its settings alone
    run.refresh_from_db()
    assert results(run).agents[0].points == ((4, 0.5),)


def test_first_line_says_whether_sharing_helped_or_what_to_queue_to_know(web, of_sweep):
    run = of_sweep("hacpo", 0, evaluated(0, 0.1, 0.3), evaluated(4, 0.8, 0.6))
    page = text_of(web.get(run.get_absolute_url()))
    assert "Unknown:</strong> no GSPO run" in page
    assert f"{run.pk}/clone?algorithm.name=gspo" in page
    baseline = of_sweep("gspo", 0)
    page = text_of(web.get(run.get_absolute_url()))
    assert "Unknown so far" in page
    assert "clone?algorithm.name" not in page
    store(baseline, *evaluated(4, 0.5, 0.3))
    page = re.sub(r"<[^>]+>", " ", text_of(web.get(run.get_absolute_url())))
    page = " ".join(page.split())
    # (0.8 + 0.6) / 2 with, (0.5 + 0.3) / 2 without
    assert "Sharing helped: 0.700 with, 0.400 without" in page
    assert "+0.300, one seed" in page
    of_sweep("hacpo", 1, evaluated(4, 0.5, 0.5))
    of_sweep("gspo", 1, evaluated(4, 0.6, 0.6))
    # +0.3 and -0.1 over two seeds: the interval holds zero
    assert results(run).verdict == "Not clear whether sharing helped"
    assert 'id="answer"' not in text_of(web.get(baseline.get_absolute_url()))
    equal = of_sweep("hacpo", 2, evaluated(4, 0.4, 0.4), training={"steps": 7})
    of_sweep("gspo", 2, evaluated(4, 0.4, 0.4), training={"steps": 7})
    assert results(equal).verdict == "Sharing changed nothing"


def test_gspo_run_that_is_queued_from_a_clone_is_a_baseline_without_a_sweep(user):
    request = factories.launch_request(user)
    run, gspo = (factories.make_run(user, **request | {"algorithm": name}) for name in ("hacpo", "gspo"))
    store(run, *evaluated(4, 0.8, 0.6))
    store(gspo, *evaluated(4, 0.5, 0.7))
    assert results(run).gain.mean == pytest.approx(0.1)
