"""Programs that read what a destination stores, by its own software. Arguments: its folder, and its address."""

from __future__ import annotations

WANDB_FILES = """
import sys, json, glob, struct
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
"""
# Each prints [[step, name, value], ...] of a run in a folder or on a server, by the destination's own reader.
NUMBERS = {
    "tensorboard": """
import sys, json, glob
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
reader = EventAccumulator(glob.glob(sys.argv[1] + "/*/")[0], size_guidance={"scalars": 0})
reader.Reload()
print(json.dumps([[e.step, tag, e.value] for tag in reader.Tags()["scalars"] for e in reader.Scalars(tag)]))
""",
    "mlflow": """
import sys, json
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[2])
(run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
found = [[m.step, name, m.value] for name in run.data.metrics for m in client.get_metric_history(run.info.run_id, name)]
print(json.dumps(found))
""",
    "wandb": WANDB_FILES
    + """
found = []
for path in sorted(glob.glob(sys.argv[1] + "/*/from-*/wandb/offline-run-*/run-*.wandb")):
    for data in records(open(path, "rb").read()):
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
            numbers = {k: v for k, v in items.items() if k[0] != "_" and not k.startswith("rollouts/")}
            found += [[items["step"], k, v] for k, v in numbers.items() if k not in ("step", "attempt")]
print(json.dumps(found))
""",
    "trackio": """
import sys, json, os
os.environ["TRACKIO_DIR"] = sys.argv[1]
from trackio.sqlite_storage import SQLiteStorage as storage
found, others = [], ("step", "timestamp", "attempt", "rollouts")
for project in storage.get_projects():
    for name in storage.get_runs(project):
        for row in storage.get_logs(project, name):
            found += [[row["step"], k, v] for k, v in row.items() if k not in others]
print(json.dumps(found))
""",
}

# Each prints the rows of all tables of rollouts, as lists in the order of the columns.
TABLES = {
    "tensorboard": """
import sys, json, glob
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.text.text_plugin import text_array_to_html
from tensorboard.util.tensor_util import make_ndarray
reader = EventAccumulator(glob.glob(sys.argv[1] + "/*/")[0], size_guidance={"tensors": 0})
reader.Reload()
assert "rollouts" in reader.summary_metadata and reader.summary_metadata["rollouts"].plugin_data.plugin_name == "text"
found = []
for event in reader.Tensors("rollouts"):
    array = make_ndarray(event.tensor_proto)
    html = text_array_to_html(array, True)
    # What its text page draws: the texts, and nothing that they order.
    assert not any(mark in html for mark in ("<img", "<a ", "<script", "<h1", "<strong")), html
    assert html.count("<code>") == array.size - array.shape[1] - sum(not one.strip() for one in array.flat), html
    for row in array[1:]:
        texts = ["\\n".join(line[4:] for line in cell.decode().split("\\n")) for cell in row]
        found.append([(json.loads(text) if text else None) if place in (0, 5, 7) else text
                      for place, text in enumerate(texts)])
print(json.dumps(found))
""",
    "mlflow": """
import sys, json, os, tempfile
import mlflow
from mlflow.tracking import MlflowClient
mlflow.set_tracking_uri(sys.argv[2])
client = MlflowClient(sys.argv[2])
(run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
found, paths = [], [one.path for one in client.list_artifacts(run.info.run_id, "rollouts")]
for path in sorted(paths):
    with tempfile.TemporaryDirectory() as folder:
        table = json.load(open(client.download_artifacts(run.info.run_id, path, folder)))
    found += table["data"]
assert len(client.load_table(run.info.experiment_id, paths[0], [run.info.run_id]).columns) == 8
tag = json.loads(run.data.tags["mlflow.loggedArtifacts"])
assert sorted(one["path"] for one in tag) == sorted(paths) and {one["type"] for one in tag} == {"table"}
print(json.dumps(found))
""",
    "wandb": WANDB_FILES
    + """
found = []
for path in sorted(glob.glob(sys.argv[1] + "/*/from-*/wandb/offline-run-*/run-*.wandb")):
    for data in records(open(path, "rb").read()):
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {"/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
            if "rollouts/path" in items:
                assert (items["rollouts/_type"], items["rollouts/ncols"]) == ("table-file", 8)
                found += json.load(open(path.rpartition("/")[0] + "/files/" + items["rollouts/path"]))["data"]
print(json.dumps(found))
""",
    "trackio": """
import sys, json, os
os.environ["TRACKIO_DIR"] = sys.argv[1]
import trackio
from trackio.sqlite_storage import SQLiteStorage as storage
found = []
for project in storage.get_projects():
    for name in storage.get_runs(project):
        for row in storage.get_logs(project, name):
            if "rollouts" in row:
                assert row["rollouts"]["_type"] == trackio.Table.TYPE
                found += [list(one.values()) for one in row["rollouts"]["_value"]]
print(json.dumps(found))
""",
}

# Each prints the settings of the run, as texts by name, and its address here.
SETTINGS = {
    "tensorboard": """
import sys, json, glob
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.text.text_plugin import text_array_to_html
from tensorboard.util.tensor_util import make_ndarray
reader = EventAccumulator(glob.glob(sys.argv[1] + "/*/")[0], size_guidance={"tensors": 0})
reader.Reload()
(settings,), (url,) = (
    [make_ndarray(event.tensor_proto) for event in reader.Tensors(tag)] for tag in ("hacrl/settings", "hacrl/url")
)
found = {name.decode().strip(): value.decode().strip() for name, value in settings[1:]}
_, address, _ = text_array_to_html(url, True).split(chr(34), 2)
print(json.dumps([found, address]))
""",
    "mlflow": """
import sys, json
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[2])
(run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
print(json.dumps([run.data.params, run.data.tags["hacrl.url"]]))
""",
    "wandb": WANDB_FILES
    + """
config = {}
for path in sorted(glob.glob(sys.argv[1] + "/*/from-*/wandb/offline-run-*/run-*.wandb")):
    for data in records(open(path, "rb").read()):
        record = Record()
        record.ParseFromString(data)
        changes = {"run": record.run.config, "config": record.config}.get(record.WhichOneof("record_type"))
        for item in changes.update if changes else ():
            config[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
address = config.pop("hacrl_url")
print(json.dumps([{name: str(value) for name, value in config.items() if name[0] != "_"}, address]))
""",
    "trackio": """
import sys, json, os
os.environ["TRACKIO_DIR"] = sys.argv[1]
from trackio.sqlite_storage import SQLiteStorage as storage
(project,) = storage.get_projects()
(name,) = storage.get_runs(project)
config = storage.get_run_config(project, name)
address = config.pop("hacrl_url")
print(json.dumps([{key: str(value) for key, value in config.items() if key[0] != "_"}, address]))
""",
}
