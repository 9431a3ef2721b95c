"""Addresses of models, agent groups and benchmarks."""

from django.urls import path

from hacrl_web.registry.agent_groups import views as agent_groups
from hacrl_web.registry.benchmarks import views as benchmarks
from hacrl_web.registry.hub_tokens import views as hub_tokens
from hacrl_web.registry.language_models import views as language_models
from hacrl_web.registry.models import Judge, RewardFunction
from hacrl_web.registry.prompts import views as prompts
from hacrl_web.registry.rewards import views as rewards

app_name = "registry"
urlpatterns = [
    path("account/hub-token", hub_tokens.own_hub_token, name="own_hub_token"),
    path("projects/<int:project_id>/hub-token", hub_tokens.project_hub_token, name="project_hub_token"),
    path("models/", language_models.model_list, name="model_list"),
    path("models/new", language_models.model_create, name="model_create"),
    path("models/<int:pk>", language_models.model_detail, name="model_detail"),
    path("models/<int:pk>/delete", language_models.model_delete, name="model_delete"),
    path("groups/", agent_groups.group_list, name="group_list"),
    path("groups/new", agent_groups.group_create, name="group_create"),
    path("groups/<int:pk>", agent_groups.group_detail, name="group_detail"),
    path("groups/<int:pk>/delete", agent_groups.group_delete, name="group_delete"),
    path("groups/<int:pk>/pairs/<int:first>/<int:second>", agent_groups.group_pair, name="group_pair"),
    path("prompts", prompts.prompt_page, name="prompts"),
    *(
        path(f"{place}/{address}", view, {"kind": kind}, name=f"{kind.verifier}_{name}")
        for place, kind in (("reward-functions", RewardFunction), ("judges", Judge))
        for address, view, name in (
            ("", rewards.source_list, "list"),
            ("new", rewards.source_create, "create"),
            ("<int:pk>", rewards.source_detail, "detail"),
            ("<int:pk>/try", rewards.source_try, "try"),
        )
    ),
    path("benchmarks/", benchmarks.benchmark_list, name="benchmark_list"),
    path("benchmarks/new", benchmarks.benchmark_create, name="benchmark_create"),
    path("benchmarks/new/fetch", benchmarks.benchmark_fetch, name="benchmark_fetch"),
    path("benchmarks/new/progress", benchmarks.benchmark_progress, name="benchmark_progress"),
    path("benchmarks/new/<str:staged>", benchmarks.benchmark_map, name="benchmark_map"),
    path("benchmarks/new/<str:staged>/preview", benchmarks.benchmark_preview, name="benchmark_preview"),
    path("benchmarks/new/<str:staged>/discard", benchmarks.benchmark_discard, name="benchmark_discard"),
    path("benchmarks/<int:pk>", benchmarks.benchmark_detail, name="benchmark_detail"),
    path("benchmarks/<int:pk>/copy", benchmarks.benchmark_copy, name="benchmark_copy"),
    path("benchmarks/<int:pk>/try", benchmarks.benchmark_try, name="benchmark_try"),
]
