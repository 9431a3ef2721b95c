"""Data sets from a hub that answers, that does not, and that lies; and from a folder."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hacrl_web.registry.benchmarks.built_in import BUILT_IN
from tests.support.http_server import Handler, http_server
from workers.questions.hub_files import choose_files

ROOT = Path(__file__).resolve().parents[3]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LINE = b'{"question": "1+1=", "answer": "#### 2"}\n'


class Hub:
    """A hub on this machine with one data set. fault: "cut" (half a file), "size", "missing" or none."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.fault = ""
        self.asked: list[str] = []
        self.address = ""

    def body_of(self, path: str) -> tuple[int, str, bytes]:
        if self.fault == "missing":
            return 404, "application/json", b'{"error": "Repository not found"}'
        if "/resolve/" in path:
            return 200, "application/octet-stream", self.files[path.partition(f"/resolve/{COMMIT}/")[2]]
        siblings = [
            {"rfilename": name, "size": len(body) + (self.fault == "size"), "blobId": "0" * 40}
            for name, body in self.files.items()
        ]
        found = {"id": "owner/sums", "sha": COMMIT, "siblings": siblings, "private": False, "tags": [], "downloads": 0}
        return 200, "application/json", json.dumps(found).encode()


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {
        "main/train-0.jsonl": LINE * 3,
        "main/test-0.jsonl": LINE,
        "socratic/train-0.jsonl": b"{",
        "README.md": b"",
    }
    with served_hub(files) as made:
        yield made


