"""What nobody should send, by the classes of input; tests of one place and the suite over all of them share it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.support.web.registry_help import model_folder

FOLDERS = {
    "outside": "/etc",
    "root of the disk": "/",
    "dots": "{root}/tiny/../../../etc",
    "dots inside": "{root}/tiny/../tiny",
    "prefix trick": "{root}-evil",
    "url": "file://{root}/tiny",
    "http": "http://127.0.0.1/tiny",
    "backslash": "{root}\\tiny",
    "nul": "{root}/tiny\x00",
    "newline inside": "{root}/ti\nny",
    "home": "~/tiny",
    "home of root": "~root",
    "variable": "$HOME/tiny",
    "relative": "tiny",
    "hub id": "owner/name",
    "dash": "-rf",
    "device": "/dev/zero",
    "proc": "/proc/self/root/etc",
    "link out": "{root}/link-out",
    "link to a device": "{root}/link-device",
    "loop": "{root}/loop",
    "fifo": "{root}/fifo",
    "file": "{root}/file",
    "missing": "{root}/missing",
    "below a file": "{root}/file/x",
    "long name": "{root}/" + "a" * 300,
    "very long": "/" + "a" * 5000,
    "empty": "",
    "blank": "   ",
    "surrogate": "{root}/\udcff",
    "bidi": "{root}/\u202etiny",
    "link inside leads out": "{root}/with-link",
    "fifo inside": "{root}/with-fifo",
}


def make_hostile(root: Path) -> None:
    """What FOLDERS name below the model folder, and beside it."""
    model_folder(root)
    model_folder(root.parent, "models-evil")
    (root / "link-out").symlink_to("/etc")
    (root / "link-device").symlink_to("/dev/zero")
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "fifo")
    (root / "file").write_text("{}")
    (model_folder(root, "with-link") / "tokenizer.json").symlink_to("/etc/passwd")
    os.mkfifo(model_folder(root, "with-fifo") / "model.safetensors")


HUB_IDS = [
    "name", "a/b/c", "../b", "a/..", "-a/b", "a/-b", "a//b", "/a/b", "a/b/", "qwen/Qwеn3", "Ａ/b",
     "https://huggingface.co/a/b",
     "a/b.git", "a/b--c", "a b/c", "a/b;id", "a/$(id)", "a\\b", "a/b\x00", "a/b\n/c", "~/b", ".a/b", "a/.b",
     "a" * 200 + "/b", "",
     "a/b?x=1", "a/b#c", "a/b@main", "datasets/a/b", "a/b%2e"]  # fmt: skip
REVISIONS = [
    "-x", "--upload-pack=id", "a b", "$(id)", "`id`", "a;b", "../main", "a/../b", "refs//x", "a/", "a\x00",
     "a\nb", "ｍain",
     "a" * 300, "a|b", "a/.b"]  # fmt: skip

# Names that no object may have, as JSON may bring them.
NAMES: list[Any] = ["", "   ", "a" * 201, "a\x00b", "a\nb", "a\x1b[2Jb", "a\u202eb", "\u200b\u2060", "\ud800", 7, None]
NAMES += [["x"], {"$ne": ""}, True]

# Settings of a run, one at a time: the dotted field, what it is given.
SETTINGS: dict[str, list[Any]] = {
    "training.learning_rate": ["nan", "inf", "-inf", -1, "1,5", "１", "0x1", "", None, [], {}, True, 1e300],
    "training.steps": [-1, 2.5, 10**30, "１２", "1e3", True, None, "9" * 5000, " "],
    "training.mini_batch_size": [3, 0, -4, 10**12, "x"],
    "rollout.num_generations": [0, -1, 10**9, "8 8", "; drop table", "${jndi:ldap://x}"],
    "rollout.max_completion_length": [0, -5, 10**12, "１"],
    "rollout.temperature": [-1, "nan", "hot"],
    "algorithm.delta": [0.9, -1, "x", "inf"],
    "algorithm.name": ["", "ppo", "__class__", "../hacpo", 1, None],
    "algorithm.peer_thoughts": ["", "drop", 1, None, "__class__", ["keep"]],
    "algorithm.cross_weight": [-1, 11, "nan", "1,5"],
    "rollout.top_p": [0, -1, 1.1, "nan"],
    "training.no_such_setting": [1],
    "compute.trust_remote_code": [True],
    "agents": [[{"model": "/etc/passwd"}]],
    "data": [{"train_path": "/etc/passwd"}],
    "seed": [-1, 2**64, "x", 1.5, True],
}

# Whole bodies where an object is read.
BODIES = [
    b"[]", b'"x"', b"null", b"7", b"{", b"", b"\xff\xfe", b'{"name": NaN}', b'{"name": Infinity}', b"{" * 50_000,
    b"[" * 50_000 + b"]" * 50_000, b'{"seed": ' + b"7" * 5000 + b"}", b"\x00",
    b'{"name": "a", "name": "b"}', b'{"x": {"__proto__": 1, "__proto__": 2}}',
    b'{"__proto__": {"x": 1}}', b'{"name": "\\ud800"}',
]  # fmt: skip

# Queries of lists: the parameter that is to blame, what it is given.
QUERIES = [
    ("limit", "0"), ("limit", "-1"), ("limit", "10" * 9), ("limit", "x"), ("limit", "1e3"), ("limit", "１.5"),
    ("cursor", "x"), ("cursor", "%00"), ("cursor", "a" * 3000), ("cursor", "MV8x"), ("cursor", "bnVsbA=="),
    ("page", "-1"), ("offset", "5"), ("order_by", "password"), ("owner__password__startswith", "a"),
    ("pk__in", "1,2"), ("limit[]", "1"), ("fields", "*"), ("format", "../../etc/passwd"), ("access_token", "x"),
]  # fmt: skip

# Where webhooks may not go: this machine, its cloud's facts, other schemes, names that only look right.
WEBHOOKS = [
    "http://127.0.0.1/", "http://[::1]/", "http://localhost:6379/", "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://0/", "file:///etc/passwd", "gopher://127.0.0.1/",
    "javascript:alert(1)", "//evil.example", "http://user:pw@evil.example/", "https://evil.example/\r\nX: y",
    "https://evil.example", "https://hooks.example.evil.example/", "https://hooks.example@evil.example/", "x" * 3000,
]  # fmt: skip

# Headers that are no token.
AUTHORIZATIONS = [
    "Bearer", "Bearer ", "Bearer x", "bearer hacrl_", "Bearer hacrl_" + "a" * 40, "Bearer hacrl_" + "a" * 5000,
    "Bearer ' OR 1=1 --", "Bearer null", "Bearer undefined", "Bearer \xff\xfe", "Bearer a b", "Bearer ../../x",
]  # fmt: skip
OTHER_HOSTS = ["evil.example", "testserver.evil.example", "testserver@evil.example", "a b", "[::1", "testserver:x", "*"]
VERBS = ["TRACE", "CONNECT", "PROPFIND", "X" * 300, "PATCH"]
# `next` of the login page: where it may not lead.
ELSEWHERE = [
    "//evil.example", "https://evil.example", "http:///evil.example", "\\\\evil.example", "/\\evil.example",
    "javascript:alert(1)", "https:evil.example", "//evil.example\\@testserver", "\t//evil.example", "data:text/html,x",
    " //evil", "///evil", "/\t/evil", "http://testserver@evil.example/", "\x00//evil",
]  # fmt: skip
FRAMES: list[str | bytes] = [
    "", "no json", "[]", "5", "null", "{}", '{"op": "drop"}', '{"op": ["sub"]}', '{"op": null}', "[" * 2000,
    '{"op": "sub"}', '{"op": "sub", "run": null, "after": 0}', '{"op": "sub", "run": "x", "after": 0}',
    '{"op": "sub", "run": {"$ne": 1}, "after": 0}', '{"op": "sub", "run": "../..", "after": 0}',
    '{"op": "sub", "run": "RUN", "after": -1}', '{"op": "sub", "run": "RUN", "after": 1e400}',
    '{"op": "sub", "run": "RUN", "after": "0"}', '{"op": "sub", "run": "RUN", "after": 99}',
    '{"op": "sub", "run": "RUN", "after": 9223372036854775808}', '{"op": "sub", "run": "RUN", "after": NaN}',
    "x" * 5000, "x" * 1_000_000, b"\x00\xff", b"", b"\x00" * 1_000_000,
]  # fmt: skip
# Words of the command line: what is typed after `hacrl`.
COMMANDS = [
    ["runs", "--limit", "-1"], ["runs", "--limit", "1e9"], ["runs", "--state", "no-such"], ["no-such-command"],
    ["stop", "not-an-id"], ["stop", "../../api/v1/runs"], ["stop", "00000000-0000-0000-0000-000000000000"],
    ["launch", "/no/such/file.yaml"], ["launch", "/"], ["launch", "-"], ["logs", "x\x1b[2J"], ["watch", "%2e%2e"],
    ["retry", "?limit=1"], ["pause", "#"],
]  # fmt: skip
