"""All pages: they render, say what to do when empty, never answer 500, and show nothing of others."""

from __future__ import annotations

import json
import re

import pytest
from django.urls import reverse
from django.utils import timezone

from hacrl_web.runs.models import Run, Sweep
from hacrl_web.runs.templatetags.formats import size
from tests.support.web import factories
from tests.support.web.page_text import complete, text_of
from workers.contract.demo_recipe import AGENTS

EMPTY_PAGES = {
    "home": "From models to a first run",
    "runs:run_list": "Start the first run",
    "runs:sweep_list": "Compare algorithms in a sweep",
    "leaderboard:index": "Compare algorithms in a sweep",
    "runs:worker_list": "Start a run",
    "runs:run_create": "New agent group",
}


@pytest.mark.parametrize("name", EMPTY_PAGES)
def test_empty_page_says_what_to_do_next(web, name):
    response = web.get(reverse(name))
    assert response.status_code == 200
    assert EMPTY_PAGES[name] in text_of(response)


@pytest.mark.parametrize("name", EMPTY_PAGES)
def test_visitor_is_sent_to_the_login(client, db, name):
    response = client.get(reverse(name))
    assert response.status_code == 302
    assert response["Location"].startswith(reverse("accounts:login"))


def test_every_page_of_a_run_renders(web, user):
    run = factories.make_run(user)
    complete(run, {"A": (0.2, 0.7), "B": (0.2, 0.6)})
    pages = [reverse("home"), reverse("runs:run_list"), reverse("runs:worker_list"), reverse("leaderboard:index")]
    own_pages = ("", "/rollouts", "/config", "/events", "/system", "/checkpoints", "?tab=logs", "?tab=%00")
    pages += [run.get_absolute_url() + end for end in own_pages]
    pages.append(reverse("runs:metrics_csv", args=[run.pk]))
    for page in pages:
        assert web.get(page).status_code == 200, page


@pytest.mark.parametrize(
    "query", ["page=-1", "page=x", "page=99999999999999999999", "state=bogus", "q=%00%ff", "q=" + "x" * 5000]
)
def test_odd_queries_of_the_run_list_are_harmless(web, user, query):
    factories.make_run(user)
    assert web.get(reverse("runs:run_list") + "?" + query).status_code == 200


def test_run_list_filters_by_state_and_name(web, user):
    factories.make_run(user, name="first light")
    done = factories.make_run(user, name="second sight")
    Run.objects.filter(pk=done.pk).update(state="completed")
    assert "first light" not in text_of(web.get(reverse("runs:run_list") + "?state=completed"))
    found = text_of(web.get(reverse("runs:run_list") + "?q=LIGHT"))
    assert "first light" in found
    assert "second sight" not in found


def test_run_list_counts_what_its_links_lead_to(web, user):
    for name in ("first light", "second light", "second sight"):
        factories.make_run(user, name=name)
    Run.objects.filter(name="second sight").update(state="completed")
    Run.objects.filter(name="first light").update(state="failed", archived_at=timezone.now())
    text = text_of(web.get(reverse("runs:run_list") + "?q=light"))
    assert "1 found, without 1 archived" in text
    for query, number in (("q=light", 1), ("q=light&amp;state=queued", 1), ("q=light&amp;archived=1", 1)):
        href = f'href="?{query}"'
        assert f'<span class="number">{number}</span>' in text.split(href)[1].split("</a>")[0], query
    assert 'state=completed"' not in text
    text = text_of(web.get(reverse("runs:run_list") + "?q=light&state=completed"))
    assert 'state=completed&amp;q=light" aria-current="true"' in text, "the filter that is on can be seen"


def test_foreign_runs_and_sweeps_do_not_exist(web, user):
    owner = factories.make_user()
    run = factories.make_run(owner, name="their run")
    sweep = Sweep.objects.create(owner=owner, name="theirs")
    for name in ("runs:run_detail", "insight:run_rollouts", "runs:run_clone", "runs:metrics_csv"):
        assert web.get(reverse(name, args=[run.pk])).status_code == 404, name
    assert web.post(reverse("runs:run_stop", args=[run.pk])).status_code == 404
    assert web.get(reverse("runs:sweep_detail", args=[sweep.pk])).status_code == 404
    assert run.name not in text_of(web.get(reverse("runs:run_list")))
    run.refresh_from_db()
    assert run.desired_state == "run"


