"""Addresses of models, agent groups and benchmarks."""

from django.urls import path

from hacrl_web.registry import benchmark_views, removal_views, views

app_name = "registry"
urlpatterns = [
    path("models/", views.model_list, name="model_list"),
    path("models/new", views.model_create, name="model_create"),
    path("models/<int:pk>", views.model_detail, name="model_detail"),
    path("models/<int:pk>/delete", removal_views.model_delete, name="model_delete"),
    path("groups/", views.group_list, name="group_list"),
    path("groups/new", views.group_create, name="group_create"),
    path("groups/<int:pk>", views.group_detail, name="group_detail"),
    path("groups/<int:pk>/delete", removal_views.group_delete, name="group_delete"),
    path("groups/<int:pk>/pairs/<int:first>/<int:second>", views.group_pair, name="group_pair"),
    path("benchmarks/", benchmark_views.benchmark_list, name="benchmark_list"),
    path("benchmarks/new", benchmark_views.benchmark_create, name="benchmark_create"),
    path("benchmarks/new/fetch", benchmark_views.benchmark_fetch, name="benchmark_fetch"),
    path("benchmarks/new/progress", benchmark_views.benchmark_progress, name="benchmark_progress"),
    path("benchmarks/new/<str:staged>", benchmark_views.benchmark_map, name="benchmark_map"),
    path("benchmarks/new/<str:staged>/discard", benchmark_views.benchmark_discard, name="benchmark_discard"),
    path("benchmarks/<int:pk>", benchmark_views.benchmark_detail, name="benchmark_detail"),
    path("benchmarks/<int:pk>/try", benchmark_views.benchmark_try, name="benchmark_try"),
    path("benchmarks/<int:pk>/overlap", benchmark_views.benchmark_overlap, name="benchmark_overlap"),
]
