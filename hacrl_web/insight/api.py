"""The REST API's part that the explaining pages draw from."""

from ninja import Router

from hacrl_web.insight.overview_api import router as overview_router

router = Router(tags=["insight"])
router.add_router("", overview_router)
