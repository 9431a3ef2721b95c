"""The house rules, read from the source: who may import whom, what lies at the top, and no import cycles."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("hacrl_web", "workers")
# The rooms of workers/, each of which imports only itself and what stands above it. The web imports the contract alone.
WORKERS_ROOMS = (
    "contract",
    "algorithms",
    "verifiers",
    "hub",
    "questions",
    "model",
    "rollouts",
    "agents",
    "trainer",
    "inspection",
    "demo",
)
ML = {
    "torch", "transformers", "tokenizers", "safetensors", "accelerate", "peft", "vllm", "ray", "trl", "numpy", "scipy",
    "sympy", "math_verify", "latex2sympy2_extended", "huggingface_hub", "datasets", "pandas", "pyarrow", "sklearn",
}  # fmt: skip
WEB = {"django", "celery", "kombu", "channels", "channels_redis", "redis", "valkey", "ninja", "uvicorn", "hacrl_web"}
# An app may import itself, what stands left of it, and the modules above all apps that are listed below.
APPS = ("docs", "accounts", "registry", "runs", "alerts", "insight", "leaderboard")
SHARED = (  # import no app
    *("settings", "secret_files", "commands", "errors", "middleware", "celery", "preflight", "processes", "repeating"),
    *("checks", "schema", "backups", "streaming", "api_bodies", "api_lists", "api_edits", "visible"),
    "settings_file",
)
# Put the apps together; only the demo's command and Django import them.
ASSEMBLY = ("urls", "api", "api_auth", "asgi", "body_limit", "demo", "up", "container")
# Views and pages may use all of runs; each layer only itself and what stands below it.
RUNS_LAYERS = (
    (
        *("views", "form_views", "control_views", "log_views", "disk_views", "removal_views", "sweep_views"),
        *("find_views", "label_views", "shelf_views", "api", "sweep_api", "events_api", "consumers", "urls"),
    ),
    (
        *("tasks", "dispatcher", "hub", "host_report", "presets", "series", "sweeps", "sweep_plan", "cost", "repeat"),
        *("spec_import", "drafts"),
    ),
    ("supervisor", "settle", "launch", "queue", "forms", "reports", "disk", "retention", "feed", "logs"),
    ("telemetry", "watchdog", "hosts", "memory_fit", "doorbell", "demo_state", "origin", "removal", "resumed"),
    ("labels", "shelf"),
    ("limits", "rows", "chunks", "devices", "redis_client", "stored_spec", "sweep_state", "variants"),
    ("models",),
    ("run_states", "host_models", "event_models"),
)
TOP_LEVEL = {
    ".ci", ".gitignore", ".pre-commit-config.yaml", "LICENSE", "README.md", "constraints.txt", "docker", "docs",
    "frontend", "hacrl", "hacrl_web", "manage.py", "pyproject.toml", "tests", "workers",
}  # fmt: skip


def sources(*folders: str) -> list[Path]:
    return [
        path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if "node_modules" not in path.parts
    ]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def module_names() -> frozenset[str]:
    return frozenset(module_name(path) for path in sources(*PACKAGES))


@cache
def imports(path: Path) -> frozenset[str]:
    """Full names of what a file imports, also within functions and for types alone."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            base = node.module or ""
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return frozenset(names)


def ours(path: Path) -> set[str]:
    """The project's modules that a file imports, resolved: `from a.b import c` is a.b.c if that is a file, else a.b."""
    found = set()
    for name in imports(path):
        while name and name not in module_names():
            name = name.rpartition(".")[0]
        if name:
            found.add(name)
    return found


def roots(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)}


