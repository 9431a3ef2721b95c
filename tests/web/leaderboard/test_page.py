"""The pages of the leaderboard: a board by its address, a row's runs, the paper's rows apart, foreign boards hidden."""

import json
import re

import pytest
from django.http import QueryDict
from django.urls import reverse

from hacrl_web.leaderboard.board import paper
from hacrl_web.leaderboard.board.boards import sweep_board
from hacrl_web.leaderboard.board.selection import read_selection
from hacrl_web.leaderboard.board.table import headline
from hacrl_web.runs.launch.launch import launch
from hacrl_web.runs.models import Run, Sweep
from tests.support.web.factories import launch_request, make_user
from tests.support.web.leaderboard_help import by_name, finish, finished_sweep, sweep_of, table_of
from workers.contract.demo_recipe import AGENTS

pytestmark = pytest.mark.django_db
BOARD = ("board", "board_csv", "board_tex", "board_json", "report", "row")


def show(web, source, name="board", **query):
    named = {"sweep": source.pk} if isinstance(source, Sweep) else source
    return web.get(reverse(f"leaderboard:{name}"), named | query)


def text(response) -> str:
    assert response.status_code == 200
    return response.content.decode()


def part(html: str, algorithm: str) -> str:
    """The rows of an algorithm."""
    start = html.index(f'data-algorithm="{algorithm}"')
    return html[start : html.index("</tbody>", start)]


def test_board_of_a_sweep_and_of_single_runs_are_reached_by_address(web, user):
    sweep = finished_sweep(user, {"gspo": (0.4, 0.5), "hacpo": (0.6, 0.75)})
    rows = part(text(show(web, sweep)), "hacpo")
    assert "+0.225" in rows  # ((.6 - .4) + (.75 - .5)) / 2
    assert "(unclear)" in rows  # .2 and .25: 12.7 * .035 / sqrt(2) = .32
    request = launch_request(user)
    finish(launch(user, request), {"A": 0.5, "B": 0.5})
    html = text(show(web, {"group": request["group"], "benchmark": request["benchmark"]}))
    assert "0.500" in part(html, "hacpo")


def test_look_is_kept_in_every_address_of_the_page(web, user):
    sweep = finished_sweep(user, {"gspo": (0.4, 0.5), "hacpo": (0.6, 0.75)})
    look = {"baseline": "hacpo", "show": "difference", "cost": "tokens", "sort": "algorithm"}
    response = show(web, sweep, **look, column=["seeds", "gain"])
    html = text(response)
    assert response.context["selection"].baseline == "hacpo"
    assert "−0.225" in part(html, "gspo")
    links = re.findall(r'href="[^"?]*board\.(?:csv|tex|json)\?([^"]+)"', html)
    assert len(links) == 3
    for link in links:
        words = set(link.replace("&amp;", "&").split("&"))
        assert words >= {f"{name}={value}" for name, value in look.items()} | {"column=seeds", "column=gain"}
    assert "Training hours<br>" not in html


@pytest.mark.parametrize("name", BOARD)
@pytest.mark.parametrize(
    "query", ["?sweep=x", "?sweep=9999999", f"?sweep={'9' * 30}", "?group=1", "?group=-1&benchmark=1"]
)
def test_board_that_is_not_there_is_a_404(web, name, query):
    assert web.get(reverse(f"leaderboard:{name}") + query).status_code == 404


@pytest.mark.parametrize("name", BOARD)
def test_foreign_board_is_a_404_and_boards_are_only_read(web, name):
    owner = make_user()
    foreign = finished_sweep(owner, {"gspo": (0.4,)})
    row = foreign.runs.get()
    single = launch(owner, launch_request(owner))
    finish(single, {"A": 0.5, "B": 0.5})
    queries = [{"sweep": foreign.pk}, {"group": single.group_id, "benchmark": single.benchmark_id}]
    for query in [*queries, {"sweep": [foreign.pk, foreign.pk]}]:
        assert web.get(reverse(f"leaderboard:{name}"), query | {"row": row.pk}).status_code == 404
        for verb in (web.post, web.put, web.patch, web.delete):
            assert verb(reverse(f"leaderboard:{name}"), query).status_code == 405


