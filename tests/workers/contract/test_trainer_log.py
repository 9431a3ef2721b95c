"""What a trainer writes stays within bounds, keeps its beginning and its end, and says what is missing."""

import ctypes
import re
import subprocess
import sys
import time

import pytest

from workers.contract import trainer_log
from workers.contract.trainer_log import LOG_NAME, allocated_bytes, last_output, limit_output, read_output
from workers.contract.trainer_process import start_trainer

LINE = len("line 000000\n")  # 12 bytes
MARK = re.compile(r"\[cut: ([\d,]+) bytes of the trainer's output were not kept; ")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """One block of the beginning, two of the end, cut above eight."""
    monkeypatch.setattr(trainer_log, "FIRST_BYTES", 4096)
    monkeypatch.setattr(trainer_log, "KEPT_BYTES", 2 * 4096)
    monkeypatch.setattr(trainer_log, "LIMIT_BYTES", 8 * 4096)


@pytest.fixture
def without_holes(monkeypatch):
    monkeypatch.setattr(trainer_log, "_punch", lambda *_: False)


def write(run_dir, first: int, end: int) -> None:
    with open(run_dir / LOG_NAME, "a") as log:
        log.writelines(f"line {number:06}\n" for number in range(first, end))


def numbers(first: int, end: int) -> list[str]:
    return [f"line {number:06}" for number in range(first, end)]


def missing(mark: str) -> int:
    return int(MARK.match(mark)[1].replace(",", ""))


def assert_all_told(shown: list[str], end: int) -> list[int]:
    """Each line from 0 to `end` is there once and in order, or counted in the mark at its place. Returns the counts."""
    number, counts = 0, []
    for line in shown:
        if MARK.match(line):
            counts.append(missing(line))
            assert counts[-1] % LINE == 0
            number += counts[-1] // LINE
        else:
            assert line == f"line {number:06}"
            number += 1
    assert number == end
    return counts


def test_short_output_stays_as_it_is(tmp_path):
    write(tmp_path, 0, 2730)  # 32,760 bytes: 8 blocks
    assert not limit_output(tmp_path)
    assert list(read_output(tmp_path)) == numbers(0, 2730)


def test_first_and_newest_part_stay_and_the_bytes_between_are_counted(tmp_path):
    """36,000 bytes: the hole goes from 4,096 to 24,576, the last block before 27,808, whose neighbours are cut lines.

    4,096 = 341 lines and 4 bytes; 24,576 = 2,048 lines: whether a line begins there cannot be known, so 2,048 goes.
    """
    write(tmp_path, 0, 3000)
    assert limit_output(tmp_path)
    assert (tmp_path / LOG_NAME).stat().st_size == 36_000
    assert allocated_bytes((tmp_path / LOG_NAME).stat()) == 4 * 4096  # blocks 0, 6, 7, 8
    assert not limit_output(tmp_path)
    write(tmp_path, 3000, 3003)
    shown = list(read_output(tmp_path))
    assert shown[341] == "[cut: 20,496 bytes of the trainer's output were not kept; at most 0 MiB of it are]"
    assert [*shown[:341], *shown[342:]] == [*numbers(0, 341), *numbers(2049, 3003)]  # 1,708 lines of 12 bytes
    write(tmp_path, 3003, 6000)  # 72,000 - 8,192 = 63,808, so from 61,440 = 5,120 lines on
    assert limit_output(tmp_path)
    assert assert_all_told(list(read_output(tmp_path)), 6000) == [(5121 - 341) * LINE]


def test_reader_that_is_overtaken_by_cuts_tells_every_line_or_counts_it(tmp_path):
    """Three cuts, and each frees blocks that the reader has not come to."""
    write(tmp_path, 0, 20_000)
    reader = read_output(tmp_path)
    shown = [next(reader) for _ in range(5000)]
    for begin, end in ((20_000, 22_000), (22_000, 60_000)):
        assert limit_output(tmp_path)
        write(tmp_path, begin, end)
        shown += [next(reader) for _ in range(1000)]
    assert limit_output(tmp_path)
    assert len(assert_all_told([*shown, *reader], 60_000)) == 3


def flood(run_dir, monkeypatch) -> tuple[list[str], int]:
    """50,000 lines (600 kB) of one process through the real launcher. Returns what is shown, the largest file seen."""
    monkeypatch.setattr(trainer_log, "CHECK_S", 0.005)
    cuts = []
    monkeypatch.setattr(trainer_log, "limit_output", lambda run_dir: cuts.append(limit_output(run_dir)))
    code = (
        "import time\n"
        "for number in range(50_000):\n"
        "    print(f'line {number:06}', flush=number % 7 == 0)\n"
        "    number % 1000 or time.sleep(0.02)\n"
    )
    trainer = start_trainer(run_dir, 1, command=[sys.executable, "-c", code])
    largest = 0
    while trainer.poll() is None:
        largest = max(largest, allocated_bytes((run_dir / LOG_NAME).stat()))
        time.sleep(0.005)
    assert trainer.kill() == 0
    assert sum(cuts) > 5
    return list(read_output(run_dir)), largest


