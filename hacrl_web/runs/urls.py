"""Addresses of home, runs, sweeps and workers."""

from django.urls import path

from hacrl_web.runs.archive import views as archive
from hacrl_web.runs.launch import views as launch
from hacrl_web.runs.live import monitoring
from hacrl_web.runs.run import controls
from hacrl_web.runs.run import views as runs
from hacrl_web.runs.sweeps import views as sweeps
from hacrl_web.runs.telemetry import views as log
from hacrl_web.runs.worker import views as workers
from hacrl_web.runs.workspace import home, search
from hacrl_web.runs.workspace import views as workspace

app_name = "runs"

urlpatterns = [
    path("healthz", monitoring.healthz, name="healthz"),
    path("readyz", monitoring.readyz, name="readyz"),
    path("metrics", monitoring.metrics, name="metrics"),
    path("runs/", workspace.run_list, name="run_list"),
    path("run-views/save", workspace.view_save, name="view_save"),
    path("run-views/<int:pk>/delete", workspace.view_delete, name="view_delete"),
    path("runs/new", launch.run_create, name="run_create"),
    path("runs/new/draft", launch.run_save, name="run_save"),
    path("runs/new/cost", launch.run_cost, name="run_cost"),
    path("runs/new/yaml", launch.run_download, name="run_download"),
    path("runs/new/estimate", launch.run_estimate, name="run_estimate"),
    path("runs/new/presets", launch.run_preset_memory, name="run_preset_memory"),
    path("runs/new/command", launch.run_command, name="run_command"),
    path("runs/archive", archive.change_runs, {"act": "archive"}, name="runs_archive"),
    path("runs/unarchive", archive.change_runs, {"act": "unarchive"}, name="runs_unarchive"),
    path("runs/delete", archive.change_runs, {"act": "delete"}, name="runs_delete"),
    path("runs/<uuid:run_id>", runs.run_detail, name="run_detail"),
    path("runs/<uuid:run_id>/stop", controls.run_stop, name="run_stop"),
    path("runs/<uuid:run_id>/pause", controls.run_pause, name="run_pause"),
    path("runs/<uuid:run_id>/resume", controls.run_resume, name="run_resume"),
    path("runs/<uuid:run_id>/retry", launch.run_retry, name="run_retry"),
    path("runs/<uuid:run_id>/queue-draft", launch.run_queue_draft, name="run_queue_draft"),
    path("runs/<uuid:run_id>/queue", controls.run_queue, name="run_queue"),
    path("runs/<uuid:run_id>/labels", runs.run_labels, name="run_labels"),
    path("runs/<uuid:run_id>/clone", launch.run_clone, name="run_clone"),
    path("runs/<uuid:run_id>/metrics.csv", runs.metrics_csv, name="metrics_csv"),
    path("runs/<uuid:run_id>/log", log.log_search, name="log_search"),
    path("runs/<uuid:run_id>/log.txt", log.log_download, name="log_download"),
    path("runs/<uuid:run_id>/disk", archive.run_disk, name="run_disk"),
    path("sweeps/", sweeps.sweep_list, name="sweep_list"),
    path("sweeps/<int:sweep_id>", sweeps.sweep_detail, name="sweep_detail"),
    path("sweeps/<int:sweep_id>/trials", sweeps.sweep_trials, name="sweep_trials"),
    path("sweeps/<int:sweep_id>/queue-draft", sweeps.sweep_queue_draft, name="sweep_queue_draft"),
    path("sweeps/<int:sweep_id>/stop", sweeps.sweep_change, {"act": "stop"}, name="sweep_stop"),
    path("sweeps/<int:sweep_id>/pause", sweeps.sweep_change, {"act": "pause"}, name="sweep_pause"),
    path("sweeps/<int:sweep_id>/resume", sweeps.sweep_change, {"act": "resume"}, name="sweep_resume"),
    path("sweeps/<int:sweep_id>/retry", sweeps.sweep_retry, name="sweep_retry"),
    path("sweeps/<int:sweep_id>/seeds", sweeps.sweep_seeds, name="sweep_seeds"),
    path("sweeps/<int:sweep_id>/rename", sweeps.sweep_rename, name="sweep_rename"),
    path("sweeps/<int:sweep_id>/delete", archive.sweep_delete, name="sweep_delete"),
    path("benchmarks/<int:pk>/delete", archive.benchmark_delete, name="benchmark_delete"),
    path("workers/drain", workers.host_drain, name="host_drain"),
    path("workers/forget", workers.host_forget, name="host_forget"),
    path("pulse", home.pulse, name="pulse"),
    path("find", search.find_page, name="find"),
    path("workers/", workers.worker_list, name="worker_list"),
]
