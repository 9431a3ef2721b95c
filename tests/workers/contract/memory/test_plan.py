"""Whether a run fits a machine, and the settings that a refusal proposes."""

from __future__ import annotations

import pytest

from tests.support.workers.tiny import make_pair, make_spec, train
from tests.workers.contract.memory.test_footprint import GIB, QWEN, spec_of
from workers.contract.memory.footprint import Shape, estimate_memory
from workers.contract.memory.machine import Machine
from workers.contract.memory.plan import fitted, shortfall
from workers.trainer import preflight


def test_a_run_that_does_not_fit_names_three_changes_that_do():
    machine = Machine(gpus=(80 * GIB,) * 4, memory=500 * GIB)
    most = {
        "algorithm": {"beta": 0.001},
        "compute": {"gradient_checkpointing": False, "agent_devices": "shared"},
    }
    spec = spec_of(2, **most)
    lacking = shortfall(spec, [QWEN, QWEN], machine)
    assert lacking is not None
    assert lacking.where == "a GPU"
    assert lacking.needed > lacking.available == 80 * GIB
    assert len(lacking.fixes) == 3
    assert all(fix.peak <= 80 * GIB for fix in lacking.fixes)
    assert str(lacking).startswith("The run needs about 85.6 GiB on a GPU, which has 80.0 GiB. Any of these fits: ")
    # The first of them, taken at its word.
    assert lacking.fixes[0].change == "gradient_checkpointing"
    mended = spec_of(2, **most | {"compute": {**most["compute"], "gradient_checkpointing": True}})
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
    with pytest.raises(preflight.DoesNotFit, match=r"The run needs about 0\.4 GiB on this machine"):
        train(spec, tmp_path / "run")
    assert loaded == []


def test_batches_are_the_largest_that_fit():
    spec, small, large = spec_of(), Machine(memory=100 * GIB), Machine(memory=4096 * GIB)
    assert fitted(spec, [QWEN], large) == spec  # no limit is needed
    changed = fitted(spec, [QWEN], small)
    budget, rows = changed.training.tokens_per_micro_batch, changed.rollout.rollout_batch_size
    longest = spec.rollout.max_prompt_length + spec.rollout.max_completion_length
    assert longest < budget < spec.training.micro_batch_size * longest
    assert 1 < rows < spec.rollout.rollout_batch_size

    def needed(**settings: int) -> float:
        sections = {
            name: getattr(changed, name).model_copy(
                update={key: value for key, value in settings.items() if hasattr(getattr(changed, name), key)}
            )
            for name in ("training", "rollout")
        }
        return estimate_memory(changed.model_copy(update=sections), [QWEN], small).memory / GIB

    assert needed() <= 85
    assert needed(tokens_per_micro_batch=budget + longest // 4) > 85
    assert needed(rollout_batch_size=2 * rows) > 85
    assert shortfall(spec, [QWEN], small) is None  # so it is accepted
    assert fitted(changed, [QWEN], large) == changed  # a number of the user's own stays


def test_budget_below_one_prompt_and_answer_is_refused():
    with pytest.raises(ValueError, match="tokens_per_micro_batch 100 is less than one prompt and answer"):
        spec_of(training={"tokens_per_micro_batch": 100})


def test_two_models_of_135_million_weights_need_no_micro_batch_named_on_24_gib():
    """SmolLM2's shape; with 64 sequences of a micro-batch, as the settings say, they would need more."""
    smollm2 = Shape(
        parameters=134_515_008, vocabulary=49_152, hidden=576, layers=30, feed_forward=1536, query=576, key=192
    )
    spec = spec_of(2, rollout={"max_prompt_length": 256, "max_completion_length": 64}, algorithm={"beta": 0.001})
    machine = Machine(memory=24 * GIB)
    assert spec.training.micro_batch_size == 64
    assert estimate_memory(spec, [smollm2] * 2, machine).memory > machine.memory
    assert shortfall(spec, [smollm2] * 2, machine) is None
    fits = fitted(spec, [smollm2] * 2, machine)
    assert fits.training.tokens_per_micro_batch >= 256 + 64
    assert estimate_memory(fits, [smollm2] * 2, machine).memory <= 0.85 * 24 * GIB
