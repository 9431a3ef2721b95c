"""Addresses of the pages that explain what runs recorded."""

app_name = "insight"

urlpatterns: list = []