def test_sweeps_are_ticked_in_the_list_and_none_leads_back_to_it(web, user):
    sweeps = [finished_sweep(user, {"gspo": (0.4,)}) for _ in range(2)]
    html = text(web.get(reverse("leaderboard:index")))
    assert all(f'name="sweep" value="{sweep.pk}" form="together"' in html for sweep in sweeps)
    both = show(web, {"sweep": [sweep.pk for sweep in sweeps]})
    assert len(both.context["table"].groups) == 2
    assert web.get(reverse("leaderboard:board"))["Location"] == reverse("leaderboard:index")


def test_own_board_beside_a_foreign_one_is_a_404(web, user):
    own, foreign = finished_sweep(user, {"gspo": (0.4,)}), finished_sweep(make_user(), {"gspo": (0.4,)})
    assert show(web, {"sweep": [own.pk, foreign.pk]}).status_code == 404
    assert show(web, {"sweep": [own.pk]}).status_code == 200


def test_missing_seeds_are_told_on_the_page(web, user):
    sweep = finished_sweep(user, {"gspo": (0.4, 0.5, 0.6), "hacpo": (0.6, 0.75)})
    Run.objects.filter(pk=by_name(sweep)["hacpo", 3].pk).update(state="failed")
    rows = part(text(show(web, sweep)), "hacpo")
    assert "2 of 3" in rows
    assert "1 of 3 seeds failed" in rows


def test_row_names_what_stands_behind_each_score(web, user):
    sweep = sweep_of(user, ["gspo"], [1, 2])
    runs = by_name(sweep)
    fields = {"verifier": "math/3", "questions": "ab" * 32, "versions": {"hacrl": "0.1.0 1234abcd"}}
    finish(runs["gspo", 1], {"A": 0.4, "B": 0.6}, **fields)
    Run.objects.filter(pk=runs["gspo", 2].pk).update(state="failed", reason="out of memory")
    board = text(show(web, sweep))
    link = re.search(r'class="score" href="([^"]+)"', board)[1].replace("&amp;", "&")
    page = text(web.get(link))
    for words in ("math/3", "ab" * 32, "0.1.0 1234abcd", "out of memory", "1 of 2 seeds failed", "model of A"):
        assert words in page, words
    assert reverse("insight:run_config", args=[runs["gspo", 1].pk]) in page


def test_papers_rows_stand_apart_and_only_beside_benchmarks_of_their_name(web, user):
    sweep = sweep_of(user, ["gspo"], [1])
    run = sweep.runs.get()
    assert "Reported (arXiv 2603.02604)" not in text(show(web, finished_sweep(user, {"gspo": (0.4,)})))
    finish(run, {"A": 0.4, "B": 0.4}, further={"MATH-500": {"A": 0.5, "B": 0.5}})
    html = text(show(web, sweep))
    measured, _, reported = html.partition('id="reported"')
    assert ">0.802<" in reported  # Table 1, 4B, base
    assert "0.802" not in measured
    assert "0.836" not in reported  # MATH, which this board has not
    assert "naive_source here may be another rule" in reported
    other = text(show(web, sweep, reported=paper.keys()[-1], cost="tokens"))
    form = other.partition('id="reported"')[2].partition("</form>")[0]
    assert '<input type="hidden" name="cost" value="tokens">' in form  # the rest of the look stays
    assert "Qwen3-1.7B-Base + Llama3.2-1B-Instruct" in other.partition('id="reported"')[2]


def test_papers_rows_are_as_printed():
    lines = paper.reported()
    assert len(lines) == 80
    hacpo = next(line for line in lines if line.table == "1" and line.agent == "4B" and line.algorithm == "HACPO")
    assert dict(hacpo.scores) == {
        "math500": "0.91", "math": "0.905", "gsm8k": "0.933", "aime2025": "0.622", "amc23": "0.85", "minerva": "0.423",
        "olympiad": "0.643", "avg": "0.755",
    }  # fmt: skip
    assert [paper.column_of(name) for name in ("OlympiadBench", "AIME 2025", "math-500", "Maths")] == [
        "olympiad",
        "aime2025",
        "math500",
        None,
    ]


def test_demo_says_what_it_shows_and_what_not(web, user):
    sweep = finished_sweep(user, {"gspo": (0.4,)})
    run = sweep.runs.get()
    agents = [agent | {"name": name} for agent, name in zip(run.spec["agents"], AGENTS.values(), strict=True)]
    Run.objects.filter(pk=run.pk).update(spec=run.spec | {"agents": agents})
    told = "They do not show that HACPO is better than naive sharing"
    assert told not in text(show(web, finished_sweep(user, {"gspo": (0.4,)})))
    for html in (text(show(web, sweep)), text(web.get(sweep.get_absolute_url()))):
        assert told in html
        assert "prototype of this comparison was a tie with GSPOx2" in html


