"""The log is searched on the server, downloaded whole, and counts what was left out; old texts are cleared visibly."""

import re

import pytest
from django.urls import reverse

from hacrl_web.runs.archive.disk_use import disk_use
from hacrl_web.runs.models import RolloutSample, Run, Worker
from hacrl_web.runs.telemetry import logs, table_upkeep
from hacrl_web.runs.telemetry.shipper import Shipper
from hacrl_web.runs.telemetry.table_upkeep import TableUpkeep, clear_texts
from tests.support.web.factories import make_run, metrics, write_spool
from workers.contract import trainer_log
from workers.contract.events import LeftOut, Log, Rollout
from workers.contract.trainer_log import allocated_bytes

NOT_HERE = "The run directory is not on this host."
pytestmark = pytest.mark.django_db


def stored(user, *bodies, **changes) -> Run:
    run = Run.objects.claim(make_run(user, **changes).pk, Worker("host", 1, 0.0, "here"))
    write_spool(run.run_dir, 1, *bodies)
    one = Shipper(run.pk, run.run_dir, 1)
    while one.ship().lines:
        pass
    return run


def rollout(step: int, sample: int = 0, text: str = "text") -> Rollout:
    numbers = {"answer": "7", "reward": 1.0, "num_tokens": 9, "mean_logp": -0.5}
    return Rollout(
        step=step,
        agent="A",
        prompt_id="1",
        sample=sample,
        prompt=text,
        completion=text,
        finish_reason="stop",
        **numbers,
    )


@pytest.fixture
def run(user):
    lines = [Log(message=f"step {number} done") for number in range(600)]
    return stored(
        user,
        *lines,
        Log(level="warning", message="100 % of <b>Loss</b> is NaN_1"),
        LeftOut(counts={"log": 1234, "rollout": 5}, reason="more than 200 log lines a second"),
        metrics(1, x=1.0),
    )


class TestSearch:
    def found(self, web, run, **query) -> list[str]:
        answer = web.get(reverse("runs:log_search", args=[run.pk]), query, headers={"HX-Request": "true"})
        assert answer.status_code == 200
        assert b"<html" not in answer.content
        return re.findall(r'class="log-text">(.*?)</span>', answer.content.decode())

    def test_lines_that_hold_the_text_whatever_its_case(self, web, user, run):
        assert self.found(web, run, q="STEP 59") == ["step 59 done", *(f"step 59{n} done" for n in range(10))]
        assert self.found(web, run, q="% of <b>loss") == ["100 % of &lt;b&gt;Loss&lt;/b&gt; is NaN_1"]
        assert self.found(web, run, q="step_59") == []  # no pattern
        assert self.found(web, run, q="\x00") != []

    def test_level_filters_and_the_newest_lines_are_shown(self, web, user, run):
        said = "left out: 1,234 of type log, 5 of type rollout (more than 200 log lines a second)"
        assert self.found(web, run, level="warning") == ["100 % of &lt;b&gt;Loss&lt;/b&gt; is NaN_1", said]
        assert self.found(web, run, level="error") == []
        assert self.found(web, run, level="no such level")[-1].startswith("left out: 1,234 of type log, 5 of type")
        assert len(self.found(web, run)) == 500

    def test_lines_that_say_what_was_left_out_are_found_in_their_place(self, web, user):
        counted = LeftOut(counts={"log": 3}, reason="Too many")
        run = stored(user, Log(message="too many, 1"), counted, Log(message="too many, 2"), Log(message="done"))
        said = "left out: 3 of type log (Too many)"
        assert self.found(web, run, q="too MANY") == ["too many, 1", said, "too many, 2"]
        assert self.found(web, run, q="3 of type") == [said]
        assert self.found(web, run, q="too many", level="info") == ["too many, 1", "too many, 2"]

    def test_without_htmx_it_is_a_page(self, web, user, run):
        answer = web.get(reverse("runs:log_search", args=[run.pk]), {"q": "nan"})
        assert b"<html" in answer.content
        assert b"NaN_1" in answer.content
        tab = web.get(run.get_absolute_url(), {"tab": "logs"}).content.decode()
        assert reverse("runs:log_search", args=[run.pk]) in tab
        assert reverse("runs:log_download", args=[run.pk]) in tab

    def test_download_has_every_line_in_order(self, web, user, run):
        answer = web.get(reverse("runs:log_download", args=[run.pk]))
        lines = b"".join(answer.streaming_content).decode().splitlines()
        assert lines[602:] == ["", "---- the trainer's output (stdout and stderr of all attempts) ----", NOT_HERE]
        lines = lines[:602]
        assert lines[0].endswith("info    attempt 1: step 0 done")
        assert lines[-1].endswith(
            "attempt 1: left out: 1,234 of type log, 5 of type rollout (more than 200 log lines a second)"
        )


