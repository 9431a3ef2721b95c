"""Addresses of models, agent groups and benchmarks."""

from django.urls import path

from hacrl_web.registry.models import Judge, RewardFunction
from hacrl_web.registry.pages import benchmarks, hub_tokens, models_and_groups, prompts, reward_sources

app_name = "registry"
urlpatterns = [
    path("account/hub-token", hub_tokens.own_hub_token, name="own_hub_token"),
    path("projects/<int:project_id>/hub-token", hub_tokens.project_hub_token, name="project_hub_token"),
    path("models/", models_and_groups.model_list, name="model_list"),
    path("models/new", models_and_groups.model_create, name="model_create"),
    path("models/<int:pk>", models_and_groups.model_detail, name="model_detail"),
    path("models/<int:pk>/delete", models_and_groups.model_delete, name="model_delete"),
    path("groups/", models_and_groups.group_list, name="group_list"),
    path("groups/new", models_and_groups.group_create, name="group_create"),
    path("groups/<int:pk>", models_and_groups.group_detail, name="group_detail"),
    path("groups/<int:pk>/delete", models_and_groups.group_delete, name="group_delete"),
    path("groups/<int:pk>/pairs/<int:first>/<int:second>", models_and_groups.group_pair, name="group_pair"),
    path("prompts", prompts.prompt_page, name="prompts"),
    *(
        path(f"{place}/{address}", view, {"kind": kind}, name=f"{kind.verifier}_{name}")
        for place, kind in (("reward-functions", RewardFunction), ("judges", Judge))
        for address, view, name in (
            ("", reward_sources.source_list, "list"),
            ("new", reward_sources.source_create, "create"),
            ("<int:pk>", reward_sources.source_detail, "detail"),
            ("<int:pk>/try", reward_sources.source_try, "try"),
        )
    ),
    path("benchmarks/", benchmarks.benchmark_list, name="benchmark_list"),
    path("benchmarks/new", benchmarks.benchmark_create, name="benchmark_create"),
    path("benchmarks/new/fetch", benchmarks.benchmark_fetch, name="benchmark_fetch"),
    path("benchmarks/new/progress", benchmarks.benchmark_progress, name="benchmark_progress"),
    path("benchmarks/new/<str:staged>", benchmarks.benchmark_map, name="benchmark_map"),
    path("benchmarks/new/<str:staged>/discard", benchmarks.benchmark_discard, name="benchmark_discard"),
    path("benchmarks/<int:pk>", benchmarks.benchmark_detail, name="benchmark_detail"),
    path("benchmarks/<int:pk>/copy", benchmarks.benchmark_copy, name="benchmark_copy"),
    path("benchmarks/<int:pk>/try", benchmarks.benchmark_try, name="benchmark_try"),
    path("benchmarks/<int:pk>/overlap", benchmarks.benchmark_overlap, name="benchmark_overlap"),
]
