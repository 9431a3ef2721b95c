"""The share of sampled answers that each extraction reads, on a benchmark's own page."""

from __future__ import annotations

import re

import pytest

from hacrl_web.runs.models import Run
from tests.support.web.factories import make_run
from tests.support.web.insight_rows import insert, rollout

TEXTS = (r"so \boxed{7}", "so it is 7", "so it is 8", "I cannot say", "")


@pytest.fixture
def run(user):
    run = make_run(user)
    insert(run.pk, [rollout(n, 1, "A", "q1", n, completion=text) for n, text in enumerate(TEXTS, 1)])
    return run


def test_shares_of_sampled_answers_are_shown_and_told_by_the_api(client, user, run):
    client.force_login(user)
    address = f"benchmarks/{run.benchmark.pk}/extraction"
    assert client.get(f"/api/v1/{address}").json() == {
        "num_runs": 1,
        "num_answers": 4,  # the text of the fifth is no longer stored
        "strict": {"read": 1, "correct": 1},
        "flexible": {"read": 3, "correct": 2},
    }
    page = client.get(f"/{address}").content.decode()
    rows = re.findall(r'<th scope="row">(\w+)</th><td[^>]*>(\d+)[^<]*</td><td[^>]*>(\d+)', page)
    assert rows == [("strict", "25", "25"), ("flexible", "75", "50")]
    assert f"/{address}" in client.get(f"/benchmarks/{run.benchmark.pk}").content.decode()


def test_benchmark_without_samples_says_so_and_other_verifiers_have_no_extraction(client, user, run):
    client.force_login(user)
    benchmark = run.benchmark
    Run.objects.all().delete()
    assert (
        "No run on this benchmark has sampled" in client.get(f"/benchmarks/{benchmark.pk}/extraction").content.decode()
    )
    benchmark.verifier = "choice"
    benchmark.save()
    refused = client.get(f"/benchmarks/{benchmark.pk}/extraction")
    assert refused.status_code == 422
    assert "Extraction is of the verifiers math and numeric; this one is choice." in refused.content.decode()
    assert "/extraction" not in client.get(f"/benchmarks/{benchmark.pk}").content.decode()