class TestEndsOfAttempts:
    """A trainer that was killed logs nothing: the log has its end by what the run's state says."""

    @pytest.fixture
    def run(self, user):
        run = stored(user, Log(message="first"))
        assert run.transition_to("running", reason="training", attempt=1)
        reason = "the trainer was killed by SIGKILL and reported no outcome"
        assert run.requeue(reason=reason, attempt=1, is_interruption=True)
        run = Run.objects.claim(run.pk, Worker("host", 1, 0.0, "here"))
        write_spool(run.run_dir, 2, Log(message="second"))
        Shipper(run.pk, run.run_dir, 2).ship()
        assert run.transition_to("failed", reason="diverged at step 3", attempt=2)
        return run

    def test_they_follow_the_lines_of_their_attempt(self, run):
        killed = "run queued again: the trainer was killed by SIGKILL and reported no outcome"
        texts = ["first", killed, "second", "run failed: diverged at step 3"]
        assert [line["text"] for line in logs.search_events(run, "", "")] == texts
        assert [line["text"] for line in logs.search_events(run, "sigkill", "warning")] == [killed]
        assert [line["text"] for line in logs.search_events(run, "", "error")] == ["run failed: diverged at step 3"]
        lines = "".join(logs.as_text(run)).splitlines()
        assert [line.partition(" attempt ")[2] for line in lines[:2]] == ["1: first", f"1: {killed}"]
        assert lines[2:4] == ["", "---- attempt 2 ----"]

    def test_the_page_reads_them_with_the_history(self, web, user, run):
        ends = web.get(f"/api/v1/runs/{run.pk}/history").json()["ends"]
        assert [(end["attempt"], end["level"]) for end in ends] == [(1, "warning"), (2, "error")]


class TestTrainersOutput:
    """What the trainer's process printed: 600 lines with colours, one of 1 MB, one that looks like a page."""

    @pytest.fixture
    def run(self, run):
        text = "".join(f"\x1b[32mprinted {number}\x1b[0m\n" for number in range(600))
        (run.run_dir / "trainer.log").write_text(f"{text}{'x' * 1_000_000}\n<script>alert(1)</script>\n")
        return run

    def found(self, web, run, **query) -> str:
        answer = web.get(reverse("runs:log_search", args=[run.pk]), {"source": "output", **query})
        assert answer.status_code == 200
        return answer.content.decode()

    def test_it_is_searched_without_escapes_and_shown_as_text(self, web, user, run):
        page = self.found(web, run, q="PRINTED 59")
        assert re.findall(r'class="log-text">(.*?)</span>', page) == [
            "printed 59",
            *(f"printed 59{n}" for n in range(10)),
        ]
        assert "of the trainer&#x27;s output" in page or "of the trainer's output" in page
        newest = re.findall(r'class="log-text">(.*?)</span>', self.found(web, run))
        assert len(newest) == 500
        assert newest[-1] == "&lt;script&gt;alert(1)&lt;/script&gt;"
        assert newest[-2].endswith("… [cut: the line had 1,000,000 characters]")
        assert "NaN_1" not in self.found(web, run, q="nan")  # an event's line
        assert 'option value="output"' in web.get(run.get_absolute_url(), {"tab": "logs"}).content.decode()

    def test_download_has_it_behind_the_events(self, web, user, run):
        answer = web.get(reverse("runs:log_download", args=[run.pk]))
        lines = b"".join(answer.streaming_content).decode().splitlines()
        assert lines[602:604] == ["", "---- the trainer's output (stdout and stderr of all attempts) ----"]
        assert lines[604:1204] == [f"printed {number}" for number in range(600)]
        assert len(lines) == 1206

    def test_what_was_cut_is_a_mark_in_the_page_and_in_the_download(self, web, user, run, monkeypatch):
        for name, size in (("FIRST_BYTES", 4096), ("KEPT_BYTES", 4096), ("LIMIT_BYTES", 100_000)):
            monkeypatch.setattr(trainer_log, name, size)
        assert trainer_log.limit_output(run.run_dir)
        assert "bytes of the trainer&#x27;s output were not kept" in self.found(web, run, q="[cut:")
        answer = web.get(reverse("runs:log_download", args=[run.pk]))
        text = b"".join(answer.streaming_content)
        assert text.count(b"[cut: ") == 1  # the long line's end is in it
        assert text.endswith(b"<script>alert(1)</script>\n")
        assert b"\0" not in text

    def test_on_another_host_it_is_said_to_be_elsewhere(self, web, user):
        run = make_run(user)
        assert "No output of the trainer is on this host" in self.found(web, run)
        answer = web.get(reverse("runs:log_download", args=[run.pk]))
        assert b"".join(answer.streaming_content).endswith(b"The run directory is not on this host.\n")


