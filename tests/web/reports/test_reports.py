"""Reports: what a text becomes on the page, who may read and change it, and that a reader sees only what is theirs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.urls import reverse

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.reports import content
from hacrl_web.reports.content import FIRST_PANELS, ReportPart, panel_at, report_parts
from hacrl_web.reports.models import Report
from hacrl_web.reports.panels import MAX_PANELS
from hacrl_web.reports.reports import MAX_TEXT, change_report, create_report, delete_report
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import make_member, make_run, make_user
from tests.support.web.leaderboard_help import finished_sweep

pytestmark = pytest.mark.django_db
HOSTS = {"testserver"}


@pytest.fixture
def owner(client):
    user = make_user("ada")
    client.force_login(user)
    return user


@pytest.fixture
def project(owner):
    return owner.memberships.get().project


def parts(user: Any, text: str, reader: Any = None) -> list[ReportPart]:
    report = create_report(user, user.memberships.get().project, "Title", text)
    return report_parts(report, reader or user, HOSTS)


def html(found: list[ReportPart]) -> str:
    return "".join(part.html or (part.panel.html if part.panel else "") for part in found)


class TestText:
    @pytest.mark.parametrize(
        "hostile",
        [
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "[x](javascript:alert(1))",
            "[x](data:text/html;base64,PHNjcmlwdD4=)",
            '[x](https://a.example/"onmouseover="alert(1))',
            "![x](javascript:alert(1))",
            "<a href='javascript:alert(1)'>x</a>",
        ],
    )
    def test_text_cannot_run_code(self, owner, hostile):
        found = html(parts(owner, f"before\n\n{hostile}\n\nafter"))
        assert "<script" not in found
        assert "<img" not in found
        for tag in found.split("<")[1:]:  # what is escaped may stand in the text, not within a tag
            inside = tag.partition(">")[0]
            assert " on" not in inside
            assert "javascript:" not in inside
            assert "data:" not in inside

    def test_pictures_are_links_that_tell_nothing(self, owner):
        (part,) = parts(owner, "![A plot](https://else.example/p.png) and [a page](https://else.example/)")
        assert '<a href="https://else.example/p.png" rel="noopener noreferrer">A plot</a>' in part.html
        assert part.html.count("noreferrer") == 2

    def test_deep_nesting_and_long_texts_are_quick(self, owner):
        assert html(parts(owner, ">" * 20_000 + " deep"))
        assert html(parts(owner, "[" * 4000))

    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("![" * 4001, "4,000 square brackets"),
            ("|a|b|\n|-|-|\n" + "|x|y|\n" * 2700, "8,000 cells"),
            ("x\n\n" * 2001, "4,000 lines"),
        ],
    )
    def test_text_that_takes_long_to_read_is_refused_in_words(self, client, owner, project, text, part):
        with pytest.raises(FieldErrors, match=part):
            create_report(owner, project, "Title", text)
        preview = client.post(reverse("reports:report_create"), {"title": "T", "text": text, "do": "preview"})
        assert f"at most {part}" in preview.content.decode()
        stored = Report.objects.create(owner=owner, project=project, title="Old", text=text)  # from before the limits
        (shown,) = report_parts(stored, owner, HOSTS)
        assert part in shown.html
        assert "<pre" in shown.html


class TestPanels:
    def test_board_is_live(self, owner):
        sweep = finished_sweep(owner, {"gspo": [0.3, 0.4], "hacpo": [0.5, 0.7]})
        before, board, after = parts(owner, f"Before\n\n/leaderboard/board?sweep={sweep.pk}\n\nAfter")
        assert "Before" in before.html
        assert "After" in after.html
        assert board.panel.title == sweep.name
        assert "0.600" in board.panel.html
        (of_sweep,) = parts(owner, f"http://testserver{sweep.get_absolute_url()}")
        assert "0.600" in of_sweep.panel.html
        run = sweep.runs.get(algorithm="hacpo", seed=sweep.runs.order_by("seed").first().seed)
        run_benchmark = {"benchmark": run.spec["data"]["benchmark"], "metric": "accuracy", "correct": 1, "asked": 1}
        run.events.filter(type="evaluation", step=5).update(payload=run_benchmark | {"value": 0.9})
        assert "0.800" in html(parts(owner, f"/leaderboard/board?sweep={sweep.pk}"))

    def test_run_shows_its_result_and_curve(self, owner):
        sweep = finished_sweep(owner, {"gspo": [0.3], "hacpo": [0.5]})
        run = sweep.runs.get(algorithm="hacpo")
        (part,) = parts(owner, f"[The best one](/runs/{run.pk}/?tab=overview)")
        panel = part.panel
        assert panel.title == "The best one"
        assert run.name in panel.html
        figure = json.loads(panel.html.split('type="application/json">')[1].split("</script>")[0])
        assert [trace["name"] for trace in figure["data"]] == run.agent_names
        assert all(list(trace["y"]) == [0.1, 0.5] for trace in figure["data"])

    def test_comparison_shows_the_visible_runs(self, owner):
        sweep = finished_sweep(owner, {"gspo": [0.3], "hacpo": [0.5]})
        ids = "&".join(f"runs={run.pk}" for run in sweep.runs.all())
        (part,) = parts(owner, f"/runs/?{ids}&tab=compare")
        assert part.panel.title == "2 runs"
        assert "0.500" in part.panel.html
        assert "the baseline" in part.panel.html

    def test_what_has_no_panel_stays_text(self, owner):
        run = make_run(owner)
        for text in (
            f"See /runs/{run.pk}/ for more",
            f"- /runs/{run.pk}/",
            f"> /runs/{run.pk}/",
            f"`/runs/{run.pk}/`",
            f"https://else.example/runs/{run.pk}/",
            f"//else.example/runs/{run.pk}/",
            "/models/",
            "/no/such/page",
            "http://[broken/",
            "ftp://testserver/runs/",
        ):
            assert [part.panel for part in parts(owner, text)] == [None], text

    def test_panels_have_a_limit_and_ids_of_their_own(self, owner):
        sweep = finished_sweep(owner, {"gspo": [0.3], "hacpo": [0.5]})
        found = parts(owner, f"{sweep.get_absolute_url()}\n\n" * (MAX_PANELS + 3))
        assert sum(part.panel is not None for part in found) == FIRST_PANELS
        assert sum(part.later is not None for part in found) == MAX_PANELS - FIRST_PANELS
        assert html(found).count(f">{sweep.get_absolute_url()}</a>") == 3
        panels = [panel_at(Report.objects.get(), owner, HOSTS, number) for number in range(1, MAX_PANELS + 1)]
        ids = [piece.split('"')[0] for panel in panels for piece in panel.html.split('data-figure="')[1:]]
        assert len(ids) == len(set(ids)) == MAX_PANELS
        assert panel_at(Report.objects.get(), owner, HOSTS, MAX_PANELS + 1) is None

    def test_panels_further_down_are_fetched_one_by_one(self, client, owner, project):
        """A page of many panels would keep a process for seconds."""
        run = make_run(owner)
        address = run.get_absolute_url()
        report = create_report(owner, project, "Title", "\n\n".join(f"[Panel {n}]({address})" for n in range(1, 6)))
        page = client.get(report.get_absolute_url()).content.decode()
        urls = re.findall(r'hx-get="([^"]+)"', page)
        assert urls == [f"/reports/{report.pk}/panels/{number}?version=1" for number in (3, 4, 5)]
        assert page.count("Loading…") == 3
        assert page.count(run.name) >= FIRST_PANELS
        panel = client.get(urls[0]).content.decode()
        assert "<h2>Panel 3</h2>" in panel
        assert run.name in panel
        change_report(owner, report, 1, "Title", "other")
        assert "load the page again" in client.get(urls[0]).content.decode()

    def test_address_of_a_page_without_a_panel_becomes_a_link(self, owner):
        run = make_run(owner)
        address = f"/runs/{run.pk}/collaboration"
        (part,) = parts(owner, address)
        assert part.html == f'<p><a href="{address}">{address}</a></p>\n'
        (whole,) = parts(owner, f"http://testserver{address}?step=1")
        assert f'<a href="{address}?step=1">http://testserver{address}?step=1</a>' in whole.html
        assert "<a" not in html(parts(owner, "/no/such/page"))

    def test_addresses_that_are_looked_up_have_a_limit(self, owner):
        found = html(parts(owner, "/models/\n\n" * (content.MAX_ADDRESSES + 10)))
        assert found.count("<a ") == content.MAX_ADDRESSES

    def test_reader_sees_only_what_is_theirs(self, owner, project):
        """A report may name runs of a project that its readers are not in."""
        stranger = make_user("eve")
        foreign = finished_sweep(stranger, {"gspo": [0.3], "hacpo": [0.5]})
        run = foreign.runs.first()
        texts = [
            f"/runs/{run.pk}/",
            f"/runs/?runs={run.pk}",
            foreign.get_absolute_url(),
            "/leaderboard/board?sweep=99999",
        ]
        boards = (f"sweep={foreign.pk}", f"group={run.group_id}&benchmark={run.benchmark_id}")
        texts += [f"/leaderboard/board?{query}" for query in boards]
        for text in texts:
            (part,) = parts(owner, text)
            assert part.panel.problem, text
            assert not part.panel.html
            assert foreign.name not in part.panel.title
        report = create_report(owner, project, "Shared", foreign.get_absolute_url())
        boss = make_user("root", is_staff=True)
        assert report_parts(report, boss, HOSTS)[0].panel.html

    def test_hostile_addresses(self, owner):
        for query in (
            "sweep=9" * 3000,
            "sweep=" + "9" * 30,
            "sweep=%00",
            "group=x&benchmark=-1",
            "sweep=1&sweep=" * 40,
        ):
            for part in parts(owner, f"/leaderboard/board?{query}"):
                assert part.panel is None or part.panel.problem
        run = make_run(owner)
        (part,) = parts(owner, f"/runs/{run.pk}/?full=%00%22%3E%3Cscript%3E&metric=x")
        assert "<script>" not in part.panel.html


class TestPages:
    def test_written_previewed_changed_and_deleted(self, client, owner):
        answer = client.get(reverse("reports:report_list"))
        assert "No reports yet" in answer.content.decode()
        form = {"title": "  What  sharing brings ", "text": "# Yes\r\n\r\nIt *does*", "do": "preview"}
        preview = client.post(reverse("reports:report_create"), form)
        assert preview.status_code == 200
        assert "<em>does</em>" in preview.content.decode()
        assert not Report.objects.exists()
        saved = client.post(reverse("reports:report_create"), form | {"do": "save"})
        report = Report.objects.get()
        assert saved.headers["location"] == report.get_absolute_url()
        assert (report.title, report.text, report.version) == ("What sharing brings", "# Yes\n\nIt *does*", 1)
        page = client.get(report.get_absolute_url()).content.decode()
        assert "<em>does</em>" in page
        assert "What sharing brings" in page
        edit = reverse("reports:report_edit", args=[report.pk])
        assert client.get(edit).status_code == 200
        client.post(edit, {"title": "New", "text": "x", "version": "1", "do": "save"})
        report.refresh_from_db()
        assert (report.title, report.version, report.changed_by) == ("New", 2, "ada")
        text = client.get(reverse("reports:report_text", args=[report.pk]))
        assert b"".join(text.streaming_content) == b"# New\n\nx"
        assert "New" in client.get(reverse("reports:report_list") + "?q=ne").content.decode()
        delete = reverse("reports:report_delete", args=[report.pk])
        assert client.get(delete).status_code == 200
        assert Report.objects.exists()
        client.post(delete)
        assert not Report.objects.exists()
        acts = [entry.action for entry in AuditEntry.objects.filter(kind="report").order_by("pk")]
        assert acts == ["created", "changed", "deleted"]

    def test_second_writer_overwrites_nothing_and_keeps_the_text(self, client, owner, project):
        report = create_report(owner, project, "Title", "first")
        change_report(make_member(project, "member", "bob"), report, 1, "Title", "by bob")
        edit = reverse("reports:report_edit", args=[report.pk])
        answer = client.post(edit, {"title": "Title", "text": "by ada", "version": "1", "do": "save"})
        page = answer.content.decode()
        assert answer.status_code == 409
        assert "bob has saved version 2" in page
        assert "by ada" in page
        report.refresh_from_db()
        assert report.text == "by bob"
        again = client.post(edit, {"title": "Title", "text": "by ada", "version": "1", "do": "save"})
        assert again.status_code == 409, "the form keeps the version that was edited"

    @pytest.mark.parametrize("fields", [{"title": ""}, {"title": "x" * 121}, {"text": "x" * (MAX_TEXT + 1)}])
    def test_what_is_refused_stays_in_the_form(self, client, owner, fields):
        form = {"title": "T", "text": "body of it", "do": "save"} | fields
        answer = client.post(reverse("reports:report_create"), form)
        assert answer.status_code == 422
        assert not Report.objects.exists()
        assert form["text"][:10] in answer.content.decode()


class TestAccess:
    def test_viewers_read_and_strangers_see_nothing(self, client, owner, project):
        report = create_report(owner, project, "Title", "text")
        names = ("report", "report_text", "report_edit", "report_delete")
        pages = {name: reverse(f"reports:{name}", args=[report.pk]) for name in names}
        client.force_login(make_member(project, "viewer", "vera"))
        assert client.get(pages["report"]).status_code == client.get(pages["report_text"]).status_code == 200
        assert "Edit</a>" not in client.get(pages["report"]).content.decode()
        for name in ("report_edit", "report_delete"):
            assert client.get(pages[name]).status_code == client.post(pages[name], {"title": "x"}).status_code == 403
        client.force_login(make_user("eve"))
        assert {client.get(page).status_code for page in pages.values()} == {404}
        client.logout()
        assert {client.get(page).status_code for page in pages.values()} == {302}
        report.refresh_from_db()
        assert report.title == "Title"

    def test_members_change_all_and_delete_their_own(self, owner, project):
        report = create_report(owner, project, "Title", "text")
        member = make_member(project, "member", "bob")
        change_report(member, report, 1, "By bob", "text")
        with pytest.raises(FieldErrors) as refused:
            delete_report(member, report)
        assert refused.value.status == 403
        delete_report(make_member(project, "admin", "amy"), report)

    def test_api_does_the_same(self, client, owner, project):
        made = client.post("/api/v1/reports", {"title": "T", "text": "a"}, content_type="application/json")
        assert made.status_code == 201
        address = f"/api/v1/reports/{made.json()['id']}"
        assert client.get(address).json()["text"] == "a"
        assert [row["title"] for row in client.get("/api/v1/reports").json()["items"]] == ["T"]
        change = {"title": "T", "text": "b", "version": 1}
        assert client.put(address, change, content_type="application/json").json()["version"] == 2
        conflict = client.put(address, change, content_type="application/json")
        assert (conflict.status_code, conflict.json()["error"]["code"]) == (409, "conflict")
        refused = client.put(address, {"title": "T", "version": 2}, content_type="application/json")
        assert (refused.status_code, refused.json()["error"]["field"]) == (422, "text")
        assert client.get(address).json()["text"] == "b"
        client.post("/api/v1/reports", {"title": "U", "text": ""}, content_type="application/json")
        page = client.get("/api/v1/reports?limit=1").json()
        assert (page["count"], [row["title"] for row in page["items"]]) == (2, ["U"])
        rest = client.get("/api/v1/reports", {"limit": 1, "cursor": page["next"]}).json()
        assert ([row["title"] for row in rest["items"]], rest["next"]) == (["T"], None)
        client.force_login(make_user("eve"))
        assert client.get(address).status_code == client.delete(address).status_code == 404
        client.force_login(owner)
        assert client.delete(address).status_code == 204
        assert client.get(address).status_code == 404