def test_board_asks_the_database_as_often_for_sixty_runs_as_for_two(web, user, django_assert_max_num_queries):
    small = finished_sweep(user, {"gspo": (0.4, 0.5)})
    large = finished_sweep(user, {name: [0.4] * 20 for name in ("gspo", "hacpo", "gspox2")})
    for sweep in (small, large):
        with django_assert_max_num_queries(20):
            text(show(web, sweep))


def test_figures_of_the_page_are_json_and_not_script(web, user):
    sweep = finished_sweep(user, {"gspo": (0.4, 0.5)})
    html = text(show(web, sweep))
    found = re.findall(r'<script id="(\w+)-board" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert [name for name, _ in found] == ["seeds", "pareto"]
    assert all(json.loads(body)["data"] for _, body in found)


def test_sweep_answers_its_question_in_one_line(web, user):
    sweep = sweep_of(user, ["gspo", "gspox2", "hacpo"], [4])
    # Their seconds differ by what else their devices did: the sentence leaves them out.
    for name, score, rollouts in (("gspo", 0.4463, 1000), ("gspox2", 0.5013, 1900), ("hacpo", 0.6625, 1900)):
        finish(by_name(sweep)[name, 4], {"A": score, "B": score}, rollouts=rollouts, seconds=rollouts * score)
    html = web.get(sweep.get_absolute_url()).content.decode()
    benchmark, only = sweep.runs.first().spec["data"]["benchmark"], "(one seed: no interval)"
    said = f"hacpo is highest with 0.662 on {benchmark}: +0.216 {only} over gspo (0.446), with 1.9 times the rollouts"
    assert f"{said}; +0.161 {only} over gspox2 (0.501), with equal rollouts.</p>" in html
    assert ">+0.346</span>" in html, "what a row gained has its sign, as differences have"
    # The way to an interval: the form for further seeds, which holds what makes three.
    assert f'<a href="{sweep.get_absolute_url()}#more-seeds">' in html
    assert 'id="more-seeds" name="seeds" placeholder="3, 4" value="0, 1"' in html


def test_hacpo_stands_beside_the_baseline_also_where_another_row_is_highest(web, user):
    sweep = finished_sweep(user, {"gspo": (0.4,), "hacpo": (0.6,), "naive_source": (0.7,)})
    html = web.get(sweep.get_absolute_url()).content.decode()
    only = "(one seed: no interval)"
    assert (
        f"naive_source is highest with 0.700 on {sweep.runs.first().spec['data']['benchmark']}: +0.300 {only}" in html
    )
    assert f"+0.100 {only} over hacpo (0.600), with equal rollouts" in html
    assert f"hacpo has 0.600: +0.200 {only} over gspo (0.400), with equal rollouts" in html


def test_row_leads_only_where_every_interval_is_without_zero(user):
    # gaps .3 and .32: mean .31, s = .02 / sqrt(2), 12.706 * s / sqrt(2) = .127
    said = headline(table_of(finished_sweep(user, {"gspo": (0.4, 0.5), "hacpo": (0.7, 0.82)})))
    assert said.startswith("hacpo leads with 0.760 on ")
    assert "+0.310 ± 0.127 (95 %, 2 seeds) over gspo (0.450)" in said


def test_answer_over_seeds_says_where_no_difference_is_clear(web, user):
    # gaps .1 and -.05: mean .025, s = .15 / sqrt(2), 12.706 * s / sqrt(2) = .95
    sweep = finished_sweep(user, {"gspo": (0.4, 0.5), "hacpo": (0.5, 0.45)})
    html = text(web.get(sweep.get_absolute_url()))
    assert "hacpo is highest with 0.475 on " in html
    assert "+0.025 ± 0.953 (95 %, 2 seeds; the interval contains 0: no clear difference) over gspo (0.450)" in html


def test_saved_addresses_may_name_training_hours_device_hours(user):
    board = sweep_board(finished_sweep(user, {"gspo": (0.3,), "hacpo": (0.4,)}))
    chosen = read_selection(QueryDict("cost=device_hours&sort=device_hours&column=device_hours&column=seeds"), board)
    assert {chosen.cost, chosen.sort} == {"training_hours"}
    assert chosen.column == ("seeds", "training_hours")
