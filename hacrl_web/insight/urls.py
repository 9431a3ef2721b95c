"""Addresses of the pages that explain what runs recorded."""

from django.urls import path

from hacrl_web.insight.bundle import views as bundle_views
from hacrl_web.insight.checkpoints import views as checkpoint_views
from hacrl_web.insight.collaboration import views as collaboration_views
from hacrl_web.insight.compare import views as compare_views
from hacrl_web.insight.evaluations import views as evaluation_views
from hacrl_web.insight.export import views as export_views
from hacrl_web.insight.rollouts import views as rollout_views
from hacrl_web.insight.run_tabs import views as run_tab_views
from hacrl_web.insight.what_if import views as what_if_views

app_name = "insight"

urlpatterns = [
    path("runs/<uuid:run_id>/collaboration", collaboration_views.run_collaboration, name="collaboration"),
    path("runs/<uuid:run_id>/lesson", collaboration_views.run_lesson, name="run_lesson"),
    path("runs/<uuid:run_id>/rollouts", rollout_views.run_rollouts, name="run_rollouts"),
    path("runs/<uuid:run_id>/what-if", what_if_views.run_what_if, name="run_what_if"),
    path("runs/<uuid:run_id>/config", run_tab_views.run_config, name="run_config"),
    path("runs/<uuid:run_id>/config.yaml", run_tab_views.run_yaml, name="run_yaml"),
    path("runs/<uuid:run_id>/events", run_tab_views.run_events, name="run_events"),
    path("runs/<uuid:run_id>/system", run_tab_views.run_system, name="run_system"),
    path("runs/<uuid:run_id>/evaluations", evaluation_views.run_evaluations, name="run_evaluations"),
    path("runs/<uuid:run_id>/evaluations.csv", evaluation_views.evaluations_csv, name="evaluations_csv"),
    path("runs/<uuid:run_id>/lm-eval.csv", evaluation_views.harness_csv, name="harness_csv"),
    path("evaluate", evaluation_views.evaluate, name="evaluate"),
    path("runs/<uuid:run_id>/checkpoints", checkpoint_views.run_checkpoints, name="run_checkpoints"),
    path(
        "runs/<uuid:run_id>/checkpoints/<int:step>/<int:agent>.zip",
        checkpoint_views.download_agent,
        name="agent_archive",
    ),
    path("runs/<uuid:run_id>/checkpoints/promote", checkpoint_views.promote, name="promote_agent"),
    path("runs/<uuid:run_id>/checkpoints/push", checkpoint_views.push, name="push_agent"),
    path("runs/<uuid:run_id>/uploads", checkpoint_views.upload_list, name="uploads"),
    path("runs/<uuid:run_id>/checkpoints/extend", checkpoint_views.extend, name="extend_run"),
    path("runs/<uuid:run_id>/checkpoints/ask", checkpoint_views.ask, name="ask_agents"),
    path("runs/<uuid:run_id>/export", export_views.run_export, name="run_export"),
    path("runs/<uuid:run_id>/export/<slug:table>.<slug:ending>", export_views.run_export_file, name="run_export_file"),
    path("runs/<uuid:run_id>/bundle.zip", bundle_views.run_bundle, name="run_bundle"),
    path("runs/import", bundle_views.import_run, name="import_run"),
    path("sweeps/<int:sweep_id>/export", export_views.sweep_export, name="sweep_export"),
    path(
        "sweeps/<int:sweep_id>/export/<slug:table>.<slug:ending>",
        export_views.sweep_export_file,
        name="sweep_export_file",
    ),
    path("compare", compare_views.compare, name="compare"),
    path("compare.csv", compare_views.compare_csv, name="compare_csv"),
]
