"""LoRA: only the small matrices move, adapter-off is the start, and the export is an ordinary merged model."""

from __future__ import annotations

import json

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from hacrl_web.insight.checkpoints import model_card
from tests.support.marks import in_full
from tests.support.workers.tiny import make_agent, make_spec, records, train
from workers.contract.checkpoint_manifest import needs_float32
from workers.inspection import ask
from workers.model import loading
from workers.model.export import write_precision
from workers.model.loading import load_model
from workers.model.policy import Policy

PROMPTS, RESPONSES = [[2, 3], [5]], [[4, 5, 1], [6, 7]]


def with_lora(pair: list[dict], index: int = 0, **changes) -> list[dict]:
    return [{**agent, **({"lora_rank": 4, **changes} if place == index else {})} for place, agent in enumerate(pair)]


def policy_of(trainer, agent: int = 0) -> Policy:
    return trainer.agents[agent].policy


def test_adapters_start_as_the_model_itself_and_few_weights_are_trained(tmp_path, pair):
    spec = make_spec(tmp_path, with_lora(pair), algorithm={"beta": 0.1})
    plain = Policy(make_spec(tmp_path, pair).agents[0], spec, torch.device("cpu"))
    small = Policy(spec.agents[0], spec, torch.device("cpu"))
    assert torch.equal(small.token_logps(PROMPTS, RESPONSES)[0], plain.token_logps(PROMPTS, RESPONSES)[0])
    assert small.num_parameters == plain.num_parameters == plain.optimizer.num_trained
    # Rank 4 beside q, k, v, o, gate, up, down of two layers: 4 * (in + out) each. Hidden 32, q and o 32 wide, k and v
    # 16, feed-forward 48: 4 * (64 + 48 + 48 + 64 + 80 + 80 + 80) * 2 = 3712.
    assert small.optimizer.num_trained == 3712
    assert small.reference is None  # no second copy


def test_reference_is_the_model_with_its_adapter_off(tmp_path, pair):
    agents = with_lora(pair[:1])
    trainer = train(make_spec(tmp_path, agents, algorithm={"beta": 0.05}), tmp_path / "run")
    small = policy_of(trainer)
    start = Policy(make_spec(tmp_path, pair).agents[0], trainer.spec, torch.device("cpu"))
    now = small.token_logps(PROMPTS, RESPONSES)[0]
    expected = start.token_logps(PROMPTS, RESPONSES)[0]
    assert torch.equal(small.reference_logps(PROMPTS, RESPONSES), expected)
    assert torch.equal(small.token_logps(PROMPTS, RESPONSES)[0], now)  # on again afterwards
    assert (now - expected).abs().max() > 1e-4
    trained = {name for name, parameter in small.model.named_parameters() if parameter.requires_grad}
    assert trained
    assert all(".lora_" in name for name in trained)
    kl = [record["values"]["kl"] for record in records(tmp_path / "run", "metrics")]
    assert kl[0] == pytest.approx(0.0, abs=1e-9)
    assert kl[-1] > 1e-9


def test_only_the_adapters_move_beside_a_fully_trained_peer(tmp_path, pair):
    trainer = train(make_spec(tmp_path, with_lora(pair)), tmp_path / "run")
    start = [AutoModelForCausalLM.from_pretrained(agent["model"]).state_dict() for agent in pair]
    frozen = {
        name.replace(".base_layer", ""): value
        for name, value in policy_of(trainer).model.state_dict().items()
        if ".lora_" not in name
    }
    assert frozen.keys() == start[0].keys()
    assert all(torch.equal(frozen[name], start[0][name]) for name in frozen)
    assert any(
        not torch.equal(value, start[1][name]) for name, value in policy_of(trainer, 1).model.state_dict().items()
    )
    rows = [row for row in records(tmp_path / "run", "contribution") if row["agent"] == "Qwen" and row["weight"]]
    assert {row["source"] for row in rows} == {"Qwen", "Llama"}  # it learns from its peer too
    assert any("; 3,712 LoRA parameters are trained" in log["message"] for log in records(tmp_path / "run", "log"))


