"""What a destination stores of a run, read by its own software; and what it must have, from the events of a test."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from workers.contract.events import Body, Evaluation, Metrics

# By kind, a program. Arguments: the destination's folder, and its address. It fills numbers with [step, name, value],
# rollouts with the rows of all tables, settings, and url, the run's address here.
READERS = {
    "tensorboard": """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.text.text_plugin import text_array_to_html
from tensorboard.util.tensor_util import make_ndarray
reader = EventAccumulator(glob.glob(folder + "/*/")[0], size_guidance={"scalars": 0, "tensors": 0})
reader.Reload()
numbers = [[e.step, tag, e.value] for tag in reader.Tags()["scalars"] for e in reader.Scalars(tag)]
arrays = lambda tag: [make_ndarray(event.tensor_proto) for event in reader.Tensors(tag)]
(pairs,), (link,) = arrays("hacrl/settings"), arrays("hacrl/url")
settings = {name.decode().strip(): value.decode().strip() for name, value in pairs[1:]}
_, url, _ = text_array_to_html(link, True).split(chr(34), 2)
for array in arrays("rollouts") if "rollouts" in reader.Tags()["tensors"] else []:
    assert reader.summary_metadata["rollouts"].plugin_data.plugin_name == "text"
    html = text_array_to_html(array, True)
    # What its text page draws: the texts, and nothing that they order.
    assert not any(mark in html for mark in ("<img", "<a ", "<script", "<h1", "<strong")), html
    assert html.count("<code>") == array.size - array.shape[1] - sum(not one.strip() for one in array.flat), html
    for row in array[1:]:
        texts = ["\\n".join(line[4:] for line in cell.decode().split("\\n")) for cell in row]
        rollouts.append([(json.loads(text) if text else None) if place in (0, 5, 7) else text
                         for place, text in enumerate(texts)])
""",
    "mlflow": """
import mlflow, tempfile
from mlflow.tracking import MlflowClient
mlflow.set_tracking_uri(address)
client = MlflowClient(address)
(run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
for name in run.data.metrics:
    numbers += [[m.step, name, m.value] for m in client.get_metric_history(run.info.run_id, name)]
settings, url = run.data.params, run.data.tags.get("hacrl.url")
paths = sorted(one.path for one in client.list_artifacts(run.info.run_id, "rollouts"))
for path in paths:
    with tempfile.TemporaryDirectory() as place:
        rollouts += json.load(open(client.download_artifacts(run.info.run_id, path, place)))["data"]
if paths:
    assert len(client.load_table(run.info.experiment_id, paths[0], [run.info.run_id]).columns) == 8
    tag = json.loads(run.data.tags["mlflow.loggedArtifacts"])
    assert sorted(one["path"] for one in tag) == paths and {one["type"] for one in tag} == {"table"}
""",
    "wandb": """
import struct
from wandb.proto.wandb_internal_pb2 import Record

def records(data):
    # Of a .wandb file: a head of 7 bytes, then blocks of 32 KiB with pieces (crc, length, kind) of records.
    place, whole = 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""

for path in sorted(glob.glob(folder + "/*/from-*/wandb/offline-run-*/run-*.wandb")):
    for data in records(open(path, "rb").read()):
        record = Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        changes = {"run": record.run.config, "config": record.config}.get(kind)
        for item in changes.update if changes else ():
            settings[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        if kind != "history":
            continue
        items = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
        others = ("_", "rollouts/", "step", "attempt")
        numbers += [[items["step"], k, v] for k, v in items.items() if not k.startswith(others)]
        if "rollouts/path" in items:
            assert (items["rollouts/_type"], items["rollouts/ncols"]) == ("table-file", 8)
            rollouts += json.load(open(path.rpartition("/")[0] + "/files/" + items["rollouts/path"]))["data"]
url = settings.pop("hacrl_url")
""",
    "trackio": """
os.environ["TRACKIO_DIR"] = folder
import trackio
from trackio.sqlite_storage import SQLiteStorage as storage
(project,) = storage.get_projects()
(name,) = storage.get_runs(project)
for row in storage.get_logs(project, name):
    others = ("step", "timestamp", "attempt", "rollouts")
    numbers += [[row["step"], k, v] for k, v in row.items() if k not in others]
    if "rollouts" in row:
        assert row["rollouts"]["_type"] == trackio.Table.TYPE
        rollouts += [list(one.values()) for one in row["rollouts"]["_value"]]
settings = storage.get_run_config(project, name)
url = settings.pop("hacrl_url")
""",
}
BEGIN = """
import sys, json, glob, os
(folder, address), numbers, rollouts, settings, url = sys.argv[1:], [], [], {}, ""
"""
END = """
settings = {name: str(value) for name, value in settings.items() if name[0] != "_"}
print(json.dumps([numbers, rollouts, settings, url]))
"""


@dataclass
class Stored:
    """numbers: (step, name, value).  rollouts: rows of all tables.  url: of the run here."""

    numbers: list[Any]
    rollouts: list[Any]
    settings: dict[str, str]
    url: str


def stored(python: str, kind: str, folder: Path, address: str = "") -> Stored:
    command = [python, "-c", BEGIN + READERS[kind] + END, str(folder), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return Stored(*json.loads(done.stdout.splitlines()[-1]))


def assert_every_number_once(one: Stored, events: Iterable[Body]) -> None:
    """Each number of one attempt, equal but for the rounding to 32 bits, without the code of mirrors.

    The names are those that every destination takes.
    """
    numbers: dict[tuple[int, str], float | None] = {}
    for event in events:
        if isinstance(event, Metrics):
            source = f"/from {event.source}" if event.source else ""
            quotients = {name: total / count if count else None for name, (total, count) in event.ratios.items()}
            for name, value in {**event.values, **quotients}.items():
                numbers[event.step, f"{event.agent}/{name}{source}"] = value
        elif isinstance(event, Evaluation):
            numbers[event.step, f"{event.agent}/{event.metric}"] = event.value
    wanted = sorted([step, name, value] for (step, name), value in numbers.items() if value is not None)
    found = sorted(one.numbers)
    assert len(found) == len(wanted) > 50
    assert [one[:2] for one in found] == [one[:2] for one in wanted]
    for (_, name, value), (_, _, other) in zip(found, wanted, strict=True):
        assert value == pytest.approx(other, rel=1e-6), name


def needs(kind: str, python: str) -> None:
    if subprocess.run([python, "-c", f"import {kind}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{kind} is not installed")
