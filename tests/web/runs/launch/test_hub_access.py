"""A run whose hub model its user may not download is refused before the queue; an open one is not asked for."""

import pytest

from hacrl_web.registry.base.children import HUB_ACCESS
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.launch.launch import launch, launch_sweep
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import launch_request, make_group, make_member

pytestmark = pytest.mark.django_db


@pytest.fixture
def asked(monkeypatch):
    """The hub refuses every model; the models that it was asked for."""
    models: list = []

    def ask(at, request, hub_token):
        models.append(request["models"])
        return {"refusals": ["swan is gated."]}

    monkeypatch.setattr(HUB_ACCESS, "ask", ask)
    return models


@pytest.fixture
def request_(user):
    request = launch_request(user, group=make_group(user).pk)
    models = LanguageModel.objects.filter(agents__group=request["group"])
    models.update(kind="hub", location="ada/swan", revision="a" * 40, facts={"is_restricted": True})
    return request


def test_no_launch_queues_what_the_hub_refuses_and_a_viewer_does_not_use_the_token(user, request_, asked):
    sweep = {key: value for key, value in request_.items() if key not in ("seed", "algorithm")}
    for launched, request in ((launch, request_), (launch_sweep, sweep | {"algorithms": ["gspo"], "seeds": [0, 1]})):
        with pytest.raises(LaunchError) as refused:
            launched(user, request)
        assert [(one.code, one.field, one.message) for one in refused.value.errors] == [
            ("no_hub_access", "group", "swan is gated.")
        ]
    assert asked == [[("ada/swan", "a" * 40)]] * 2
    viewer = make_member(LanguageModel.objects.first().project, "viewer")
    with pytest.raises(FieldErrors) as refused:
        launch(viewer, request_)
    assert (refused.value.status, len(asked)) == (403, 2)
    assert launch(user, request_ | {"draft": True}).state == "draft"


def test_open_models_trained_ones_and_a_silent_hub_hold_nothing_up(user, request_, asked, monkeypatch):
    models = LanguageModel.objects.filter(agents__group=request_["group"])
    models.update(facts={"is_restricted": False})
    run = launch(user, request_)
    models.update(facts={"is_restricted": True})
    Run.objects.filter(pk=run.pk).update(step=1)
    launch(user, request_)
    assert asked == []
    Run.objects.update(step=0)

    def silent(**_):
        raise FieldErrors.single("too_slow", "The hub does not answer.", "group")

    monkeypatch.setattr(HUB_ACCESS, "ask", silent)
    assert launch(user, request_).state == "queued"
