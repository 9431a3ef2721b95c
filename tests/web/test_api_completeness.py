"""The API can do all that pages can: compares both lists of addresses, with named exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from hacrl_web.api import api

# Address of a page -> the operations that do the same.
PAGES = {
    "home": ("GET /runs", "GET /hosts"),
    "demo:start": ("POST /demo",),
    "accounts:tokens": ("GET /tokens", "POST /tokens"),
    "accounts:token_revoke": ("POST /tokens/{pk}/revoke",),
    "accounts:project_list": ("GET /projects", "POST /projects"),
    "accounts:project_detail": ("GET /projects/{project_id}",),
    "accounts:project_rename": ("POST /projects/{project_id}/rename",),
    "accounts:member_change": (
        "POST /projects/{project_id}/members/{member_id}",
        "DELETE /projects/{project_id}/members/{member_id}",
    ),
    "accounts:invite": ("POST /projects/{project_id}/invitations",),
    "accounts:invitation_withdraw": ("DELETE /projects/{project_id}/invitations/{invitation_id}",),
    "accounts:people_list": ("GET /people",),
    "accounts:person_change": (
        "POST /people/{user_id}/close",
        "POST /people/{user_id}/open",
        "POST /people/{user_id}/unlink",
    ),
    "oidc:unlink": ("POST /me/unlink",),
    "accounts:audit_list": ("GET /audit",),
    "accounts:audit_csv": ("GET /audit",),
    "reports:report_list": ("GET /reports",),
    "reports:report_create": ("POST /reports",),
    "reports:report": ("GET /reports/{report_id}",),
    "reports:report_panel": ("GET /boards/table", "GET /compare/table", "GET /runs/{run_id}/evaluations"),
    "reports:report_edit": ("PUT /reports/{report_id}",),
    "reports:report_delete": ("DELETE /reports/{report_id}",),
    "reports:report_text": ("GET /reports/{report_id}",),
    "registry:own_hub_token": ("POST /hub-token", "DELETE /hub-token"),
    "registry:project_hub_token": (
        "POST /projects/{project_id}/hub-token",
        "DELETE /projects/{project_id}/hub-token",
    ),
    "registry:model_list": ("GET /models",),
    "registry:model_create": ("POST /models",),
    "registry:model_detail": ("GET /models/{pk}",),
    "registry:model_delete": ("DELETE /models/{pk}",),
    "registry:group_list": ("GET /groups",),
    "registry:group_create": ("POST /groups", "POST /groups/{pk}/copy"),
    "registry:group_detail": ("GET /groups/{pk}",),
    "registry:group_delete": ("DELETE /groups/{pk}",),
    "registry:group_pair": ("GET /groups/{pk}/pairs/{first}/{second}",),
    "registry:prompts": ("GET /groups/{pk}/prompts",),
    "registry:benchmark_list": ("GET /benchmarks", "GET /benchmarks/built-in"),
    "registry:benchmark_create": ("POST /benchmarks", "POST /benchmarks/built-in"),
    "registry:benchmark_fetch": ("POST /benchmarks/fetch",),
    "registry:benchmark_map": ("POST /benchmarks", "POST /benchmarks/fetch"),
    "registry:benchmark_detail": ("GET /benchmarks/{pk}", "GET /benchmarks/{pk}/questions"),
    "registry:benchmark_copy": ("POST /benchmarks/{pk}/copy",),
    "registry:benchmark_try": ("POST /benchmarks/{pk}/try",),
    "registry:function_list": ("GET /reward-functions",),
    "registry:function_create": ("POST /reward-functions",),
    "registry:function_detail": (
        "GET /reward-functions/{pk}",
        "PUT /reward-functions/{pk}",
        "DELETE /reward-functions/{pk}",
        "GET /reward-functions/{pk}/questions",
    ),
    "registry:function_try": ("POST /reward-functions/{pk}/try",),
    "registry:judge_list": ("GET /judges",),
    "registry:judge_create": ("POST /judges",),
    "registry:judge_detail": ("GET /judges/{pk}", "PUT /judges/{pk}", "DELETE /judges/{pk}"),
    "registry:judge_try": ("POST /judges/{pk}/try", "POST /judges/{pk}/questions"),
    "runs:benchmark_delete": ("POST /benchmarks/{pk}/delete",),
    "runs:run_list": (
        "GET /runs",
        "GET /run-views",
        "GET /compare/lines",
        "GET /compare/metrics",
        "GET /compare/table",
    ),
    "runs:view_save": ("POST /run-views",),
    "runs:view_delete": ("DELETE /run-views/{pk}",),
    "runs:run_create": ("POST /runs", "POST /sweeps", "PUT /runs/{run_id}/request"),
    "runs:run_save": ("POST /runs", "PUT /runs/{run_id}/request"),
    "runs:run_cost": ("POST /runs/estimate", "POST /sweeps/estimate"),
    "runs:run_download": ("GET /runs/{run_id}/config.yaml",),
    "runs:run_estimate": ("POST /runs/estimate", "POST /sweeps/estimate"),
    "runs:run_preset_memory": ("GET /presets",),
    "runs:run_command": ("POST /runs",),
    "runs:run_detail": (
        *("GET /runs/{run_id}", "GET /runs/{run_id}/series", "GET /runs/{run_id}/buckets"),
        *("GET /runs/{run_id}/panels", "PUT /runs/{run_id}/panels"),
    ),
    "runs:run_stop": ("POST /runs/{run_id}/stop",),
    "runs:run_pause": ("POST /runs/{run_id}/pause",),
    "runs:run_resume": ("POST /runs/{run_id}/resume",),
    "runs:run_retry": ("POST /runs/{run_id}/retry",),
    "runs:run_queue": ("POST /runs/{run_id}/queue",),
    "runs:run_queue_draft": ("POST /runs/{run_id}/queue-draft",),
    "runs:run_clone": ("GET /runs/{run_id}/request", "POST /runs"),
    "runs:runs_archive": ("POST /runs/{run_id}/archive",),
    "runs:runs_unarchive": ("POST /runs/{run_id}/unarchive",),
    "runs:runs_delete": ("POST /runs/{run_id}/delete", "GET /runs/{run_id}/disk"),
    "runs:run_labels": ("GET /runs/{run_id}/labels", "PUT /runs/{run_id}/labels"),
    "runs:metrics_csv": ("GET /runs/{run_id}/series",),
    "runs:log_search": ("GET /runs/{run_id}/log", "GET /runs/{run_id}/output"),
    "runs:log_download": ("GET /runs/{run_id}/log.txt",),
    "runs:run_disk": ("GET /runs/{run_id}/disk",),
    "runs:sweep_list": ("GET /sweeps",),
    "runs:sweep_detail": ("GET /sweeps/{sweep_id}", "GET /sweeps/{sweep_id}/progress"),
    "runs:sweep_trials": ("GET /sweeps/{sweep_id}",),
    "runs:sweep_queue_draft": ("POST /sweeps/{sweep_id}/queue-draft",),
    "runs:sweep_stop": ("POST /sweeps/{sweep_id}/stop",),
    "runs:sweep_pause": ("POST /sweeps/{sweep_id}/pause",),
    "runs:sweep_resume": ("POST /sweeps/{sweep_id}/resume",),
    "runs:sweep_retry": ("POST /sweeps/{sweep_id}/retry",),
    "runs:sweep_seeds": ("POST /sweeps/{sweep_id}/seeds",),
    "runs:sweep_rename": ("POST /sweeps/{sweep_id}/rename",),
    "runs:sweep_delete": ("POST /sweeps/{sweep_id}/delete",),
    "limits:quota_change": ("GET /projects/{project_id}/quota", "PUT /projects/{project_id}/quota"),
    "limits:retention_change": (
        "GET /projects/{project_id}/retention",
        "GET /projects/{project_id}/retention/preview",
        "PUT /projects/{project_id}/retention",
    ),
    "runs:host_drain": ("POST /hosts/drain",),
    "runs:host_forget": ("POST /hosts/forget",),
    "runs:worker_list": ("GET /hosts", "GET /runs"),
    "runs:pulse": ("GET /runs",),
    "runs:find": ("GET /find",),
    "alerts:alert_list": ("GET /alerts", "GET /runs/{run_id}/alerts"),
    "alerts:rule_list": ("GET /alert-rules",),
    "alerts:notifications": ("GET /notifications", "PUT /notifications", "GET /deliveries"),
    "alerts:send_test": ("POST /notifications/test",),
    "mirrors:project_mirrors": ("GET /projects/{project_id}/mirrors", "POST /projects/{project_id}/mirrors"),
    "mirrors:mirror_change": (
        "PUT /projects/{project_id}/mirrors/{mirror_id}",
        "DELETE /projects/{project_id}/mirrors/{mirror_id}",
    ),
    "mirrors:run_mirrors": ("GET /runs/{run_id}/mirrors",),
    "mirrors:run_mirror_choose": ("PUT /runs/{run_id}/mirrors/{mirror_id}",),
    "insight:collaboration": ("GET /runs/{run_id}/collaboration", "GET /runs/{run_id}/collaboration/step"),
    "insight:run_rollouts": (
        *("GET /runs/{run_id}/rollouts", "GET /runs/{run_id}/rollout-text", "GET /runs/{run_id}/contributions"),
    ),
    "insight:run_what_if": ("GET /runs/{run_id}/what-if",),
    "insight:run_lesson": ("GET /runs/{run_id}/collaboration",),  # its sentences
    "insight:run_config": ("GET /runs/{run_id}/config",),
    "insight:run_yaml": ("GET /runs/{run_id}/config.yaml",),
    "insight:run_events": ("GET /runs/{run_id}/timeline", "GET /runs/{run_id}/events"),
    "insight:run_system": ("GET /runs/{run_id}/system",),
    "insight:run_evaluations": ("GET /runs/{run_id}/evaluations",),
    "insight:evaluations_csv": ("GET /runs/{run_id}/evaluations",),
    "insight:evaluate": ("POST /evaluations",),
    "harness:evaluate": ("POST /harness-evaluations",),
    "insight:harness_csv": ("GET /runs/{run_id}/evaluations",),
    "insight:run_checkpoints": ("GET /runs/{run_id}/checkpoints",),
    "insight:agent_archive": ("GET /runs/{run_id}/checkpoints/{step}/{agent}.zip",),
    "insight:promote_agent": ("POST /runs/{run_id}/checkpoints/promote",),
    "insight:push_agent": ("POST /runs/{run_id}/checkpoints/push",),
    "insight:uploads": ("GET /runs/{run_id}/uploads",),
    "insight:extend_run": ("POST /runs/{run_id}/checkpoints/extend",),
    "insight:ask_agents": ("POST /runs/{run_id}/checkpoints/ask",),
    "insight:run_export": ("GET /export-tables",),
    "insight:run_export_file": ("GET /runs/{run_id}/export/{table}.{ending}",),
    "insight:run_bundle": ("GET /runs/{run_id}/bundle.zip",),
    "insight:import_run": ("POST /bundles",),
    "insight:sweep_export": ("GET /export-tables",),
    "insight:sweep_export_file": ("GET /sweeps/{sweep_id}/export/{table}.{ending}",),
    "insight:compare": ("GET /compare", "GET /compare/table"),
    "insight:compare_csv": ("GET /compare/table",),
    "leaderboard:index": ("GET /boards",),
    "leaderboard:board": ("GET /boards/table",),
    "leaderboard:board_csv": ("GET /boards/file/{kind}",),
    "leaderboard:board_tex": ("GET /boards/file/{kind}",),
    "leaderboard:board_harness_csv": ("GET /boards/file/{kind}",),
    "leaderboard:board_json": ("GET /boards/table",),
    "leaderboard:report": ("GET /boards/file/{kind}",),
    "leaderboard:row": ("GET /boards/table",),
}
# Pages that are for a browser alone, and why.
EXCEPTIONS = {
    "accounts:login": "a token is the API's login",
    "oidc:start": "a token is the API's login",
    "oidc:callback": "a token is the API's login",
    "accounts:login_link": "a token is the API's login",
    "accounts:logout": "a token is revoked",
    "accounts:account": "whoever holds a token must not change the password",
    "oidc:link": "whoever holds a token must not change how its owner logs in",
    "accounts:project_switch": "what a browser's lists show; the API lists all of one's projects",
    "accounts:invitation": "makes an account, or is used by somebody who has a session",
    "accounts:session_end": "sessions are a browser's",
    "accounts:session_list": "it leads to the account",
    "runs:healthz": "for monitoring, with a token where it needs one",
    "runs:readyz": "for monitoring, with a token where it needs one",
    "runs:metrics": "for monitoring, with a token where it needs one",
    "docs:index": "text for people",
    "docs:page": "text for people",
    "docs:search": "text for people",
    "registry:benchmark_progress": "the API's answer is the end of the import",
    "registry:benchmark_preview": "the API's answer has what was guessed and left out, and a refusal stores nothing",
    "registry:benchmark_discard": "the API keeps no files between requests",
    "api_docs": "describes the API",
    "sharing:share": "a person decides to show a page to people without an account",
    "sharing:file": "a page for people; the API has its numbers",
    "sharing:revoke": "links are made and revoked by people at their pages",
    "sharing:project": "links are made and revoked by people at their pages",
    "sharing:shared": "for whoever has no account, and so no token",
}


def pages(patterns: list[Any] | None = None, space: str = "") -> Iterator[str]:
    """The names of all addresses but the API's."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        if isinstance(pattern, URLResolver):
            inner = pattern.namespace or ""
            if not inner.startswith("api-"):
                yield from pages(pattern.url_patterns, f"{inner}:" if inner else space)
        else:
            assert isinstance(pattern, URLPattern)
            yield space + str(pattern.name)


@pytest.fixture(scope="module")
def operations() -> set[str]:
    found = api.get_openapi_schema()["paths"]
    return {f"{verb.upper()} {path.removeprefix('/api/v1')}" for path, verbs in found.items() for verb in verbs}


def test_each_page_has_its_operations_or_a_reason(operations):
    there = set(pages())
    assert there == set(PAGES) | set(EXCEPTIONS)
    assert not set(PAGES) & set(EXCEPTIONS)
    missing = {name: sorted(set(wanted) - operations) for name, wanted in PAGES.items() if set(wanted) - operations}
    assert missing == {}
    print(f"{len(there)} pages, {len(EXCEPTIONS)} of them for browsers alone; {len(operations)} operations")


def test_openapi_describes_each_operation(operations):
    for path, verbs in api.get_openapi_schema()["paths"].items():
        for verb, said in verbs.items():
            assert said["summary"], (verb, path)
            assert re.fullmatch(r"[\w]+", said["operationId"])
