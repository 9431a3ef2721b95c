"""Exports: files that other tools read, with the same numbers as the pages and the API."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest
from django.test import Client

from hacrl_web.insight.export.tables import TABLES
from hacrl_web.runs.models import Contribution, RolloutSample, Run, TelemetryEvent
from hacrl_web.runs.telemetry.metric_series import pack_block
from tests.support.web.factories import make_run, make_user
from tests.support.web.leaderboard_help import sweep_of

pytestmark = pytest.mark.django_db
NUM_STEPS = 3000


@pytest.fixture
def run(db):
    """Two attempts: the second repeats step 2."""
    run = make_run(make_user("ada"), name="Swan")
    first, second = run.agent_names[:2]
    for seq, (attempt, step, reward) in enumerate(((1, 1, 1.0), (1, 2, 0.0), (2, 2, 0.5), (2, 3, None)), start=1):
        RolloutSample.objects.create(
            run=run, seq=seq, attempt=attempt, step=step, agent=first, prompt_id="q1", sample=0, prompt="2 + 2 = ?",
            completion="line\n\u2028“four” ,\t😀", answer="4", reward=reward, finish_reason="stop", num_tokens=3,
            mean_logp=-0.25,
        )  # fmt: skip
        Contribution.objects.create(
            run=run, seq=10 + seq, attempt=attempt, step=step, agent=second, source=first, prompt_id="q1", sample=0,
            num_tokens=3, advantage=0.5, sequence_ratio=0.9, clip_side="none", weight=0.1 * seq,
        )  # fmt: skip
        TelemetryEvent.objects.create(
            run=run, seq=20 + seq, attempt=attempt, type="metrics", step=step, agent=first, time=0.0,
            payload={"values": {"reward/mean": reward}},
        )  # fmt: skip
    return run


@pytest.fixture
def ada(client: Client, run) -> Client:
    client.force_login(run.owner)
    return client


def body(client: Client, address: str) -> bytes:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content)


def rows_of(data: bytes) -> list[dict[str, Any]]:
    """Of JSON Lines, which only \\n ends: texts may hold other ends of lines."""
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


def test_jsonl_has_each_step_once_and_texts_as_they_are(ada: Client, run) -> None:
    rows = rows_of(body(ada, f"/runs/{run.pk}/export/rollouts.jsonl"))
    assert [(row["step"], row["reward"]) for row in rows] == [(1, 1.0), (2, 0.5), (3, None)]
    assert rows[0]["completion"] == "line\n\u2028“four” ,\t😀"
    assert (rows[0]["run_name"], rows[0]["seed"], rows[0]["algorithm"]) == ("Swan", run.seed, run.algorithm)


def test_parquet_is_read_by_other_tools_and_explains_itself(ada: Client, run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, table in TABLES.items():
        data = body(ada, f"/runs/{run.pk}/export/{name}.parquet")
        read = parquet.read_table(io.BytesIO(data))
        assert read.to_pylist() == rows_of(body(ada, f"/api/v1/runs/{run.pk}/export/{name}.jsonl"))
        assert read.num_rows == table.count(run) == 3
        assert read.column_names == [column.name for column in table.columns]
        card = json.loads(read.schema.metadata[b"hacrl"])
        assert card["runs"][0]["settings"] == run.spec
        assert all(field.metadata[b"help"] for field in read.schema)


def test_data_card_is_a_file_beside_json_lines(ada: Client, run) -> None:
    page = ada.get(f"/runs/{run.pk}/export").content.decode()
    for name, table in TABLES.items():
        assert f"/runs/{run.pk}/export/{name}.json" in page
        card = json.loads(body(ada, f"/api/v1/runs/{run.pk}/export/{name}.json"))
        assert card["table"] == name
        assert card["columns"] == {column.name: column.help for column in table.columns}
        assert [(one["id"], one["settings"]) for one in card["runs"]] == [(str(run.pk), run.spec)]


def test_sweep_has_the_rows_of_all_its_runs(client: Client) -> None:
    sweep = sweep_of(make_user("eve"), ["hacpo", "gspo"], [1, 2])
    client.force_login(sweep.owner)
    runs = list(sweep.runs.order_by("created_at", "pk"))
    for seq, run in enumerate(runs):
        TelemetryEvent.objects.create(
            run=run, seq=1, attempt=1, type="metrics", step=1, agent="a", time=0.0, payload={"values": {"loss": seq}}
        )
    data = body(client, f"/sweeps/{sweep.pk}/export/metrics.jsonl")
    assert [(row["run"], row["value"]) for row in rows_of(data)] == [(str(run.pk), seq) for seq, run in enumerate(runs)]
    assert data == body(client, f"/api/v1/sweeps/{sweep.pk}/export/metrics.jsonl")
    page = client.get(f"/sweeps/{sweep.pk}/export").content.decode()
    assert f"/sweeps/{sweep.pk}/export/metrics.parquet" in page


def test_page_lists_tables_and_unknown_ones_are_refused_by_name(ada: Client, run) -> None:
    page = ada.get(f"/runs/{run.pk}/export").content.decode()
    for name in TABLES:
        assert f"/runs/{run.pk}/export/{name}.parquet" in page
    assert "3 rows" in page
    answer = ada.get(f"/api/v1/runs/{run.pk}/export/answers.jsonl")
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        404, "The tables are metrics, rollouts, contributions.",
    )  # fmt: skip
    assert ada.get(f"/runs/{run.pk}/export/metrics.xls").status_code == 404
    listed = ada.get("/api/v1/export-tables").json()["items"]
    assert [one["name"] for one in listed] == list(TABLES)


def test_empty_run_has_files_without_rows(client: Client) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    run = make_run(make_user("ada"))
    client.force_login(run.owner)
    assert body(client, f"/runs/{run.pk}/export/rollouts.jsonl") == b""
    read = parquet.read_table(io.BytesIO(body(client, f"/runs/{run.pk}/export/rollouts.parquet")))
    assert (read.num_rows, read.column_names[0]) == (0, "run")


@pytest.fixture
def long_run(run) -> Run:
    """With NUM_STEPS steps of two metrics, most of them packed, some repeated, and some without a number."""
    chance = random.Random(7)
    agents = run.agent_names[:2]
    places = [(1, step) for step in range(1, 1600)] + [(2, step) for step in range(1500, NUM_STEPS + 1)]
    run.events.all().delete()
    TelemetryEvent.objects.bulk_create(
        TelemetryEvent(
            run=run, seq=100 + 2 * place + number, attempt=attempt, type="metrics", step=step, agent=agent, time=0.0,
            payload={
                "values": {"reward/mean": None if step % 7 == number else chance.random(), "loss": 1e-300 * step},
                "ratios": {},
            },
        )
        for place, (attempt, step) in enumerate(places)
        for number, agent in enumerate(agents)
    )  # fmt: skip
    Run.objects.filter(pk=run.pk).update(last_seq=100 + 2 * len(places))
    while pack_block(Run(pk=run.pk)):
        pass
    run.refresh_from_db()
    assert run.packed_seq > 1000
    return run


def test_parquet_has_the_metrics_of_the_api_to_the_last_bit(ada: Client, long_run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    data = body(ada, f"/runs/{long_run.pk}/export/metrics.parquet")
    rows = parquet.read_table(io.BytesIO(data)).to_pylist()
    shown = {
        (one["metric"], one["agent"], one["source"], step): value
        for one in ada.get(f"/api/v1/runs/{long_run.pk}/series").json()["series"]
        for step, value in zip(one["steps"], one["values"], strict=True)
    }
    assert len(shown) == len(rows) == 2 * 2 * NUM_STEPS
    assert sum(value is None for value in shown.values()) == sum(step % 7 < 2 for step in range(1, NUM_STEPS + 1))
    assert {(row["metric"], row["agent"], row["source"], row["step"]): row["value"] for row in rows} == shown