def test_export_is_an_ordinary_model_with_the_adapter_merged_and_beside_it(tmp_path, pair):
    trainer = train(make_spec(tmp_path, with_lora(pair[:1])), tmp_path / "run")
    (folder,) = (tmp_path / "run" / "checkpoints" / "step-000003" / "agents").iterdir()
    names = set(load_file(folder / "model.safetensors"))
    assert not [name for name in names if "lora" in name or "base_layer" in name]
    assert not (folder / "adapter_config.json").exists()
    exported = AutoModelForCausalLM.from_pretrained(folder)
    small = policy_of(trainer)
    merged = small.token_logps(PROMPTS, RESPONSES, model=exported)[0]
    torch.testing.assert_close(merged, small.token_logps(PROMPTS, RESPONSES)[0], rtol=0, atol=2e-5)
    assert (merged - small.reference_logps(PROMPTS, RESPONSES)).abs().max() > 1e-3
    start = AutoModelForCausalLM.from_pretrained(pair[0]["model"])
    adapted = PeftModel.from_pretrained(start, str(folder / "adapter"))
    by_peft = small.token_logps(PROMPTS, RESPONSES, model=adapted.get_base_model())[0]
    torch.testing.assert_close(by_peft, small.token_logps(PROMPTS, RESPONSES)[0], rtol=0, atol=1e-6)
    config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == pair[0]["model"]
    projections = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    assert config["target_modules"] == projections  # in this order: the same weights are the same files


def test_bfloat16_run_of_all_weights_exports_what_sampled(tmp_path, pair):
    """Its float32 masters are rounded to the weights that sample, and these are the folder's, bit for bit."""
    trainer = train(make_spec(tmp_path, pair[:1], compute={"dtype": "bfloat16"}), tmp_path / "run")
    (folder,) = (tmp_path / "run" / "checkpoints" / "step-000003" / "agents").iterdir()
    exported = load_model(str(folder), None, torch.bfloat16, torch.device("cpu")).state_dict()
    sampled = policy_of(trainer).model.state_dict()
    assert all(torch.equal(exported[name], sampled[name]) for name in sampled)
    assert not needs_float32(str(folder))


@pytest.mark.parametrize("is_tied", [True, *in_full(False)])
def test_bfloat16_lora_is_exported_as_it_was_trained_and_says_what_bfloat16_would_lose(tmp_path, is_tied):
    """The trainer computes in bfloat16, so its own log-probabilities are some .01 off those of its weights."""
    start = make_agent(tmp_path / "start", "qwen3", seed=1, tie_word_embeddings=is_tied)
    agents = [{"name": "Qwen", "model": str(start), "lora_rank": 4, "learning_rate": 2e-5}]
    trainer = train(make_spec(tmp_path, agents, compute={"dtype": "bfloat16"}), tmp_path / "run")
    (folder,) = (tmp_path / "run" / "checkpoints" / "step-000003" / "agents").iterdir()
    small = policy_of(trainer)
    exported = load_model(str(folder), None, torch.float32, torch.device("cpu"))  # as Ask and evaluations load it
    base = load_model(str(start), None, torch.bfloat16, torch.device("cpu")).float()
    adapted = PeftModel.from_pretrained(base, str(folder / "adapter")).get_base_model()
    merged, by_adapter, trained = (
        small.token_logps(PROMPTS, RESPONSES, model=model)[0] for model in (exported, adapted, None)
    )
    torch.testing.assert_close(merged, by_adapter, rtol=0, atol=1e-5)
    torch.testing.assert_close(merged, trained, rtol=0, atol=0.05)
    # Updates of 2e-5 beside weights of .2, whose units in bfloat16 are 2^-10 to 2^-11: most of it is lost.
    values = json.loads((folder / "precision.json").read_text())
    assert 0 < values["surviving_in_bfloat16"] < 0.5
    assert 0 < values["nats"]["float32"] < 0.05
    assert values["nats"]["bfloat16"] > 0
    assert values["tokens"] > 0
    # Who evaluates the folder on a GPU with dtype auto computes in float32 too; a float32 run writes no such file.
    evaluated = make_spec(tmp_path, [{"name": "Q", "model": str(folder)}], training={"steps": 0})
    assert Policy(evaluated.agents[0], evaluated, torch.device("cpu")).dtype == torch.float32
    assert needs_float32(str(folder))
    assert not needs_float32(str(start))
    agents, compute = [{"name": "Q", "model": str(folder)}], {"dtype": "bfloat16"}
    rounded = make_spec(tmp_path, agents, training={"steps": 0}, compute=compute)
    train(rounded, tmp_path / "rounded")
    assert any("rounded to bfloat16 here" in log["message"] for log in records(tmp_path / "rounded", "log"))


