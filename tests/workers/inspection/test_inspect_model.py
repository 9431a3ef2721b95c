"""Inspection of models and pairs: what is found, and what is refused with a reason that helps."""

import json
import os
import signal
import struct
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="transformers is missing: pip install -c constraints.txt -e '.[train]'")
pytest.importorskip("torch", reason="torch is missing: pip install -c constraints.txt -e '.[train]'")

from workers.demo.warm_start import DIGIT_PAIRS, make_model, make_tokenizer
from workers.inspection import inspect_model


def save(folder: Path, agent: str) -> Path:
    tokenizer = make_tokenizer(DIGIT_PAIRS if agent == "llama" else ())
    make_model(agent, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def model(tmp_path):
    return save(tmp_path / "model", "qwen3")


def ask(capsys, *arguments: object) -> tuple[int, dict]:
    status = inspect_model.main([str(argument) for argument in arguments])
    return status, json.loads(capsys.readouterr().out)


def refusal(capsys, folder: object) -> tuple[str, str]:
    """Name and text of the check that fails; it is the last one made."""
    status, report = ask(capsys, "model", "--", folder)
    assert (status, report["ok"]) == (1, False)
    *passed, failed = report["checks"]
    assert all(check["ok"] for check in passed)
    assert not failed["ok"]
    return failed["name"], failed["detail"]


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def header_file(path: Path, header: dict, data: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_sound_model_passes_every_check_and_its_facts_are_right(capsys, model):
    status, report = ask(capsys, "model", model)
    assert (status, report["ok"], len(report["checks"])) == (0, True, 7)
    facts = report["facts"]
    assert facts["architecture"] == "Qwen3ForCausalLM"
    # Embedding; per layer q and o, k and v, feed-forward, norms of the stream and of q and k; last norm.
    assert facts["num_parameters"] == 23 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 192 + 2 * 64 + 2 * 32) + 64
    assert (facts["vocab_size"], facts["context_length"], facts["has_chat_template"]) == (23, 128, False)
    assert (facts["eos"], facts["eos_ids"], facts["dtype"]) == ("<eos>", [1], "F32")
    assert facts["weights_bytes"] == (model / "model.safetensors").stat().st_size


def test_weights_are_never_loaded(capsys, model):
    count = 10**11  # 400 GB of zeros in a file with a hole
    header_file(
        model / "model.safetensors", {"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}, b""
    )
    header_bytes = (model / "model.safetensors").stat().st_size
    os.truncate(model / "model.safetensors", header_bytes + 4 * count)
    assert ask(capsys, "model", model)[1]["facts"]["num_parameters"] == count


def test_normalizer_that_fails_at_a_text_like_a_question_is_refused(capsys, model):
    rule = {"type": "Replace", "pattern": {"Regex": "(?:a|aa)*[b-c]$"}, "content": ""}
    text = {"type": "Replace", "pattern": {"String": "!"}, "content": "!b!"}
    edit(model / "tokenizer.json", normalizer={"type": "Sequence", "normalizers": [text, rule]})
    name, detail = refusal(capsys, model)
    assert name == "Tokenizer loads"
    assert detail.startswith("The tokenizer fails at 'aaaaaaaa")


def test_template_that_runs_away_at_a_text_like_a_question_takes_the_time_limit(capsys, model):
    class Late(BaseException):
        pass

    def raise_late(*_):
        raise Late

    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    template = "{% if messages[0].content|length > 999 %}" + loops + "{% endif %}{{ messages[0].content }}"
    edit(model / "tokenizer_config.json", chat_template=template)
    before = signal.signal(signal.SIGALRM, raise_late)
    signal.alarm(8)  # in place of the 60 s of a registration
    try:
        with pytest.raises(Late):
            ask(capsys, "model", model)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_system_messages_and_the_thinking_switch_are_reported(capsys, model):
    facts = ask(capsys, "model", model)[1]["facts"]
    assert (facts["has_thinking_switch"], "takes_system" in facts) == (False, False)  # without a template
    knows = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %}1{% endif %}"
    edit(model / "tokenizer_config.json", chat_template=knows)
    facts = ask(capsys, "model", model)[1]["facts"]
    assert (facts["has_thinking_switch"], facts["takes_system"]) == (True, True)
    refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}"
    edit(model / "tokenizer_config.json", chat_template=refuses)
    report = ask(capsys, "model", model)[1]
    assert (report["facts"]["has_thinking_switch"], report["facts"]["takes_system"]) == (False, False)
    assert "It takes no system message" in report["checks"][-1]["detail"]


