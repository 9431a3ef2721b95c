"""python -m tests.support.browser.registered FOLDER: two tiny models, a group of both and a benchmark of sums, in a
running product's database. FOLDER: where the product finds models; the questions lie there too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import django


def main(folder: Path) -> None:
    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.files.uploadedfile import SimpleUploadedFile

    from hacrl_web.registry.agent_groups.service import create_group
    from hacrl_web.registry.base import children
    from hacrl_web.registry.benchmarks.service import create_benchmark
    from hacrl_web.registry.language_models.service import register_model
    from tests.support.forked import FORKING
    from tests.support.workers.tiny import make_pair, write_questions

    children.subprocess = FORKING  # type: ignore[assignment]  # this process has torch already
    children._limit = lambda *_: None
    owner = get_user_model().objects.order_by("pk")[0]
    models = [register_model(owner, location=one["model"], name=one["name"]) for one in make_pair(folder)]
    create_group(owner, name="Two families", agents=[{"model": one.pk, "name": one.name} for one in models])
    file = SimpleUploadedFile("sums.jsonl", write_questions(folder / "sums.jsonl", count=60).read_bytes())
    options = {"id_field": "id", "subject_field": "subject", "held_out_fraction": "0.1"}
    create_benchmark(owner, file=file, name="Sums", **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