def test_trainer_that_floods_stays_in_bounds_and_loses_no_line_unsaid(tmp_path, monkeypatch):
    shown, largest = flood(tmp_path, monkeypatch)
    assert largest < 600_000 / 2
    assert len(assert_all_told(shown, 50_000)) == 1
    assert shown[:341] == numbers(0, 341)
    assert shown[-600:] == numbers(49_400, 50_000)
    assert last_output(tmp_path, 2) == "line 049998\nline 049999"
    assert (tmp_path / LOG_NAME).stat().st_size == 600_000


def test_flood_just_before_the_end_is_cut_too(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer_log, "CHECK_S", 60.0)  # no check before the end
    limiter = trainer_log.OutputLimiter(tmp_path)
    (tmp_path / LOG_NAME).write_bytes(b"a line of the trainer\n" * 500_000)  # 11 MB
    limiter.stop()
    assert allocated_bytes((tmp_path / LOG_NAME).stat()) <= trainer_log.LIMIT_BYTES


def test_flood_without_holes_keeps_its_order_and_says_that_lines_may_be_missing(tmp_path, monkeypatch, without_holes):
    shown, largest = flood(tmp_path, monkeypatch)
    assert largest < 600_000 / 2
    assert shown[:341] == numbers(0, 341)
    assert shown[341].endswith("instant of the cut may be missing too]")
    assert missing(shown[341]) <= 600_000 - LINE * (len(shown) - 1)
    newest = shown[342:]
    assert newest.count("") <= 1  # a line that was being written in the instant of the cut
    assert (whole := [line for line in newest if line]) == sorted(set(whole))


def test_without_holes_the_newest_part_is_moved_down(tmp_path, without_holes):
    """36,000 - 8,192 = 27,808 bytes, in line 2,317: lines 341 to 2,317 go, and in the second cut up to 5,317."""
    for end, first_kept in ((3000, 2318), (6000, 5318)):
        write(tmp_path, end - 3000, end)
        assert limit_output(tmp_path)
        shown = list(read_output(tmp_path))
        assert assert_all_told(shown, end) == [(first_kept - 341) * LINE]
        assert shown[341].endswith("; what was written in the instant of the cut may be missing too]")
        assert (tmp_path / LOG_NAME).stat().st_size == (341 + end - first_kept) * LINE + len(shown[341]) + 1


@pytest.mark.parametrize("number", [95, 38])  # EOPNOTSUPP, ENOSYS
def test_system_that_knows_no_holes_is_asked_and_another_error_is_one(tmp_path, monkeypatch, number):
    libc = type("Libc", (), {"fallocate": staticmethod(lambda *_: (ctypes.set_errno(number), -1)[1])})
    monkeypatch.setattr(trainer_log.ctypes, "CDLL", lambda *_, **__: libc)
    write(tmp_path, 0, 3000)
    assert limit_output(tmp_path)
    assert_all_told(list(read_output(tmp_path)), 3000)
    write(tmp_path, 3000, 6000)
    number = 5  # EIO
    with pytest.raises(OSError, match="Input/output"):
        limit_output(tmp_path)
    assert list(read_output(tmp_path))[-1] == "line 005999"


def test_line_of_one_megabyte_is_shown_cut_and_its_neighbours_whole(tmp_path):
    (tmp_path / LOG_NAME).write_bytes(b"before\n" + b"\x1b[31mx" + b"x" * 999_999 + b"\nafter\x1b[0m\n")
    before, long, after = read_output(tmp_path)
    assert (before, after) == ("before", "after")
    assert long == "x" * 4000 + " … [cut: the line had 1,000,005 characters]"  # the escape counted
    assert last_output(tmp_path, 2).endswith("x\nafter")


def test_zeros_of_the_trainer_are_no_hole_and_never_shown(tmp_path):
    (tmp_path / LOG_NAME).write_bytes(b"\0" * 10_000 + b"a\0b\n" + b"c\n")
    assert list(read_output(tmp_path)) == ["ab", "c"]


def test_hole_in_a_line_without_end_is_counted(tmp_path):
    """One line of 200,000 bytes: of it the first 4,096 stay, and from 188,416, the block before 191,808, on 11,584."""
    (tmp_path / LOG_NAME).write_bytes(b"x" * 200_000)
    assert limit_output(tmp_path)
    mark, rest = read_output(tmp_path)
    assert missing(mark) == 188_416  # 46 blocks, the one at the beginning too: it is no whole line
    assert rest == "x" * 4000 + " … [cut: the line had 11,584 characters]"


def test_last_lines_are_found_whatever_was_cut(tmp_path):
    write(tmp_path, 0, 3000)
    limit_output(tmp_path)
    write(tmp_path, 3000, 3001)
    assert last_output(tmp_path, 3) == "line 002998\nline 002999\nline 003000"
    assert last_output(tmp_path, 9999, 20_000).split("\n")[1:3] == numbers(2049, 2051)  # after what is left of a line
    assert last_output(tmp_path / "nowhere", 3) == ""


def test_two_who_look_at_once_cut_once(tmp_path):
    write(tmp_path, 0, 3000)
    hold = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    command = [sys.executable, "-c", hold, str(tmp_path / LOG_NAME)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        assert not limit_output(tmp_path)
        other.stdin.write("\n")
        other.stdin.close()
        other.wait()
    assert limit_output(tmp_path)
