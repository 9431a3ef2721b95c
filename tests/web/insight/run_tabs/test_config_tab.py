"""The Config tab: two runs' settings side by side, setting by setting, for whoever may see both."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from hacrl_web.insight.settings_diff import ABSENT, cloned_baseline, diff_lines, is_same, sections
from hacrl_web.runs.launch.launch import launch_sweep
from tests.support.web.factories import launch_request, make_group, make_run, make_user

pytestmark = pytest.mark.django_db


def rows(client, run, **query) -> dict[str, list[str]]:
    """path -> the shown values."""
    answer = client.get(reverse("insight:run_config", args=[run.pk]), {"only": "all", **query})
    assert answer.status_code == 200
    found = re.findall(r'<th scope="row" class="mono">(.*?)</th>(.*?)</tr>', answer.content.decode())
    return {path: re.findall(r"<td[^>]*>(.*?)</td>", cells) for path, cells in found}


def test_difference_by_hand():
    """lr differs, alpha is 1 and 1.0, beta is 1 and true, the second has no agents.1 and the first no gamma."""
    first = {"lr": 0.1, "alpha": 1, "beta": 1, "agents": [{"n": "A"}, {"n": "B"}]}
    second = {"lr": 0.2, "alpha": 1.0, "beta": True, "agents": [{"n": "A"}], "gamma": None}
    found = diff_lines([first, second])
    assert [line.path for line in found] == ["lr", "alpha", "beta", "agents.0.n", "agents.1.n", "gamma"]
    assert [line.path for line in found if line.differs] == ["lr", "beta", "agents.1.n", "gamma"]
    assert found[4].values == ("B", ABSENT)
    assert [(one.title, one.num_different) for one in sections(found)] == [
        ("general", 3),
        ("agents.0", 0),
        ("agents.1", 1),
    ]
    assert not is_same(None, ABSENT)


def test_settings_that_differ_from_their_defaults_are_the_first_filter(client):
    """alpha is 1 by default, beta 0; a required setting, such as the benchmark's name, has no default."""
    owner = make_user()
    run = make_run(owner, algorithm={"name": "hacpo", "alpha": 0.5, "beta": 0.0})
    client.force_login(owner)
    paths = rows(client, run, only="default")
    assert "algorithm.alpha" in paths
    assert "data.benchmark" in paths
    assert "algorithm.beta" not in paths
    assert "algorithm.beta" in rows(client, run)
    page = client.get(reverse("insight:run_config", args=[run.pk])).content.decode()
    assert re.findall(r'class="filter"[^>]*>([^<]+) <', page) == ["differs from default", "all"]


def test_differences_only_shows_those_and_all_greys_the_others(client):
    owner = make_user()
    group = make_group(owner).pk
    one = make_run(owner, "first", group=group, seed=1)
    other = make_run(owner, "second", group=group, seed=2, algorithm={"name": "gspo"})
    client.force_login(owner)
    query = {"against": str(other.pk)}
    found = rows(client, one, **query, only="1")
    assert found == {
        "name": ["first", "second"],
        "seed": ["1", "2"],
        "data.benchmark": found["data.benchmark"],  # each request made its own benchmark
        "algorithm.name": ["hacpo", "gspo"],
    }
    whole = client.get(reverse("insight:run_config", args=[one.pk]), {**query, "only": "all"}).content.decode()
    assert whole.count('class="differs"') == 4
    assert whole.count('class="same"') == len(rows(client, one, **query)) - 4 > 80


def test_default_is_the_baseline_of_the_sweep_with_the_same_seed(client):
    owner = make_user()
    request = launch_request(owner)
    del request["algorithm"], request["seed"]
    sweep = launch_sweep(owner, {**request, "algorithms": ["hacpo", "gspo"], "seeds": [1, 2]})
    run = sweep.runs.get(algorithm="hacpo", seed=2)
    assert cloned_baseline(run, owner) == sweep.runs.get(algorithm="gspo", seed=2)
    assert cloned_baseline(sweep.runs.get(algorithm="gspo", seed=2), owner) == sweep.runs.get(algorithm="gspo", seed=1)
    client.force_login(owner)
    assert rows(client, run)["algorithm.name"] == ["hacpo", "gspo"]
    assert rows(client, run, against="none")["algorithm.name"] == ["hacpo"]
    assert cloned_baseline(make_run(owner), owner) is None


def test_setting_that_came_later_has_the_default_that_the_run_had(client):
    owner = make_user()
    one = make_run(owner, "old")
    other = make_run(owner, "new", group=one.group.pk, benchmark=one.benchmark.pk)
    del one.spec["telemetry"]["spool_quota_mib"]
    one.save()
    client.force_login(owner)
    assert list(rows(client, one, against=str(other.pk), only="1")) == ["name"]


def test_other_runs_are_found_by_name_sweep_and_id_and_never_foreign_ones(client):
    owner, stranger = make_user(), make_user()
    run, near = make_run(owner, "mine"), make_run(owner, "a swan <b>")
    foreign = make_run(stranger, "black swan")
    client.force_login(owner)

    def found(text):
        page = client.get(reverse("insight:run_config", args=[run.pk]), {"q": text}).content.decode()
        return re.findall(r"\?against=([0-9a-f-]{36})", page)

    assert found("SWAN") == [str(near.pk)]
    assert found(str(near.pk)) == [str(near.pk)]
    assert found(str(foreign.pk)) == found("mine") == []
    page = client.get(reverse("insight:run_config", args=[run.pk]), {"q": "<b>"}).content.decode()
    assert "a swan &lt;b&gt;" in page
    assert "a swan <b>" not in page


def test_foreign_other_run_is_404_and_old_addresses_lead_here(client):
    run, foreign = make_run(), make_run()
    client.force_login(run.owner)
    address = reverse("insight:run_config", args=[run.pk])
    assert client.get(address, {"against": str(foreign.pk)}).status_code == 404
    assert client.get(f"{run.get_absolute_url()}?tab=config")["Location"] == address


def test_setting_that_the_algorithm_does_not_read_is_said_to_be_not_used(client):
    owner = make_user()
    run = make_run(owner, algorithm={"name": "gspo"})
    other = make_run(owner, group=run.group_id, algorithm={"name": "hacpo"})
    client.force_login(owner)
    alone = rows(client, run)
    assert "algorithm.delta" not in alone
    assert "not used" not in alone["algorithm.epsilon"][0] + alone["algorithm.name"][0]
    assert rows(client, run, against=other.pk)["algorithm.delta"] == ["not there", "0.2"]
    unclipped = make_run(owner, group=run.group_id, algorithm={"name": "hacpo", "clip_cross": False})
    assert ["not used" in value for value in rows(client, unclipped, against=other.pk)["algorithm.delta"]] == [
        True,
        False,
    ]
