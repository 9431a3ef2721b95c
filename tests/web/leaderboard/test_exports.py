"""CSV, LaTeX, JSON and the report hold the numbers of the page, and nothing in a name becomes formula or markup."""

import csv
import io
import json
import re

import pytest
from django.urls import reverse

from hacrl_web.leaderboard.render.latex import escaped
from hacrl_web.runs.models import Run, Sweep
from tests.support.web.leaderboard_help import by_name, finish, finished_sweep, groups_of, sweep_of, table_of

pytestmark = pytest.mark.django_db
FINALS = {"gspo": (0.3, 0.31, 0.35), "gspox2": (0.6, 0.5, 0.7), "hacpo": (0.61, 0.63, 0.6666)}


def fetch(web, sweep, name, **query) -> str:
    response = web.get(reverse(f"leaderboard:{name}"), {"sweep": sweep.pk} | query)
    assert response.status_code == 200
    body = b"".join(response.streaming_content) if response.streaming else response.content
    assert "attachment" in response["Content-Disposition"]
    return body.decode()


def page(web, sweep, **query) -> str:
    return web.get(reverse("leaderboard:board"), {"sweep": sweep.pk} | query).content.decode()


def test_csv_holds_the_whole_numbers_of_the_page(web, user):
    sweep = finished_sweep(user, FINALS)
    table = table_of(sweep)
    head, *lines = csv.reader(io.StringIO(fetch(web, sweep, "board_csv")))
    assert {len(line) for line in lines} == {len(head)}
    name = f"{table.last.key} avg@1"
    shown = page(web, sweep)
    for group in table.groups:
        line = next(dict(zip(head, cells, strict=True)) for cells in lines if cells[1] == group.row.id)
        cell = table.cell(group)
        assert (line["algorithm"], line["agent"], line["seeds"]) == (group.row.algorithm, "mean", "1 2 3")
        assert float(line[name]) == cell.score.mean
        assert float(line[f"{name} ±"]) == cell.score.half_width
        assert f'title="{line[name]}"' in shown  # the hover of the page
        assert line[f"{name} mark"] == cell.mark
        assert (float(line["rollouts"]), float(line["training_hours"])) == (1000, pytest.approx(0.01))
        if cell.difference:
            assert float(line[f"{name} minus gspo"]) == cell.difference.mean
            assert line[f"{name} verdict"] == cell.comparison
    assert [line[4] for line in lines if line[2] == "start"] == ["mean", "A", "B"]


def test_latex_holds_the_texts_of_the_page(web, user):
    sweep = finished_sweep(user, FINALS)
    tex, shown = fetch(web, sweep, "board_tex"), page(web, sweep)
    assert r"\toprule" in tex
    for algorithm in FINALS:
        rows = shown[shown.index(f'data-algorithm="{algorithm}"') :]
        score = re.search(r'class="score"[^>]*><span[^>]*>([\d.]+)</span>', rows)[1]
        line = next(line for line in tex.splitlines() if line.startswith(f"{algorithm} &"))
        assert score in line
        difference = re.search(r"common seeds?\">([+−][\d.]+)", rows)
        if algorithm != "gspo":
            assert difference[1].replace("−", "-") in line
    hacpo = next(line for line in tex.splitlines() if line.startswith("hacpo"))
    assert r"{\underline{0.636}} & \ $\pm$ " in hacpo  # (.61 + .63 + .6666) / 3, tied with gspox2
    # Each line has a cell for each of the columns that the tabular names; a head or a dash stands in several.
    columns = re.search(r"begin\{tabular\}\{(\S+)\}$", tex, re.MULTILINE)[1].replace("@{}", "")
    assert columns.startswith("llSlrSlS")
    rows = [line for line in tex.splitlines() if line.endswith(r"\\")]
    widths = [
        line.count(" & ") + 1 + sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d)\}", line)) for line in rows
    ]
    assert set(widths) == {len(columns)}


def test_json_holds_every_run_behind_a_score(web, user):
    sweep = sweep_of(user, ["hacpo"], [1, 2])
    runs = by_name(sweep)
    finish(runs["hacpo", 1], {"A": 0.4, "B": 0.6}, verifier="math/3", versions={"hacrl": "0.1.0 abcd"})
    Run.objects.filter(pk=runs["hacpo", 2].pk).update(state="failed", reason="out of memory")
    found = json.loads(fetch(web, sweep, "board_json"))
    (row,) = found["rows"]
    assert row["lines"][0]["scores"][found["columns"][-1]["title"]]["by_seed"] == {"1": 0.5}
    assert row["without_a_score"] == ["1 of 2 seeds failed"]
    assert [(run["seed"], run["state"], run.get("reason")) for run in row["runs"]] == [
        (1, "completed", None),
        (2, "failed", "out of memory"),
    ]
    assert row["runs"][0]["versions"] == {"hacrl": "0.1.0 abcd"}
    assert set(row["facts"].values()) >= {"math/3"}
    assert found["address"].endswith(f"/leaderboard/board?sweep={sweep.pk}")