def test_missing_folder_and_file_are_refused(capsys, model):
    (model / "model.safetensors").unlink()
    assert refusal(capsys, model)[1] == "There is no model.safetensors: copy the weights into the folder."
    (model / "config.json").unlink()
    told = "There is no config.json: choose the folder that save_pretrained wrote."
    assert refusal(capsys, model) == ("config.json", told)
    assert refusal(capsys, model / "absent")[1].startswith("There is no folder")


@pytest.mark.parametrize(
    ("file", "change", "name", "said"),
    [
        ("config.json", {"model_type": "mystery"}, "config.json", "no text-generating model of type 'mystery'"),
        *(("config.json", {"max_position_embeddings": n}, "", "length is") for n in (0, -1, 10**12, "128", True)),
        ("config.json", {"head_dim": 0}, "", "head_dim is 0"),
        ("config.json", {"text_config": [1, 2]}, "", "text_config"),
        ("config.json", {"quantization_config": {"quant_method": "bitsandbytes"}}, "", "quantised"),
        ("config.json", {"rms_norm_eps": float("nan")}, "", "not valid JSON"),
        *(
            (file, change, "Custom code", f"{file} requests custom code")
            for file, change in (
                ("config.json", {"auto_map": {"AutoModel": "code.Model"}}),
                ("config.json", {"text_config": {"deep": [{"auto_map": {}}]}}),
                ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": "code.Tokenizer"}}),
                ("generation_config.json", {"trust_remote_code": True}),
            )
        ),
        *(
            ("tokenizer_config.json", {"chat_template": template}, "", "chat_template")
            for template in ("{% bad", "{{ messages[0].role }}", "{{ raise_exception('no') }}")
        ),
        ("tokenizer_config.json", {"chat_template": [{"name": "default", "template": {"a": 1}}]}, "", "is not text"),
    ],
)
def test_settings_of_a_file_that_would_fail_or_run_code_are_refused(capsys, model, file, change, name, said):
    edit(model / file, **change)
    found, detail = refusal(capsys, model)
    assert said in detail
    assert found == (name or found)


@pytest.mark.parametrize(
    "location", ["~/model", "https://example.org/model", "a\\b", "a/b/c", "-x/y", "a/../b", "Qwеn/x"]
)
def test_location_that_is_neither_a_path_nor_a_hub_id_is_refused(capsys, location):
    name, detail = refusal(capsys, location)
    assert name == "Files can be read"
    assert "hub id such as" in detail


def test_odd_revision_is_refused(capsys):
    status, report = ask(capsys, "model", "owner/name", "--revision", "main;rm")
    assert status == 1
    assert "revision may contain" in report["checks"][-1]["detail"]


def test_pickled_weights_are_refused(capsys, model):
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    assert "can run code when they are loaded" in refusal(capsys, model)[1]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x80\x04\x95pickle renamed", "header length is impossible"),
        (b"", "header length is impossible"),
        (struct.pack("<Q", 10) + b"not json!!", "header is not JSON"),
        (struct.pack("<Q", 2**60) + b"{}", "header length is impossible"),
        (None, "bytes of weights"),
    ],
)
def test_file_that_is_not_safetensors_or_lacks_its_end_is_refused(capsys, model, data, said):
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] if data is None else data)
    name, detail = refusal(capsys, model)
    assert name == "Weights are safetensors"
    assert said in detail


