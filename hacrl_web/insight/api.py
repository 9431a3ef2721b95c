"""The REST API's part that the explaining pages draw from."""

from ninja import Router

router = Router(tags=["insight"])
