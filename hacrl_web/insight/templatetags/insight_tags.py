"""What the run page shows of its siblings."""

from django import template

from hacrl_web.insight.seeds import same_but_seed
from hacrl_web.runs.models import Run

register = template.Library()


@register.simple_tag
def seeds_of(run: Run) -> list[int]:
    """The seeds of the runs of this run's sweep that differ in nothing else, its own included."""
    return [one.seed for one in same_but_seed(run)]