@pytest.mark.parametrize("dtype", ["bfloat16", *in_full("float32")])
def test_resumed_lora_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path, pair, dtype):
    spec = make_spec(
        tmp_path,
        with_lora(pair[:1]),
        algorithm={"beta": 0.01},
        training={"steps": 4},
        checkpoint={"save_steps": 2, "keep": 9},
        compute={"dtype": dtype},
    )
    whole = policy_of(train(spec, tmp_path / "whole")).model.state_dict()
    train(spec, tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "step-000004"
    last.rename(tmp_path / "gone")
    resumed = train(spec, tmp_path / "run", attempt=2)
    assert records(tmp_path / "run", "started")[-1]["step"] == 2
    again = policy_of(resumed).model.state_dict()
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_rank_and_scale_act(tmp_path, pair):
    ends = []
    for number, changes in enumerate([{}, {"lora_rank": 2}, {"lora_alpha": 8}]):
        trainer = train(make_spec(tmp_path, with_lora(pair[:1], **changes)), tmp_path / str(number))
        ends.append(policy_of(trainer).token_logps(PROMPTS, RESPONSES)[0])
    assert not torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_evaluation_ask_harness_adapter_and_folder_are_the_bfloat16_model_that_was_trained(tmp_path, monkeypatch):
    """Their log-probabilities of the tokens that the trainer compared at its export; the model card prints them."""
    start = make_agent(tmp_path / "start", "qwen3", seed=1)
    agents = [{"name": "Q", "model": str(start), "lora_rank": 4, "learning_rate": 1e-3}]
    compared = []

    def recorded(*arguments):
        compared.append(arguments[-1])
        write_precision(*arguments)

    monkeypatch.setattr("workers.model.export.write_precision", recorded)
    trainer = train(make_spec(tmp_path, agents, compute={"dtype": "bfloat16"}), tmp_path / "run")
    (folder,) = (tmp_path / "run" / "checkpoints" / "step-000003" / "agents").iterdir()
    prompts, responses = zip(*compared[-1], strict=True)
    cpu, small = torch.device("cpu"), policy_of(trainer)

    def logps(model, policy=small):
        values, mask = policy.token_logps(prompts, responses, model=model, temperature=1.0)
        return values[mask]

    def off(model) -> float:
        return (logps(model) - logps(None)).abs().mean().item()

    evaluated = make_spec(tmp_path, [{"name": "Q", "model": str(folder)}], training={"steps": 0})
    evaluation = logps(None, Policy(evaluated.agents[0], evaluated, cpu))
    asked = []
    load = loading.load_model
    monkeypatch.setattr(loading, "load_model", lambda *arguments: asked.append(load(*arguments)) or asked[-1])
    question = {"template": "{question}", "question": "1+2=", "system": "", "seed": 0, "temperature": 0.0}
    ask.answer(question | {"max_new_tokens": 2}, {"folder": str(folder), "name": "Q"})
    harness = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")  # test_harness holds that it asks so
    base = load(str(start), None, torch.bfloat16, cpu).float()
    adapted = PeftModel.from_pretrained(base, str(folder / "adapter")).get_base_model()
    for model in (asked[0], harness, adapted):
        torch.testing.assert_close(logps(model), evaluation, rtol=0, atol=1e-5)
    nats = json.loads((folder / "precision.json").read_text())["nats"]
    merged = {name: load(str(folder), None, getattr(torch, name), cpu) for name in ("float32", "bfloat16")}
    assert {name: off(model) for name, model in merged.items()} == pytest.approx(nats, rel=1e-3)
    # Computing in bfloat16 is .008 off; the update moves log-probabilities by .08.
    moved = off(load(str(start), None, torch.float32, cpu))  # PEFT changed `base`
    assert nats["float32"] < 0.2 * moved
    printed = model_card.precision_text(model_card.precision_of(folder))
    assert f"off by {nats['bfloat16']:.3g} nats a token (as it is: {nats['float32']:.3g})" in printed
