"""Addresses of the pages that explain what runs recorded."""

from django.urls import path

from hacrl_web.insight import collaboration_views, rollout_views, what_if_views

app_name = "insight"

urlpatterns = [
    path("runs/<uuid:run_id>/collaboration", collaboration_views.run_collaboration, name="collaboration"),
    path("runs/<uuid:run_id>/rollouts", rollout_views.run_rollouts, name="run_rollouts"),
    path("runs/<uuid:run_id>/what-if", what_if_views.run_what_if, name="run_what_if"),
]
