"""Fault 23: a search whose dispatcher, worker and whole product are killed continues as if they had not been."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.faults.world import World, wait

pytestmark = pytest.mark.full
TRIALS, PATIENCE_S, FREE_S = 20, 600.0, 5.0
RATE = "training.learning_rate"


def search_body(world: World) -> dict[str, Any]:
    """Fake trainers whose accuracy falls with the distance of the learning rate to 1e-5."""
    request = world.request("complete by-rate", steps=80)
    request.pop("algorithm", None)
    request.pop("seed", None)
    search = {"method": "optuna", "trials": TRIALS, "at_once": 2, "pruner": "median"}
    request["evaluation"] = {"eval_interval": 20}
    parameters = {RATE: "1e-7..1e-3 log", "alpha": "0.5..3"}
    return request | {"algorithms": ["hacpo"], "seeds": [1], "search": search | {"parameters": parameters}}


def test_search_of_20_trials_survives_kills_and_loses_or_repeats_no_trial(world: World) -> None:
    answer = world.ask("/api/v1/sweeps", search_body(world))
    assert answer.status == 201, answer.text
    url = f"/api/v1/sweeps/{answer.body['id']}"

    def ended() -> int:
        return sum(trial["state"] != "running" for trial in world.ask(url).body["search"]["trials"])

    for number, victim in ((2, "dispatcher"), (5, "worker"), (8, "dispatcher"), (11, "up")):
        wait(lambda number=number: ended() >= number, f"{number} trials have ended", PATIENCE_S)
        if victim == "up":
            world.stop(signal.SIGKILL)
            world.start()
        else:
            world.kill(victim)
    wait(lambda: world.ask(url).body["search"]["state"] == "finished", "the search has finished", PATIENCE_S)
    body = world.ask(url).body
    trials = body["search"]["trials"]
    assert [trial["number"] for trial in trials] == list(range(TRIALS))
    assert {trial["state"] for trial in trials} <= {"completed", "pruned"}
    # Each trial has one run, and there is no other run.
    assert len({trial["run"] for trial in trials}) == TRIALS == len(body["runs"])
    assert len({str(trial["parameters"]) for trial in trials}) == TRIALS
    pruned = [trial for trial in trials if trial["state"] == "pruned"]
    assert pruned
    runs = {run["id"]: run for run in body["runs"]}
    for trial in pruned:
        assert runs[trial["run"]]["state"] == "stopped"
        assert runs[trial["run"]]["reason"].startswith(f"pruned at step {trial['pruned_step']}: ")
    best = trials[body["search"]["best"]]
    assert best["value"] == max(trial["value"] for trial in trials if trial["state"] == "completed")
    assert 1e-6 < best["parameters"][RATE] < 1e-4
    print("pruned", len(pruned), "best", best["value"], best["parameters"])


def test_pruned_trainer_frees_its_worker_within_five_seconds(world: World) -> None:
    """From the moment in which the pruner has decided, read from the database, to the end of the run."""
    body = search_body(world)
    body["search"] |= {"at_once": 1}
    url = f"/api/v1/sweeps/{world.ask('/api/v1/sweeps', body).body['id']}"
    run = wait(lambda: _run_pruned(world), "a trial is to be pruned", PATIENCE_S, pause_s=0.02)
    state = "SELECT state FROM runs_run WHERE id = ?"
    key = run.replace("-", "") if world.kind == "sqlite" else run
    wait(lambda: world.database.rows(state, key)[0][0] == "stopped", "its worker is free", FREE_S, pause_s=0.02)
    assert world.ask(f"{url}/stop", {}).status == 200


def _run_pruned(world: World) -> str:
    """The run of the newest trial that the pruner has judged to end, while it runs."""
    rows = world.database.rows("SELECT run_id FROM runs_trial WHERE pruned_step IS NOT NULL AND state = ?", "running")
    return str(rows[0][0]) if rows else ""
