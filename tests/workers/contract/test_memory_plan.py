"""Whether a run fits a machine, and the settings that a refusal proposes."""

from __future__ import annotations

import pytest

from tests.support.workers.tiny import make_pair, make_spec, train
from tests.workers.contract.test_memory_footprint import GIB, QWEN, spec_of
from workers.contract.memory_footprint import Machine
from workers.contract.memory_plan import shortfall
from workers.trainer import preflight


def test_a_run_that_does_not_fit_names_three_changes_that_do():
    machine = Machine(gpus=(80 * GIB,) * 4, memory=500 * GIB)
    spec = spec_of(2)
    lacking = shortfall(spec, [QWEN, QWEN], machine)
    assert lacking is not None
    assert lacking.where == "a GPU"
    assert lacking.needed > lacking.available == 80 * GIB
    assert len(lacking.fixes) == 3
    assert all(fix.peak <= 80 * GIB for fix in lacking.fixes)
    assert str(lacking).startswith("The run needs about 84.2 GiB on a GPU, which has 80.0 GiB. Any of these fits: ")
    # The first of them, taken at its word.
    assert lacking.fixes[0].change == "gradient_checkpointing"
    mended = spec_of(2, compute={"gradient_checkpointing": True})
    assert shortfall(mended, [QWEN, QWEN], machine) is None


def test_nothing_helps_where_even_the_weights_are_too_large():
    lacking = shortfall(spec_of(), [QWEN], Machine(memory=GIB))
    assert lacking is not None
    assert str(lacking).endswith("No setting helps: choose smaller models, or more or larger GPUs.")


def test_trainer_refuses_before_it_loads_anything(tmp_path, monkeypatch):
    spec = make_spec(tmp_path, make_pair(tmp_path))
    monkeypatch.setattr(preflight, "this_machine", lambda spec: Machine(memory=GIB // 4))
    loaded: list[str] = []
    monkeypatch.setattr("workers.model.policy.load_model", lambda *args: loaded.append("model"))
    with pytest.raises(preflight.DoesNotFit, match=r"The run needs about 0\.5 GiB on this machine"):
        train(spec, tmp_path / "run")
    assert loaded == []
