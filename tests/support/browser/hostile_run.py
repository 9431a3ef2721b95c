"""python -m tests.support.browser.hostile_run: a run whose models wrote what no page should run.

Made in a running product's database; prints its id. Its second step has two prompts of two harmless rollouts each.
Its name, notes, tag and log say the like, and so do its project, its benchmark and a question of it.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import django

DEEP = 400
HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(1)><svg onload=alert(1)>",
    '<a href="javascript:alert(1)">go</a> <iframe src="https://elsewhere.example/"></iframe>',
    '<div hx-get="https://elsewhere.example/" hx-trigger="load" hx-on:load="alert(1)">x</div>',
    "![](https://elsewhere.example/a.png) [x](javascript:alert(1)) {{ 7*7 }} {% load formats %}",
    r"$\href{javascript:alert(1)}{x}$ $\includegraphics{https://elsewhere.example/a.png}$ $\url{https://elsewhere.example}$",
    r"$\htmlStyle{background:url(https://elsewhere.example/a.png)}{x}$ $\htmlData{hx-get=/}{x}$ $\htmlClass{card}{x}$",
    r"$$\def\a{\a\a}\a$$ $$\newcommand\b{\b}\b$$ \(\gdef\x{alert(1)}\x\) $\rule{99999em}{99999em}$",
    r"\[" + r"\frac{" * DEEP + "1" + "}{2}" * DEEP + r"\] \(" + "{" * 900 + r"\) \boxed{" + "{" * 100,
    "a\u202eb\u2066c\u200b \x1b[2J\x1b]8;;https://elsewhere.example\x07link\x1b]8;;\x07 \x00\x08",
    r'$\text{<img src=x onerror=alert(1)>}$ $<script>alert(1)</script>$ $\color{"><script>}x$',
    "x" * 5_000_000,
]
MARKUP = "<img src=x onerror=alert(1)><b hx-get=//elsewhere.example>"
GOOD = r"So $x^2 = 4$ and \(x = 2\), thus the answer is \boxed{2}. It cost $5 and $6."


def bodies() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"type": "log", "level": level, "message": MARKUP} for level in ("info", "error")]
    head = "".join(HOSTILE[:-1])
    for number, text in enumerate(HOSTILE):
        place = {"step": 1, "prompt_id": "<b>p</b>", "sample": number}
        found += [_rollout("A", text, **place, prompt=head, answer=head[:150]), _contribution("B", "A", **place)]
    for prompt, sample, agent in itertools.product(("first", "second"), range(2), ("A", "B")):
        place = {"step": 2, "prompt_id": prompt, "sample": sample}
        found.append(_rollout(agent, f"{GOOD} {prompt} {sample} of {agent}", **place, prompt=GOOD, answer="2"))
        found += [_contribution(learner, agent, **place) for learner in ("A", "B")]
    return found


def _rollout(agent: str, text: str, **place: Any) -> dict[str, Any]:
    numbers = {"reward": 1.0, "finish_reason": "stop", "num_tokens": 9, "mean_logp": -0.5}
    return {"type": "rollout", "agent": agent, "completion": text.replace("\x00", "\ufffd"), **numbers, **place}


def _contribution(learner: str, source: str, **place: Any) -> dict[str, Any]:
    own = learner == source
    # .875^2 * 1.25 * 2 = 1.9140625, all of them float32 numbers
    return {
        "type": "contribution", "agent": learner, "source": source, **place, "num_tokens": 9, "advantage": 2.0,
        "sequence_ratio": 1.0 if own else 0.875, "clipped_ratio": 1.0 if own else 0.875, "clip_side": "none",
        "omega": 1.0 if own else 1.25, "weight": 2.0 if own else 1.9140625, "mini_batch": 0 if own else 1,
        "reward": 1.0, "source_num_tokens": 9, "alpha": None if own else 1.0, "capability": 0.4,
        "source_capability": 0.5,
    }  # fmt: skip


def main() -> None:
    django.setup()
    from django.contrib.auth import get_user_model
    from django.db import transaction

    from tests.support.browser.made_runs import store
    from tests.support.web import factories

    factories.number_by_process()
    owner = get_user_model().objects.order_by("pk")[0]
    with transaction.atomic():  # the dispatcher never sees it waiting
        run = factories.make_run(owner, name="Hostile", algorithm={"name": "hacpo", "delta": 0.2, "delta_step": 0.0})
        store(run, bodies())
        questions = Path(tempfile.mkdtemp()) / "questions.jsonl"
        questions.write_text(json.dumps({"question": MARKUP, "answer": MARKUP}))
        name = f"{MARKUP}{run.benchmark_id}"  # names of a project differ, and this may be its second such run
        type(run.benchmark).objects.filter(pk=run.benchmark_id).update(name=name, train_path=questions)
        type(run.group).objects.filter(pk=run.group_id).update(name=name)
        type(run).objects.filter(pk=run.pk).update(name=MARKUP, notes=MARKUP, tags=f",{MARKUP.lower()},", reason=MARKUP)
    print(run.pk)


if __name__ == "__main__":
    main()