def test_page_of_a_sweep_of_the_demos_agents_says_what_they_do_not_show(web, user):
    sweep = Sweep.objects.create(owner=user, name="any")
    run = factories.launch_within(sweep, factories.launch_request(user))
    assert "no estimate" not in text_of(web.get(sweep.get_absolute_url()))
    run.spec["data"]["benchmark"] = "Order of operations"  # the demo's questions, asked of others
    run.save()
    assert "no estimate" not in text_of(web.get(sweep.get_absolute_url()))
    for agent, name in zip(run.spec["agents"], AGENTS.values(), strict=True):
        agent["name"] = name
    run.save()
    assert "do not show how much HACPO helps in general" in text_of(web.get(sweep.get_absolute_url()))


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10_035, "9.8 KiB"), (1_005_568, "982 KiB"),
     (1_048_575, "1.0 MiB"), (1_048_576, "1.0 MiB"), (104_857_600, "100 MiB"), (3 * 2**30, "3.0 GiB")],
)  # fmt: skip
def test_bytes_are_written_in_one_way(num_bytes, text):
    assert size(num_bytes) == text


def test_hostile_names_stay_text(web, user):
    name = "</script><script>alert(1)</script>"
    run = factories.make_run(user, name=name)
    for page in (run.get_absolute_url(), reverse("runs:run_list"), reverse("home")):
        assert "<script>alert(1)" not in text_of(web.get(page)), page


def test_leaderboard_shows_the_gain_paired_by_seed(web, user):
    sweep = Sweep.objects.create(owner=user, name="compared")
    shared = factories.launch_request(user)
    gained = {("gspo", 0): 0.4, ("gspo", 1): 0.5, ("hacpo", 0): 0.6, ("hacpo", 1): 0.75}
    for (algorithm, seed), accuracy in gained.items():
        run = factories.launch_within(sweep, {**shared, "algorithm": {"name": algorithm}, "seed": seed})
        complete(run, {"A": (0.2, accuracy), "B": (0.2, accuracy)})
    for page in (reverse("leaderboard:index"), sweep.get_absolute_url()):
        html = text_of(web.get(page))
        row = html[html.index('data-algorithm="hacpo"') :]
        assert "+0.225" in row[: row.index("</tr>")]  # ((.6 - .4) + (.75 - .5)) / 2
        assert "0.675" in row[: row.index("</tr>")]  # (.6 + .75) / 2
    figure = json.loads(re.search(r'id="pareto-\w+" type="application/json">(.*?)</script>', html, re.DOTALL)[1])
    assert figure["data"][0]["name"] == "hacpo"


def test_pages_hold_no_inline_script_style_or_handler(web, user):
    run = factories.make_run(user)
    complete(run, {"A": (0.2, 0.7), "B": (0.2, 0.6)})
    pages = [reverse(name) for name in EMPTY_PAGES] + [run.get_absolute_url()]
    for page in pages:
        html = text_of(web.get(page))
        scripts = re.findall(r"<script([^>]*)>", html)
        assert all("src=" in attributes or 'type="application/json"' in attributes for attributes in scripts), page
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", html), page
        assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", html), page


def test_unknown_address_is_a_page_and_not_a_traceback(web):
    response = web.get("/no/such/page")
    assert response.status_code == 404
    assert "Go to the home page" in text_of(response)


def test_form_without_its_csrf_token_is_refused_with_the_reason(user):
    from django.test import Client

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    response = strict.post(reverse("runs:run_create"), {"name": "x"})
    assert response.status_code == 403
    assert "This form has expired" in text_of(response)


@pytest.mark.parametrize("origin", ["null", "http://testserver:81", "https://elsewhere.example"])
def test_form_of_another_origin_is_not_called_expired(user, origin):
    from django.test import Client

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    response = strict.post(reverse("runs:run_create"), {"name": "x"}, HTTP_ORIGIN=origin)
    assert response.status_code == 403
    assert "This form came from another address" in text_of(response)
    assert "expired" not in text_of(response)


def test_number_in_the_header_is_what_its_link_shows(web, user):
    for state in ("queued", "starting", "running", "running", "paused"):
        Run.objects.filter(pk=factories.make_run(user).pk).update(state=state)
    html = text_of(web.get("/runs/"))
    shown = re.search(r'class="top-running" href="([^"]+)".*?<strong[^>]*>(\d+)</strong>', html)
    assert shown.group(2) == "3"  # a run that is starting is under way too
    assert web.get(shown.group(1)).context["page"].paginator.count == 3