@contextmanager
def served_hub(files: dict[str, bytes]) -> Iterator[Hub]:
    """A hub with these files, while it answers at its address."""
    made = Hub(files)

    class Answers(Handler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            status, kind, body = made.body_of(self.path)
            headers = {"Content-Type": kind, "Content-Length": str(len(body)), "X-Repo-Commit": COMMIT}
            headers["ETag"] = f'"{hashlib.sha1(body).hexdigest()}"'
            if status == 404:
                headers["X-Error-Code"] = "RepoNotFound"
            is_cut = made.fault == "cut" and "/resolve/" in self.path
            self.reply(status, body[: len(body) // 2] if is_cut else body, headers)
            if made.fault == "cut":
                self.close_connection = True

        do_HEAD = do_GET

    with http_server(Answers) as made.address:
        yield made


def fetch(folder: Path, endpoint: str = "", **request: Any) -> dict[str, Any]:
    """The child's answer; a process of its own, because the hub's address is read as its client is imported."""
    folder.mkdir()
    given = {"verb": "fetch", "folder": str(folder), "most_bytes": 10_000, **request}
    done = subprocess.run(
        [sys.executable, "-m", "workers.questions.import_cli"],
        input=json.dumps(given).encode(),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder.parent / "home")},
        timeout=120,
    )
    return json.loads(done.stdout)


def test_chosen_files_come_with_the_commit(hub, tmp_path):
    patterns = {"train": ["main/train*"], "held_out": ["main/test*"]}
    found = fetch(tmp_path / "in", hub.address, dataset="owner/sums", **patterns)
    assert found["commit"] == COMMIT
    assert [file["name"] for file in found["train"] + found["held_out"]] == ["main/train-0.jsonl", "main/test-0.jsonl"]
    assert Path(found["train"][0]["path"]).read_bytes() == LINE * 3
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["held_out-0.jsonl", "train-0.jsonl"]
    assert [path for path in hub.asked if "socratic" in path] == []
    assert all(COMMIT in path for path in hub.asked if "/resolve/" in path), "files of one commit, not of a branch"


@pytest.mark.full  # the hub's client waits before it tries again
def test_half_a_download_is_not_used(hub, tmp_path):
    hub.fault = "cut"
    found = fetch(tmp_path / "in", hub.address, dataset="owner/sums", train=["main/train*"])
    assert "Could not reach the hub for owner/sums (within 10 s, 2 tries; " in found["error"]
    assert list((tmp_path / "in").iterdir()) == []


def test_file_of_another_size_than_told_is_not_used(hub, tmp_path):
    hub.fault = "size"
    found = fetch(tmp_path / "in", hub.address, dataset="owner/sums", train=["main/train*"])
    assert "size" in found["error"] or "Could not reach the hub" in found["error"]
    assert list((tmp_path / "in").iterdir()) == []


def test_unreachable_hub_says_so_with_its_tries(tmp_path):
    found = fetch(tmp_path / "in", "http://127.0.0.1:9", dataset="owner/sums")
    assert found["error"].startswith("Could not reach the hub for owner/sums (within 10 s, 2 tries; ")
    assert found["error"].endswith("check the connection, or choose a local copy")


def test_missing_dataset_and_too_large_ones_are_refused(hub, tmp_path):
    found = fetch(tmp_path / "large", hub.address, dataset="owner/sums", most_bytes=10)
    assert "The files of owner/sums have 0 MiB" in found["error"]
    found = fetch(tmp_path / "none", hub.address, dataset="owner/sums", train=["data/*"])
    assert "owner/sums has no matching question file" in found["error"]
    hub.fault = "missing"
    found = fetch(tmp_path / "missing", hub.address, dataset="owner/sums")
    assert found["error"].startswith("The hub has no data set owner/sums")


def test_folder_is_split_by_the_names_of_its_files(tmp_path):
    place = tmp_path / "copy" / "main"
    place.mkdir(parents=True)
    for name in ("train-0.jsonl", "test-0.jsonl", "README.md"):
        (place / name).write_bytes(LINE)
    found = fetch(tmp_path / "in", place=str(tmp_path / "copy"), roots=[str(tmp_path)])
    assert [file["name"] for file in found["train"]] == ["main/train-0.jsonl"]
    assert [file["name"] for file in found["held_out"]] == ["main/test-0.jsonl"]


def test_link_that_leaves_the_allowed_folders_is_not_followed(tmp_path):
    secret = tmp_path / "elsewhere.jsonl"
    secret.write_bytes(LINE)
    place = tmp_path / "root" / "copy"
    place.mkdir(parents=True)
    (place / "train.jsonl").symlink_to(secret)
    found = fetch(tmp_path / "in", place=str(place), roots=[str(tmp_path / "root")])
    assert "copy has no matching question file" in found["error"]


def test_only_test_files_are_questions_like_any_others():
    assert choose_files(["test.jsonl", "x.md"], {"train": [], "held_out": []}) == {
        "train": ["test.jsonl"],
        "held_out": [],
    }


# What the hub's pages list, as far as it is known: the patterns must choose these and nothing else.
LISTED = {
    "math-500": (["README.md", "test.jsonl"], 1, 0),
    "math": (["README.md", "algebra/train-00000-of-00001.parquet", "algebra/test-00000-of-00001.parquet"], 1, 1),
    "gsm8k": (
        ["main/train-00000-of-00001.parquet", "main/test-00000-of-00001.parquet",
         "socratic/train-00000-of-00001.parquet", "socratic/test-00000-of-00001.parquet"], 1, 1,
    ),
    "aime2025": (["README.md", "test.jsonl"], 1, 0),
    "amc23": (["README.md", "test-00000-of-00001.parquet"], 1, 0),
    "minerva": (["README.md", "test.jsonl"], 1, 0),
    "olympiadbench": (
        ["OlympiadBench/OE_TO_maths_en_COMP/OE_TO_maths_en_COMP.parquet",
         "OlympiadBench/OE_MM_maths_en_COMP/OE_MM_maths_en_COMP.parquet"], 1, 0,
    ),
    "arc-challenge": (
        ["ARC-Challenge/train-00000-of-00001.parquet", "ARC-Challenge/test-00000-of-00001.parquet",
         "ARC-Challenge/validation-00000-of-00001.parquet", "ARC-Easy/train-00000-of-00001.parquet"], 1, 1,
    ),
    "commonsense-qa": (
        ["data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet",
         "data/test-00000-of-00001.parquet"], 1, 1,
    ),
    "mmlu": (["all/test-00000-of-00001.parquet", "all/dev-00000-of-00001.parquet",
              "anatomy/test-00000-of-00001.parquet"], 1, 0),
    "mmlu-pro": (["data/test-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"], 1, 0),
    "gpqa-diamond": (["README.md", "gpqa_diamond.csv", "gpqa_main.csv", "gpqa_experts.csv"], 1, 0),
    "bbh-logic": (
        ["logical_deduction_three_objects/test-00000-of-00001.parquet",
         "logical_deduction_five_objects/test-00000-of-00001.parquet",
         "navigate/test-00000-of-00001.parquet"], 2, 0,
    ),
    "humaneval": (["openai_humaneval/test-00000-of-00001.parquet"], 1, 0),
    "humaneval-plus": (["data/test-00000-of-00001-5973903632b82d40.parquet", "README.md"], 1, 0),
    "mbpp": (["full/train-00000-of-00001.parquet", "full/test-00000-of-00001.parquet",
              "full/prompt-00000-of-00001.parquet", "sanitized/train-00000-of-00001.parquet"], 1, 1),
    "ifeval": (["ifeval_input_data.jsonl", "README.md"], 1, 0),
    "countdown": (["data/train-00000-of-00001.parquet", "README.md"], 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("entry", BUILT_IN, ids=lambda entry: entry.key)
def test_patterns_of_each_built_in_benchmark_choose_its_files(entry):
    names, num_train, num_held_out = LISTED[entry.key]
    found = choose_files(names, {"train": list(entry.train), "held_out": list(entry.held_out)})
    assert (len(found["train"]), len(found["held_out"])) == (num_train, num_held_out)