@pytest.mark.parametrize(
    "shard", ["../other.safetensors", "/etc/passwd", "sub/x.safetensors", "code.py", "a.safetensors"]
)
def test_shard_that_leaves_the_folder_or_is_missing_is_refused(capsys, model, shard):
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shard}}))
    assert ("a.safetensors is missing" if shard[0] == "a" else "leaves the folder") in refusal(capsys, model)[1]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "tensor 'w' is impossible"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "tensor 'w' is impossible"),
        ({"dtype": "OBJ", "shape": [1], "data_offsets": [0, 4]}, "tensor 'w' is impossible"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}, "overlap or leave gaps"),
        (
            {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]},
            "4,000,000,000 bytes of weights",
        ),
    ],
)
def test_header_that_lies_is_refused(capsys, model, entry, said):
    header_file(model / "model.safetensors", {"w": entry}, b"1234")
    assert said in refusal(capsys, model)[1]


def test_link_out_of_the_folder_and_pipe_are_refused(capsys, model, tmp_path):
    outside = tmp_path / "outside.safetensors"
    (model / "model.safetensors").rename(outside)
    (model / "model.safetensors").symlink_to(outside)
    assert "is a link that leaves the folder" in refusal(capsys, model)[1]
    (model / "model.safetensors").unlink()
    os.mkfifo(model / "model.safetensors")
    assert "is not a regular file" in refusal(capsys, model)[1]


@pytest.mark.parametrize("target", ["/etc/passwd", "/etc"])
def test_link_out_of_the_folder_is_refused_at_any_depth(capsys, model, target):
    (model / "sub" / "deep").mkdir(parents=True)
    (model / "sub" / "config.json").symlink_to("../config.json")  # within
    assert ask(capsys, "model", model)[1]["ok"]
    (model / "sub" / "deep" / "x").symlink_to(target)
    assert refusal(capsys, model)[1] == "sub/deep/x is a link that leaves the folder: copy the file instead."


def test_tokenizer_that_is_missing_or_larger_than_the_model_is_refused(capsys, model):
    make_tokenizer(DIGIT_PAIRS).save_pretrained(model)  # another model's, with 90 pieces more
    assert "113 tokens but the model only 23" in refusal(capsys, model)[1]
    (model / "tokenizer.json").write_text("{")
    name, detail = refusal(capsys, model)
    assert name == "Tokenizer loads"
    assert "copy tokenizer.json" in detail


def test_weights_of_another_model_are_refused(capsys, model):
    entry = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    header_file(model / "model.safetensors", {"a": entry}, b"\0" * 16)
    assert "weights and config.json do not belong together" in refusal(capsys, model)[1]


def test_pair_of_two_families_is_model_heterogeneous(capsys, model, tmp_path):
    other = save(tmp_path / "other", "llama")
    status, report = ask(capsys, "pair", model, other)
    assert (status, report["kind"], report["same_tokenizer"]) == (0, "model", False)
    # 23 shared pieces (3 special, 19 characters, the box) of 23 + 90 digit pairs.
    assert report["shared_pieces"] == 23
    assert report["vocabulary_overlap"] == pytest.approx(23 / 113, abs=1e-12)
    # "3*4=12;17+12=\boxed{29}": 17 characters and boxes, 13 with the pairs 12, 17, 12, 29.
    assert report["texts"][2]["lengths"] == [17, 13]
    assert report["texts"][2]["survives"]


def test_pair_of_other_weights_is_state_heterogeneous_and_of_other_sizes_size_heterogeneous(capsys, model, tmp_path):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    twin = save(tmp_path / "twin", "qwen3")
    assert ask(capsys, "pair", model, twin)[1]["kind"] == "state"
    assert ask(capsys, "pair", model, model)[1]["kind"] == "identical"
    large = save(tmp_path / "large", "qwen3")
    config = Qwen3Config.from_pretrained(large, hidden_size=128)
    Qwen3ForCausalLM(config).save_pretrained(large)
    report = ask(capsys, "pair", model, large)[1]
    assert (report["kind"], report["same_tokenizer"], report["length_ratio"]) == ("size", True, 1.0)


def test_pair_names_the_model_that_is_unfit(capsys, model, tmp_path):
    status, report = ask(capsys, "pair", model, tmp_path / "absent")
    assert status == 1
    assert report["error"].startswith(f"{tmp_path / 'absent'}: There is no folder")
