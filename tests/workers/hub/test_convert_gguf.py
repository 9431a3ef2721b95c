"""The type of a GGUF file's weights, read from its header."""

import struct
from pathlib import Path

import pytest

from workers.hub.convert_gguf import weights_of

UINT8, UINT32, STRING, ARRAY = 0, 4, 8, 9


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(*pairs: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs)


def pair(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


BEFORE = (
    pair(b"general.architecture", STRING, text(b"qwen3")),
    pair(b"general.tags", ARRAY, struct.pack("<IQ", STRING, 2) + text(b"rl") + text(b"math")),
    pair(b"odd", ARRAY, struct.pack("<IQ", UINT8, 3) + b"abc"),
    pair(b"qwen3.block_count", UINT32, struct.pack("<I", 2)),
)


@pytest.mark.parametrize(("number", "name"), [(0, "f32"), (1, "f16"), (7, "q8_0"), (32, "bf16"), (15, "")])
def test_type_is_read_behind_other_values(tmp_path: Path, number: int, name: str) -> None:
    file_type = pair(b"general.file_type", UINT32, struct.pack("<I", number))
    (tmp_path / "a.gguf").write_bytes(header(*BEFORE, file_type))
    assert weights_of(tmp_path / "a.gguf") == name


@pytest.mark.parametrize("content", [b"GGUF", header(*BEFORE), b"GGUF" + b"\xff" * 400, b"GGUF" + b"\0" * 400])
def test_header_without_a_type_names_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.gguf").write_bytes(content)
    assert weights_of(tmp_path / "a.gguf") == ""