def ids(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def each(*folders: str) -> pytest.MarkDecorator:
    paths = sources(*folders)
    return pytest.mark.parametrize("path", paths, ids=ids(paths))


@each("workers/algorithms")
def test_algorithms_import_only_torch_and_the_standard_library(path: Path) -> None:
    allowed = set(sys.stdlib_module_names) | {"torch"}
    others = {n for n in imports(path) if n.partition(".")[0] not in allowed and not n.startswith("workers.algorithms")}
    assert others == set()


@each("workers/contract")
def test_contract_imports_only_pydantic_yaml_and_itself(path: Path) -> None:
    allowed = set(sys.stdlib_module_names) | {"pydantic", "pydantic_core", "annotated_types", "yaml"}
    assert roots(path) - allowed <= {"workers"}
    assert all(name.startswith("workers.contract.") for name in ours(path))


def room(name: str) -> str:
    """The folder of workers/ that a module lies in; "" where it lies beside them."""
    parts = name.split(".")
    return parts[1] if len(parts) > 2 else ""


@each("workers")
def test_rooms_of_workers_import_in_one_direction(path: Path) -> None:
    own = room(module_name(path))
    if not own:
        return
    assert own in WORKERS_ROOMS, f"{own} has no place in WORKERS_ROOMS"
    allowed = {"", *WORKERS_ROOMS[: WORKERS_ROOMS.index(own) + 1]}
    assert {name for name in ours(path) if room(name) not in allowed} == set()


def test_contract_loads_no_torch_in_a_fresh_process() -> None:
    heavy = sorted(ML | {"django", "celery", "redis", "channels"})
    names = ", ".join(module_name(path) for path in sources("workers/contract"))
    code = f"import sys, {names}\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@each("workers")
def test_trainer_side_knows_nothing_of_the_web(path: Path) -> None:
    assert roots(path) & WEB == set()


@each("hacrl_web")
def test_web_imports_no_ml_library_and_only_the_contract(path: Path) -> None:
    assert roots(path) & ML == set()
    assert all(name.startswith("workers.contract.") for name in ours(path) if name.startswith("workers"))


def test_web_process_loads_no_ml_library() -> None:
    code = (
        "import os, sys, tempfile\n"
        "os.environ['HACRL_DATA'] = tempfile.mkdtemp()\n"
        "import hacrl_web.asgi\n"
        f"print([name for name in {sorted(ML)} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr[-2000:]


@pytest.mark.parametrize("app", APPS)
def test_apps_import_only_what_stands_below_them(app: str) -> None:
    below = {f"hacrl_web.{name}" for name in (*APPS[: APPS.index(app) + 1], *SHARED)}
    for path in sources(f"hacrl_web/{app}"):
        extra = {"hacrl_web.demo"} if module_name(path).endswith("management.commands.demo") else set()
        for name in ours(path):
            if name.startswith("hacrl_web."):
                assert ".".join(name.split(".")[:2]) in below | extra, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("name", SHARED)
def test_shared_modules_import_no_app(name: str) -> None:
    named = ours(ROOT / "hacrl_web" / f"{name}.py")
    assert {other for other in named if other.split(".")[1:2] and other.split(".")[1] in (*APPS, *ASSEMBLY)} == set()


def test_client_knows_nothing_of_the_server() -> None:
    """It is installed alone (extra `client`), on machines that have neither Django nor torch."""
    allowed = {*sys.stdlib_module_names, "httpx2", "rich", "typer", "yaml", "hacrl_web"}
    for path in sources("hacrl_web/client"):
        assert roots(path) <= allowed, path
        assert {n for n in ours(path) if not n.startswith("hacrl_web.client")} <= {
            "hacrl_web.visible",
            "hacrl_web.settings_file",
        }, path


def test_layers_of_runs_import_downwards() -> None:
    for level, layer in enumerate(RUNS_LAYERS):
        above = {f"hacrl_web.runs.{name}" for higher in RUNS_LAYERS[:level] for name in higher}
        for name in layer:
            path = ROOT / "hacrl_web" / "runs" / f"{name}.py"
            assert ours(path) & above == set(), f"{name} imports upwards"


def test_every_module_of_the_web_has_its_place() -> None:
    top = {path.stem for path in (ROOT / "hacrl_web").glob("*.py")} - {"__init__"}
    assert top == {*SHARED, *ASSEMBLY}
    runs = [path.stem for path in (ROOT / "hacrl_web" / "runs").glob("*.py") if path.stem != "__init__"]
    assert sorted(runs) == sorted(name for layer in RUNS_LAYERS for name in layer)
    folders = {path.parent.name for path in (ROOT / "hacrl_web").glob("*/__init__.py")}
    assert folders == {*APPS, "client"}


def test_no_file_needs_itself_through_others() -> None:
    graph = {module_name(path): ours(path) - {module_name(path)} for path in sources(*PACKAGES)}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


@each("hacrl_web", "workers", "tests")
def test_imports_are_full_and_inits_are_empty(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            # The tests' settings are the product's, changed: Django's own idiom.
            assert [a.name for a in node.names] != ["*"] or path == ROOT / "tests" / "settings.py", (
                f"{path}:{node.lineno}"
            )
    if path.name == "__init__.py":
        assert path.read_text() == ""


def test_top_level_is_as_fixed() -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout: nothing says which files belong to it")
    tracked = {name.partition("/")[0] for name in listing.stdout.split("\0") if name}
    assert tracked - TOP_LEVEL == set()


def test_launcher_needs_only_the_standard_library() -> None:
    tree = ast.parse((ROOT / "hacrl").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)