def test_papers_rows_are_marked_in_every_file(web, user):
    sweep = sweep_of(user, ["gspo"], [1])
    finish(sweep.runs.get(), {"A": 0.4, "B": 0.4}, further={"GSM8K": {"A": 0.5, "B": 0.5}})
    lines = list(csv.reader(io.StringIO(fetch(web, sweep, "board_csv"))))
    reported = [line for line in lines if line[0].startswith("reported (arXiv 2603.02604, Table 1)")]
    assert len(reported) == 12
    assert "0.907" in reported[0]  # 4B, base, GSM8K as printed
    tex = fetch(web, sweep, "board_tex")
    assert "0.907" in tex.partition("% reported (arXiv 2603.02604)")[2]
    assert "0.907" not in tex.partition("% reported (arXiv 2603.02604)")[0]
    assert json.loads(fetch(web, sweep, "board_json"))["reported"]["source"] == "arXiv 2603.02604"


def test_no_cell_of_the_csv_is_a_formula(web, user):
    sweep = sweep_of(user, ["gspo"], [1])
    evil = '=HYPERLINK("http://x")'
    finish(sweep.runs.get(), {"A": 0.4, "B": 0.4}, further={evil: {"A": 0.5, "B": 0.5}})
    cells = [cell for line in csv.reader(io.StringIO(fetch(web, sweep, "board_csv"))) for cell in line]
    assert [cell for cell in cells if evil in cell]
    assert not [cell for cell in cells if cell[:1] in "=@\t" and cell]


def test_names_are_plain_text_in_latex():
    assert escaped(r"50%_of $x$ & #1 {a}\input~^") == (
        r"50\%\_of \$x\$ \& \#1 \{a\}\textbackslash{}input\textasciitilde{}\textasciicircum{}"
    )
    assert escaped("a\nb\x00c") == "abc"


def test_benchmark_whose_name_begins_with_a_dollar_is_plain_text_in_latex(web, user):
    # TeX reads ^^5c as a backslash and ^^2f as a slash, so that a name needs neither.
    evil = "$^^5cinput{^^2fetc^^2fpasswd}$"
    sweep = sweep_of(user, ["gspo"], [1])
    finish(sweep.runs.get(), {"A": 0.4, "B": 0.4}, further={evil: {"A": 0.5, "B": 0.5}})
    tex = fetch(web, sweep, "board_tex")
    assert escaped(evil) in tex
    assert "^^5c" not in tex


def test_name_cannot_end_the_comment_of_the_latex_file(web, user):
    sweep = finished_sweep(user, {"gspo": (0.4,)})
    Sweep.objects.filter(pk=sweep.pk).update(name="a\n\\input{secret}")
    first = fetch(web, sweep, "board_tex").splitlines()[0]
    assert first == r"% a \input{secret}"


def test_report_stands_alone_and_tells_of_failed_runs(web, user):
    sweep = finished_sweep(user, FINALS)
    Run.objects.filter(pk=by_name(sweep)["gspox2", 3].pk).update(state="failed", reason="out <b>of</b> memory")
    html = fetch(web, sweep, "report")
    assert not re.search(r"<script|\ssrc=|<link|@import|url\(|\son[a-z]+=", html)
    assert "<svg" not in html  # the pictures are on the page of the board
    for words in ("gspox2: 1 of 3 seeds failed", "out &lt;b&gt;of&lt;/b&gt; memory", "What the numbers do not show"):
        assert words in html, words
    hacpo = groups_of(table_of(sweep))["hacpo"]
    assert f'title="{next(iter(hacpo.head.cells.values())).score.mean}"' in html
    assert "algorithm.scale_rewards" in html  # a setting that all share


def test_report_of_a_sweep_without_a_score_is_a_page_too(web, user):
    sweep = sweep_of(user, ["gspo"], [1])
    html = fetch(web, sweep, "report")
    assert "<svg" not in html
    assert "1 of 1 seeds to come" in html
