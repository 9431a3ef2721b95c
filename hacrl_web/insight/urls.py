"""Addresses of the pages that explain what runs recorded."""

from django.urls import path

from hacrl_web.insight import collaboration_views

app_name = "insight"

urlpatterns = [
    path("runs/<uuid:run_id>/collaboration", collaboration_views.run_collaboration, name="collaboration"),
]
