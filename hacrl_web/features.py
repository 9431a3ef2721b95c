"""Optional features: the packages of settings.FEATURES, each switched off by its line there. Nothing imports them.

A feature adds modules that the core looks for by name (`urls`, `api`, `watch`, `upkeep`, `run_events`, `run_bundle`),
and templates LABEL/parts/PLACE.html, which `{% parts "PLACE" %}` in a page of the core shows.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from django import template
from django.conf import settings
from django.utils.safestring import SafeString, mark_safe

register = template.Library()


def feature_modules(name: str) -> list[ModuleType]:
    """The modules of this name, in the order of the features."""
    names = [f"{feature}.{name}" for feature in settings.FEATURES]
    return [import_module(one) for one in names if find_spec(one)]


@register.simple_tag(takes_context=True)
def parts(context: template.Context, place: str) -> SafeString:
    """What the features show at a place of a page, with the context of that place; empty without any."""
    html = ""
    for feature in settings.FEATURES:
        with suppress(template.TemplateDoesNotExist):  # loaders remember which templates there are not
            name = f"{feature.rpartition('.')[2]}/parts/{place}.html"
            html += context.template.engine.get_template(name).render(context)
    return mark_safe(html if html.strip() else "")  # noqa: S308 - rendered by templates, which escape
