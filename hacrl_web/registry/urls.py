"""Addresses of models, agent groups and benchmarks."""

from django.urls import path

from hacrl_web.registry import views

app_name = "registry"
urlpatterns = [
    path("models/", views.model_list, name="model_list"),
    path("models/new", views.model_create, name="model_create"),
    path("models/<int:pk>", views.model_detail, name="model_detail"),
    path("groups/", views.group_list, name="group_list"),
    path("groups/new", views.group_create, name="group_create"),
    path("groups/<int:pk>", views.group_detail, name="group_detail"),
    path("groups/<int:pk>/pairs/<int:first>/<int:second>", views.group_pair, name="group_pair"),
    path("benchmarks/", views.benchmark_list, name="benchmark_list"),
    path("benchmarks/new", views.benchmark_create, name="benchmark_create"),
    path("benchmarks/<int:pk>", views.benchmark_detail, name="benchmark_detail"),
]
