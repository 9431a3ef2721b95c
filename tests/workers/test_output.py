"""What a trainer writes stays within bounds, keeps its beginning and its end, and says what is missing."""

import subprocess
import sys
import time

import pytest

from workers import output
from workers.launcher import start_trainer
from workers.output import FIRST_NAME, KEPT_NAME, LOG_NAME, last_output, limit_output, read_output

LINE = len("line 00000\n")  # 11 bytes


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """10 lines of the beginning, 20 of the end, cut above 50."""
    monkeypatch.setattr(output, "FIRST_BYTES", 10 * LINE)
    monkeypatch.setattr(output, "KEPT_BYTES", 20 * LINE)
    monkeypatch.setattr(output, "LIMIT_BYTES", 50 * LINE)


def write(run_dir, first: int, count: int) -> None:
    with open(run_dir / LOG_NAME, "a") as log:
        log.writelines(f"line {number:05}\n" for number in range(first, first + count))


def lines(run_dir) -> list[str]:
    return [line if line.startswith("[") else line.removeprefix("line ") for line in read_output(run_dir)]


def numbers(first: int, end: int) -> list[str]:
    return [f"{number:05}" for number in range(first, end)]


def test_short_output_stays_as_it_is(tmp_path):
    write(tmp_path, 0, 50)
    assert not limit_output(tmp_path)
    assert lines(tmp_path) == numbers(0, 50)


def test_first_and_newest_part_stay_and_the_bytes_between_are_counted(tmp_path):
    """Lines 0 to 9 and 41 to 60 of 61 stay: 31 lines of 11 bytes are gone."""
    write(tmp_path, 0, 61)
    assert limit_output(tmp_path)
    write(tmp_path, 61, 3)
    seam, mark = output._SEAM.decode().rstrip(), lines(tmp_path)[10]
    assert mark.startswith("[cut: 341 bytes of the trainer's output were not kept")
    assert lines(tmp_path) == [*numbers(0, 10), mark, *numbers(41, 61), seam, *numbers(61, 64)]
    write(tmp_path, 64, 50)  # 61 to 113 in trainer.log, of which 94 to 113 stay: all 84 from 10 to 93 are gone
    assert limit_output(tmp_path)
    again = lines(tmp_path)
    assert again[10].startswith("[cut: 924 bytes")
    assert [*again[:10], *again[11:]] == [*numbers(0, 10), *numbers(94, 114), seam]


def test_trainer_that_floods_stays_in_bounds_and_is_not_held_up(tmp_path, monkeypatch):
    """100,000 lines of one process through the real launcher: it ends by itself, and its last line is there."""
    for name, size in (("FIRST_BYTES", 2_000), ("KEPT_BYTES", 20_000), ("LIMIT_BYTES", 60_000), ("LOOK_S", 0.01)):
        monkeypatch.setattr(output, name, size)
    code = (
        "import sys, time\n"
        "for number in range(100_000):\n"
        "    print(f'line {number:05}', flush=number % 100 == 0)\n"
        "    number % 1000 or time.sleep(0.02)\n"
        "print('the last words', file=sys.stderr)"
    )
    trainer = start_trainer(tmp_path, 1, command=[sys.executable, "-c", code])
    largest = 0
    while trainer.poll() is None:
        largest = max(largest, (tmp_path / LOG_NAME).stat().st_size)
        time.sleep(0.005)
    assert trainer.kill() == 0
    assert largest < 1_100_000 / 3  # what was written in all
    found = list(read_output(tmp_path))
    assert found[0] == "line 00000"
    assert "the last words" in found[-2:]
    assert "the last words" in last_output(tmp_path, 15)
    assert sum(path.stat().st_size for path in tmp_path.glob(f"{LOG_NAME}*")) < 2_000 + 21_000 + 400_000


def test_line_of_one_megabyte_is_shown_cut_and_its_neighbours_whole(tmp_path):
    (tmp_path / LOG_NAME).write_bytes(b"before\n" + b"\x1b[31mx" + b"x" * 999_999 + b"\nafter\x1b[0m\n")
    before, long, after = read_output(tmp_path)
    assert (before, after) == ("before", "after")
    assert long == "x" * 4000 + " … [cut: the line had 1,000,005 characters]"  # the escape counted
    assert last_output(tmp_path, 2).endswith("x\nafter")


def test_last_lines_are_found_across_a_cut(tmp_path):
    write(tmp_path, 0, 61)
    limit_output(tmp_path)
    write(tmp_path, 61, 1)
    assert last_output(tmp_path, 3) == "line 00059\nline 00060\nline 00061"
    assert last_output(tmp_path / "nowhere", 3) == ""


def test_full_disk_cuts_nothing(tmp_path, monkeypatch):
    write(tmp_path, 0, 61)
    limit_output(tmp_path)
    write(tmp_path, 61, 60)

    def no_room(*_):
        raise OSError(28, "No space left on device")

    before = lines(tmp_path)
    monkeypatch.setattr(output, "_copy", no_room)
    with pytest.raises(OSError, match="No space"):
        limit_output(tmp_path)
    assert lines(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([LOG_NAME, FIRST_NAME, KEPT_NAME])


def test_two_who_look_at_once_cut_once(tmp_path):
    write(tmp_path, 0, 61)
    hold = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    command = [sys.executable, "-c", hold, str(tmp_path / LOG_NAME)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        assert not limit_output(tmp_path)
        other.stdin.write("\n")
        other.stdin.close()
        other.wait()
    assert limit_output(tmp_path)
