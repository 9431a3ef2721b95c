"""The REST API's part that the explaining pages draw from."""

from ninja import Router

from hacrl_web.insight.bundle.api import router as bundle
from hacrl_web.insight.checkpoints.api import router as checkpoints
from hacrl_web.insight.collaboration.api import router as collaboration
from hacrl_web.insight.compare.api import router as compare
from hacrl_web.insight.evaluations.api import router as evaluations
from hacrl_web.insight.export.api import router as export
from hacrl_web.insight.overview.api import router as overview
from hacrl_web.insight.rollouts.api import router as rollouts
from hacrl_web.insight.run_tabs.api import router as tabs
from hacrl_web.insight.what_if.api import router as what_if

router = Router(tags=["insight"])
PARTS = (collaboration, compare, evaluations, overview, what_if, checkpoints, rollouts, tabs, export, bundle)
for part in PARTS:
    router.add_router("", part)
