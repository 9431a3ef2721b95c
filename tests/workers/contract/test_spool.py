"""A spool stays bounded: full files are set aside, floods are limited, and what is left out is counted and said."""

import errno

import pytest

from workers.contract import spool
from workers.contract.events import Log, Metrics, Rollout, Started
from workers.contract.spool import SPOOL_NAME, EventQuota, SpoolWriter, clean_line, read_spool, rotated, spool_bytes


def rollout(step: int = 1) -> Rollout:
    return Rollout(
        step=step,
        agent="A",
        prompt_id="1",
        sample=0,
        prompt="p",
        completion="c" * 500,
        answer="7",
        reward=1.0,
        finish_reason="stop",
        num_tokens=9,
        mean_logp=-0.5,
    )


def _no_room(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


class _FullDisk:
    """The spool's file on a disk with so many bytes of room."""

    def __init__(self, file, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data) -> int:
        if not self.room:
            _no_room()
        count = self.file.write(data[: self.room])
        self.room -= count
        return count

    def truncate(self, size: int) -> None:
        self.file.truncate(size)


class TestRotation:
    def test_full_files_are_set_aside_and_numbers_go_on(self, tmp_path, monkeypatch):
        monkeypatch.setattr(spool, "SEGMENT_BYTES", 1000)
        writer = SpoolWriter(tmp_path, 1)
        for number in range(50):
            writer.emit(Log(message=f"line {number}"))
        writer.close()
        found = [record["seq"] for record in read_spool(tmp_path)]
        assert found == list(range(1, 51))
        # A line has about 105 bytes: a file is set aside by the first event after its tenth or so.
        assert len(rotated(tmp_path)) >= 4
        assert all(path.stat().st_size < 1200 for _, path in rotated(tmp_path))
        for last, path in rotated(tmp_path):
            assert [record["seq"] for _, record in spool.read_records(path)][-1] == last

    def test_number_goes_on_where_the_new_file_is_still_empty(self, tmp_path, monkeypatch):
        """Killed between the renaming and the first line of the new file."""
        monkeypatch.setattr(spool, "SEGMENT_BYTES", 100)
        writer = SpoolWriter(tmp_path, 1)
        writer.emit(Log(message="one"), Log(message="two"))
        writer._rotate_when_full()
        assert (tmp_path / SPOOL_NAME).stat().st_size == 0
        assert SpoolWriter(tmp_path, 2).emit(Log(message="three")) == 3

    def test_full_disk_keeps_one_file_growing_until_there_is_room(self, tmp_path, monkeypatch):
        monkeypatch.setattr(spool, "SEGMENT_BYTES", 100)
        writer = SpoolWriter(tmp_path, 1)
        writer.emit(Log(message="one"), Log(message="two"))
        with monkeypatch.context() as patch:
            patch.setattr(spool, "open", _no_room, raising=False)
            assert writer.emit(Log(message="three")) == 3
        assert rotated(tmp_path) == []
        assert writer.emit(Log(message="four")) == 4
        assert [last for last, _ in rotated(tmp_path)] == [3]
        assert [record["message"] for record in read_spool(tmp_path)] == ["one", "two", "three", "four"]

    def test_full_disk_is_told_once_there_is_room_with_how_long_and_how_many(self, tmp_path, monkeypatch):
        """Lines two and three wait while 20 bytes of two fit; 90 s later four goes out with them, and then the news."""
        writer = SpoolWriter(tmp_path, 1)
        writer.emit(Log(message="one"))
        clock, file = [1000.0], writer._file
        monkeypatch.setattr(spool.time, "monotonic", lambda: clock[0])
        writer._file = _FullDisk(file, room=20)
        assert writer.emit(Log(message="two")) == 2
        clock[0] += 60.0
        assert writer.emit(Log(message="three")) == 3
        assert [record["message"] for record in read_spool(tmp_path)] == ["one"]
        clock[0] += 30.0
        writer._file = file
        assert writer.emit(Log(message="four")) == 5
        *first, news = read_spool(tmp_path)
        assert [record["message"] for record in first] == ["one", "two", "three", "four"]
        assert (news["seq"], news["level"], news["incident"]) == (5, "warning", "disk")
        assert news["message"] == "the disk was full for 90 s: 3 events waited for the spool and none was lost"
        writer.emit(Log(message="six"))
        writer.close()
        assert [record["seq"] for record in read_spool(tmp_path)] == [1, 2, 3, 4, 5, 6]

    def test_full_disk_that_has_room_at_the_end_only_is_told_too(self, tmp_path):
        writer = SpoolWriter(tmp_path, 1)
        file = writer._file
        writer._file = _FullDisk(file, room=0)
        writer.emit(Log(message="one"))
        writer._file = file
        writer.close()
        assert [record.get("incident") for record in read_spool(tmp_path)] == [None, "disk"]

    def test_small_quota_that_is_stored_in_time_leaves_nothing_out(self, tmp_path, monkeypatch):
        """With files of 16 MiB, a stored one and the one under way would fill a quota of 1 MiB for ever."""
        now = iter(range(10**6))
        monkeypatch.setattr(spool.time, "monotonic", lambda: next(now))  # each event measures anew
        writer = SpoolWriter(tmp_path, 1, quota_bytes=2**20)
        for step in range(2000):  # 1.5 MB
            writer.emit(rollout(step))
            for _, path in rotated(tmp_path)[:-1]:  # as the shipper does
                path.unlink()
        assert writer.seq == 2000
        assert spool_bytes(tmp_path) < 0.3 * 2**20  # two files of an eighth

    def test_size_counts_all_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr(spool, "SEGMENT_BYTES", 100)
        writer = SpoolWriter(tmp_path, 1)
        for _ in range(5):
            writer.emit(Log(message="line"))
        assert spool_bytes(tmp_path) == sum(path.stat().st_size for path in tmp_path.iterdir())


class TestQuota:
    def test_texts_go_first_then_metrics_and_the_last_word_never(self, tmp_path, monkeypatch):
        shares = iter([0.49, 0.5, 0.89, 0.9, 5.0])
        clock = [100.0]
        quota = EventQuota(1000, lambda: int(1000 * next(shares)), now=lambda: clock[0])
        admitted = []
        for _ in range(5):
            kinds = ("log", "rollout", "contribution", "metrics", "progress", "checkpoint", "finished", "left_out")
            admitted.append([kind for kind in kinds if quota.admits(kind)])
            clock[0] += 1.1
        few = ["checkpoint", "finished", "left_out"]
        assert admitted == [
            ["log", "rollout", "contribution", "metrics", "progress", *few],
            ["metrics", "progress", *few],
            ["metrics", "progress", *few],
            few,
            few,
        ]

    def test_what_a_full_spool_leaves_out_is_counted_and_no_number_is_missing(self, tmp_path, monkeypatch):
        monkeypatch.setattr(spool, "NOTICE_S", 0.0)
        clock = [0.0]
        monkeypatch.setattr(spool.time, "monotonic", lambda: clock.__setitem__(0, clock[0] + 2) or clock[0])
        writer = SpoolWriter(tmp_path, 1, quota_bytes=40_000)
        writer._quota._now = spool.time.monotonic
        for step in range(40):  # 40 * (about 850 + 190) bytes would be 41,600; from 20,000 on no rollout enters
            writer.emit(rollout(step), Metrics(step=step, agent="A", values={"x": 1.0}))
        writer.close()
        found = list(read_spool(tmp_path))
        assert [record["seq"] for record in found] == list(range(1, len(found) + 1))
        kept = sum(record["type"] == "rollout" for record in found)
        said = [record for record in found if record["type"] == "left_out"]
        assert 0 < kept < 40
        assert sum(record["counts"].get("rollout", 0) for record in said) == 40 - kept
        assert "more than 50% of its quota" in said[0]["reason"]
        assert sum(record["type"] == "metrics" for record in found) == 40

    def test_room_that_the_database_makes_is_used_again(self, tmp_path):
        writer = SpoolWriter(tmp_path, 1, quota_bytes=1000)
        writer.emit(*(Metrics(step=step, agent="A") for step in range(5)))
        writer._quota._measure_at = 0
        assert writer.emit(Log(message="left out")) == 6  # what is left out is said
        (tmp_path / SPOOL_NAME).write_bytes(b"")  # stored and removed
        for _, path in rotated(tmp_path):
            path.unlink()
        writer._quota._measure_at = 0
        writer.emit(Log(message="kept"))
        assert [record["message"] for record in read_spool(tmp_path) if record["type"] == "log"] == ["kept"]

    def test_warnings_enter_a_spool_that_is_over_its_quota(self, tmp_path):
        writer = SpoolWriter(tmp_path, 1, quota_bytes=10)
        writer.emit(Started(step=0, total_steps=1, agents=["A"], device="cpu", versions={}))
        writer._quota._measure_at = 0
        writer.emit(Log(level="warning", message="disk"), Log(message="chat"))
        assert [record.get("message") for record in read_spool(tmp_path)][1] == "disk"
        writer.close()
        assert [record["type"] for record in read_spool(tmp_path)] == ["started", "log", "left_out"]


class TestLogLines:
    def test_ten_thousand_lines_in_a_second_are_limited_and_counted(self, tmp_path):
        """2,000 at once, then 200 a second: of 10,000 in one second 2,000 to 2,200 enter."""
        clock = [0.0]
        writer = SpoolWriter(tmp_path, 1)
        writer._quota = EventQuota(2**40, lambda: 0, now=lambda: clock[0])
        for number in range(10_000):
            clock[0] = number / 10_000
            writer.emit(Log(message=f"line {number}"))
        writer.emit(Metrics(step=1, agent="A"))
        writer.close()
        found = list(read_spool(tmp_path))
        kept = sum(record["type"] == "log" for record in found)
        assert 2000 <= kept <= 2200
        said = [record for record in found if record["type"] == "left_out"]
        assert sum(record["counts"]["log"] for record in said) == 10_000 - kept
        assert said[0]["reason"] == "more than 200 log lines a second"
        assert sum(record["type"] == "metrics" for record in found) == 1  # the rest is complete
        assert [record["seq"] for record in found] == list(range(1, len(found) + 1))

    def test_line_of_a_megabyte_is_cut_and_says_how_long_it_was(self, tmp_path):
        writer = SpoolWriter(tmp_path, 1)
        writer.emit(Log(message="x" * 2**20))
        writer.close()
        (record,) = read_spool(tmp_path)
        assert record["message"] == "x" * 4000 + " … [cut: the line had 1,048,576 characters]"

    @pytest.mark.parametrize(
        ("raw", "clean"),
        [
            ("\x1b[1;31mred\x1b[0m and \x1b[38;5;200mpink\x1b[m", "red and pink"),
            ("\x1b]0;title\x07text\x1b]8;;http://a.b\x1b\\link\x1b]8;;\x1b\\", "textlink"),
            ("\x9b31mred", "red"),
            (" 10%\r 50%\r100% done", "100% done"),
            ("one\r\ntwo\tcolumn", "one\ntwo\tcolumn"),
            ("a\x00b\x08c\u202ed", "abcd"),
            ("plain [31m brackets", "plain [31m brackets"),
            ("\x1b", ""),
        ],
    )
    def test_escapes_and_controls_are_taken_out(self, raw, clean):
        assert clean_line(raw) == clean

    def test_line_at_the_limit_is_left_alone(self):
        assert clean_line("x" * 4000) == "x" * 4000
        assert clean_line("x" * 4001).startswith("x" * 4000 + " … [cut: the line had 4,001")
