"""What the tests of pages share: a response as text, a field of the form, and a run that has ended with numbers."""

from __future__ import annotations

import re

from hacrl_web.runs.models import Run, TelemetryEvent

EVENT = {"attempt": 1, "step": 1, "agent": "A", "source": "", "time": 1.0}


def text_of(response) -> str:
    return response.content.decode()


def field_of(response, path: str) -> str:
    """The HTML of one field of the new-run form: from its data-field to the next one's."""
    html = text_of(response)
    start = html.index(f'data-field="{path}"')
    end = html.find("data-field=", start + 1)
    return html[start : end if end > 0 else None]


def add_event(run: Run, seq: int, kind: str, payload: dict, **changes) -> None:
    TelemetryEvent.objects.create(run=run, seq=seq, type=kind, payload=payload, **{**EVENT, **changes})


def complete(run: Run, accuracies: dict[str, tuple[float, float]]) -> None:
    """Give a run its evaluations before and after, and end it."""
    seq = 0
    for step, place in ((0, 0), (5, 1)):
        for agent, values in accuracies.items():
            seq += 1
            payload = {"metric": "accuracy", "value": values[place], "correct": 1, "asked": 2, "slices": {}}
            add_event(run, seq, "evaluation", payload, step=step, agent=agent)
    progress = {"step": 5, "total_steps": 5, "elapsed_s": 9.0, "eta_s": 0.0, "rollouts_generated": 320}
    Run.objects.filter(pk=run.pk).update(state="completed", step=5, last_seq=seq, progress=progress)


# Of a run's header, hidden for those who may not change it: the page's script shows and hides what is inside.
SHOWN_BY_SCRIPT = re.compile(
    r'<div class="run-primary" hidden>.*?<details class="menu run-facts">|<div hidden>.*?</header>', re.DOTALL
)
