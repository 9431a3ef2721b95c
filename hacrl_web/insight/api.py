"""The REST API's part that the explaining pages draw from."""

from ninja import Router

from hacrl_web.insight.collaboration_api import router as collaboration_router

router = Router(tags=["insight"])
router.add_router("", collaboration_router)