class TestRetention:
    def texts(self, run) -> dict[int, str]:
        return {row.step: row.completion for row in RolloutSample.objects.filter(run=run).order_by("-sample")}

    def test_texts_of_the_newest_steps_stay_and_numbers_of_all(self, user):
        """Rollouts of steps 2, 4, ..., 20, three steps kept: 16, 18, 20."""
        bodies = [rollout(step) for step in range(2, 21, 2)]
        run = stored(user, *bodies, telemetry={"rollout_interval": 2, "rollout_steps_kept": 3})
        Run.objects.filter(pk=run.pk).update(step=20)
        assert TableUpkeep().tick() == 7
        assert {step for step, text in self.texts(run).items() if text} == {16, 18, 20}
        assert RolloutSample.objects.filter(run=run, reward=1.0, num_tokens=9).count() == 10
        run.refresh_from_db()
        assert run.texts_from == 16
        assert TableUpkeep().tick() == 0

    def test_large_steps_go_in_small_pieces_until_all_are_gone(self, user, monkeypatch):
        monkeypatch.setattr(table_upkeep, "ROWS", 4)
        bodies = [rollout(step, sample) for step in range(1, 4) for sample in range(10)]
        run = stored(user, *bodies, telemetry={"rollout_steps_kept": 1})
        assert [clear_texts(run) for _ in range(6)] == [4, 4, 4, 4, 4, 0]  # 20 rollouts of steps 1 and 2
        assert (
            RolloutSample.objects.filter(run=run).exclude(completion="").values_list("step", flat=True).distinct().get()
            == 3
        )

    def test_zero_keeps_all_and_the_budget_ends_a_look(self, user, monkeypatch):
        every = stored(user, *(rollout(step) for step in range(1, 9)), telemetry={"rollout_steps_kept": 0})
        one = stored(user, *(rollout(step) for step in range(1, 9)), telemetry={"rollout_steps_kept": 1})
        Run.objects.update(step=8)
        monkeypatch.setattr(table_upkeep, "ROWS", 2)
        monkeypatch.setattr(table_upkeep, "BUDGET_S", 0.0)
        job, rounds = TableUpkeep(), 0
        while any(text for step, text in self.texts(one).items() if step < 8):
            job._next_at = 0.0
            assert job.tick() <= 2
            rounds += 1
            assert rounds < 20
        assert all(self.texts(every).values())

    def test_page_says_that_the_texts_are_gone(self, web, user):
        run = stored(user, rollout(1, text="a text of old"), rollout(9), telemetry={"rollout_steps_kept": 1})
        clear_texts(run)
        page = web.get(reverse("insight:run_rollouts", args=[run.pk]), {"step": 1}).content.decode()
        assert "no longer kept" in page
        assert "a text of old" not in page
        assert (
            "no longer kept"
            not in web.get(reverse("insight:run_rollouts", args=[run.pk]), {"step": 9}).content.decode()
        )


class TestDiskUse:
    def test_rows_and_files_are_counted(self, web, user):
        run = stored(user, *(rollout(step, text="x" * 1000) for step in range(1, 101)))
        (run.run_dir / "checkpoints").mkdir()
        (run.run_dir / "checkpoints" / "weights").write_bytes(b"0" * 5000)
        (run.run_dir / "link").symlink_to("/usr")
        with open(run.run_dir / "trainer.log", "wb") as sparse:
            sparse.truncate(2**30)  # a hole, as a cut leaves one
        use = disk_use(run)
        spool = allocated_bytes((run.run_dir / "events.jsonl").stat())
        weights = allocated_bytes((run.run_dir / "checkpoints" / "weights").stat())
        assert use.num_rows == 100
        assert 100 * 2000 < use.rows_bytes < 100 * 3000  # two texts of 1,000 characters, and the rest
        assert use.files_bytes == spool + weights >= 5000 + 1000
        assert b"100 rows, about 2" in web.get(reverse("runs:run_disk", args=[run.pk])).content

    def test_one_long_line_counts_once_and_characters_count_their_bytes(self, user):
        run = stored(user, *(Log(message="x" * 100) for _ in range(600)), rollout(1, text="ä" * 10_000))
        run.events.filter(seq=3).update(payload={"message": "x" * 1_000_000})
        texts = 1_000_000 + 599 * 100 + 2 * 20_000  # prompt and completion of two bytes a character
        # 300 bytes are ample for the rest of a row.
        assert 1.3 * texts < disk_use(run).rows_bytes < 1.3 * (texts + 601 * 300)

    def test_run_directory_of_another_host_is_not_called_empty(self, web, user):
        run = make_run(user)
        assert disk_use(run).files_bytes == 0  # it never started
        Run.objects.filter(pk=run.pk).update(attempt=1)
        run.refresh_from_db()
        assert disk_use(run).files_bytes is None
        assert b"not on this host" in web.get(reverse("runs:run_disk", args=[run.pk])).content
