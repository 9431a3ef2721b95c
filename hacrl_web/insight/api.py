"""The REST API's part that the explaining pages draw from."""

from ninja import Router

from hacrl_web.insight.bundle.api import router as bundle_router
from hacrl_web.insight.checkpoints.api import router as checkpoint_router
from hacrl_web.insight.collaboration.api import router as collaboration_router
from hacrl_web.insight.compare.api import router as compare_router
from hacrl_web.insight.evaluations.api import router as evaluation_router
from hacrl_web.insight.export.api import router as export_router
from hacrl_web.insight.harness.api import router as harness_router
from hacrl_web.insight.overview.api import router as overview_router
from hacrl_web.insight.rollouts.api import router as rollout_router
from hacrl_web.insight.run_tabs.api import router as tabs_router
from hacrl_web.insight.what_if.api import router as what_if_router

router = Router(tags=["insight"])
router.add_router("", collaboration_router)
router.add_router("", compare_router)
router.add_router("", evaluation_router)
router.add_router("", harness_router)
router.add_router("", overview_router)
router.add_router("", what_if_router)
router.add_router("", checkpoint_router)
router.add_router("", rollout_router)
router.add_router("", tabs_router)
router.add_router("", export_router)
router.add_router("", bundle_router)
