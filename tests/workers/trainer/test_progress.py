"""The trainer counts the steps in which nothing had weight for an agent, and says so."""

from types import SimpleNamespace

from workers.agents.messages import RowResult, UpdateReport
from workers.trainer.progress import ProgressReporter


def report(*flows: bool) -> UpdateReport:
    return UpdateReport(results=[[RowResult(gradient_flows=flow)] for flow in flows])


def reporter(steps: int) -> ProgressReporter:
    return ProgressReporter(SimpleNamespace(training=SimpleNamespace(steps=steps)), None, None)


def test_agents_that_learn_nothing_are_named_after_ten_steps_and_at_the_end():
    """A has weight in steps 3 and 4 alone, B never, C always: of 15 steps A's last 11 are without."""
    progress, lines = reporter(15), []

    def log(level, message, incident=None):
        lines.append((level, message.partition(":")[0], message.partition("weight ")[2].partition(":")[0]))

    for step in range(1, 16):
        reports = [report(False, step in (3, 4)), report(False), report(True)]
        progress.count_weights(step, ["A", "B", "C"], reports, log)
        if step == 12:  # a resumed attempt goes on counting
            state = progress.state_dict()
            progress = reporter(15)
            progress.load_state_dict(state)
    assert progress.steps_without_weight == {"A": 11, "B": 15, "C": 0}
    assert lines == [
        ("warning", "B", "in any step so far"),  # step 10
        ("warning", "A", "in the last 10 steps"),  # step 14
        ("warning", "A", "in the last 11 steps"),  # the end
        ("warning", "B", "in any step so far"),
    ]
