"""What the registry's tests share: users, model folders, question files, and an inspection that answers at once."""

import json
from pathlib import Path

from django.core.files.uploadedfile import SimpleUploadedFile

from hacrl_web.accounts.models import User
from hacrl_web.registry.base import children
from hacrl_web.registry.base.children import INSPECTOR, ChildResult
from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel

FACTS = {
    "architecture": "Qwen3ForCausalLM",
    "num_parameters": 103_424,
    "vocab_size": 21,
    "tokenizer_hash": "ab" * 32,
    "has_chat_template": False,
    "context_length": 128,
    "weights_bytes": 413_696,
}
PASSED = {"checks": [{"name": "config", "ok": True, "detail": "Qwen3ForCausalLM"}], "facts": FACTS}
QUESTIONS = [{"question": f"{n}+1=", "answer": str(n + 1), "subject": "P"} for n in range(10)]


def make_user(name: str = "ada", **fields) -> User:
    return User.objects.create_user(name, **fields)


def make_model(owner: User, name: str, **fields) -> LanguageModel:
    return LanguageModel.objects.create(owner=owner, name=name, location=f"/nowhere/{name}", **fields)


def answer_inspections(monkeypatch, *answers, status: int = 0) -> list[list[str]]:
    """Let the child answer these in turn, the last one for ever; returns what it is asked."""
    asked: list[list[str]] = []

    def run(arguments, *_):
        asked.append(list(arguments))
        answer = answers[min(len(asked), len(answers)) - 1]
        return ChildResult(answer if isinstance(answer, bytes) else json.dumps(answer).encode(), status, False)

    monkeypatch.setattr(INSPECTOR, "run", run)
    return asked


def model_folder(root: Path, name: str = "tiny") -> Path:
    """A folder that looks like a model, for tests in which nobody opens it."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def jsonl(rows=QUESTIONS, name: str = "questions.jsonl") -> SimpleUploadedFile:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    return SimpleUploadedFile(name, "\n".join(lines).encode(), "application/jsonl")


def written_rows() -> int:
    return LanguageModel.objects.count() + AgentGroup.objects.count() + Benchmark.objects.count()


def field_error(response, field: str) -> str:
    """The text that a page shows beside a field."""
    page = response.content.decode()
    marker = f'id="id_{field}-error"'
    assert marker in page, f"no error beside {field}"
    return page[page.index(marker) :].split("</div>")[0]


def replace_child(monkeypatch, folder: Path, module: str, code: str) -> None:
    """`python -m workers.inspection.MODULE` runs `code` instead."""
    package = folder / "replaced" / "workers" / "inspection"
    package.mkdir(parents=True)
    for part in (package.parent, package):
        (part / "__init__.py").touch()
    (package / f"{module}.py").write_text(code)
    monkeypatch.setattr(children, "_environment", lambda: {"PYTHONPATH": str(package.parent.parent)})
