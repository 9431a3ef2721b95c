"""Addresses of home, runs, sweeps and workers."""

from django.urls import path

from hacrl_web.runs import (
    control_views,
    disk_views,
    find_views,
    form_views,
    label_views,
    log_views,
    removal_views,
    shelf_views,
    sweep_views,
    views,
)

app_name = "runs"

urlpatterns = [
    path("runs/", views.run_list, name="run_list"),
    path("runs/new", form_views.run_create, name="run_create"),
    path("runs/new/import", form_views.run_import, name="run_import"),
    path("runs/new/estimate", form_views.run_estimate, name="run_estimate"),
    path("runs/new/command", form_views.run_command, name="run_command"),
    path("runs/archive", shelf_views.runs_archive, name="runs_archive"),
    path("runs/unarchive", shelf_views.runs_unarchive, name="runs_unarchive"),
    path("runs/delete", shelf_views.runs_delete, name="runs_delete"),
    path("runs/<uuid:run_id>", views.run_detail, name="run_detail"),
    path("runs/<uuid:run_id>/stop", control_views.run_stop, name="run_stop"),
    path("runs/<uuid:run_id>/pause", control_views.run_pause, name="run_pause"),
    path("runs/<uuid:run_id>/resume", control_views.run_resume, name="run_resume"),
    path("runs/<uuid:run_id>/retry", control_views.run_retry, name="run_retry"),
    path("runs/<uuid:run_id>/queue-draft", control_views.run_queue_draft, name="run_queue_draft"),
    path("runs/<uuid:run_id>/queue", control_views.run_queue, name="run_queue"),
    path("runs/<uuid:run_id>/labels", label_views.run_labels, name="run_labels"),
    path("runs/<uuid:run_id>/clone", form_views.run_clone, name="run_clone"),
    path("runs/<uuid:run_id>/metrics.csv", views.metrics_csv, name="metrics_csv"),
    path("runs/<uuid:run_id>/log", log_views.log_search, name="log_search"),
    path("runs/<uuid:run_id>/log.txt", log_views.log_download, name="log_download"),
    path("runs/<uuid:run_id>/disk", disk_views.run_disk, name="run_disk"),
    path("sweeps/", sweep_views.sweep_list, name="sweep_list"),
    path("sweeps/<int:sweep_id>", sweep_views.sweep_detail, name="sweep_detail"),
    path("sweeps/<int:sweep_id>/stop", sweep_views.sweep_stop, name="sweep_stop"),
    path("sweeps/<int:sweep_id>/pause", sweep_views.sweep_pause, name="sweep_pause"),
    path("sweeps/<int:sweep_id>/resume", sweep_views.sweep_resume, name="sweep_resume"),
    path("sweeps/<int:sweep_id>/retry", sweep_views.sweep_retry, name="sweep_retry"),
    path("sweeps/<int:sweep_id>/seeds", sweep_views.sweep_seeds, name="sweep_seeds"),
    path("sweeps/<int:sweep_id>/rename", sweep_views.sweep_rename, name="sweep_rename"),
    path("sweeps/<int:sweep_id>/delete", shelf_views.sweep_delete, name="sweep_delete"),
    path("benchmarks/<int:pk>/delete", removal_views.benchmark_delete, name="benchmark_delete"),
    path("workers/drain", control_views.host_drain, name="host_drain"),
    path("pulse", views.pulse, name="pulse"),
    path("find", find_views.find, name="find"),
    path("workers/", views.worker_list, name="worker_list"),
    path("components", views.components, name="components"),
]
