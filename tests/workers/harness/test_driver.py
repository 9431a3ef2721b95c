"""The part of the driver that needs no harness."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from workers.contract.spec.harness import METRIC_CODE_VARIABLE
from workers.harness import driver

NAMES = ["gsm8k", "gsm8k_cot", "arc_easy", "mmlu"]


@pytest.fixture(autouse=True)
def version(monkeypatch) -> None:
    monkeypatch.setattr(driver.metadata, "version", lambda name: "0.4.99")


def test_known_tasks_pass():
    driver.check_names(["mmlu", "gsm8k"], NAMES)


def test_each_unknown_task_is_named_with_similar_ones_and_how_to_list_all():
    with pytest.raises(driver.Refused) as refusal:
        driver.check_names(["gsm8k", "gsm8kk", "zzzzzz"], NAMES)
    assert str(refusal.value) == (
        "lm-evaluation-harness 0.4.99 has no task 'gsm8kk' (did you mean gsm8k or gsm8k_cot?), 'zzzzzz': "
        f"`{sys.executable} -m lm_eval ls tasks` lists all, on the host of the worker"
    )


def test_many_unknown_tasks_are_counted_and_few_are_searched(monkeypatch):
    searched: list[str] = []

    def search(name: str, *_: object) -> list[str]:
        searched.append(name)
        return []

    monkeypatch.setattr(driver.difflib, "get_close_matches", search)
    with pytest.raises(driver.Refused, match="'n0', 'n1', 'n10', 'n11', 'n2' and 7 others: "):
        driver.check_names([f"n{number}" for number in range(12)], NAMES)
    assert searched == ["n0", "n1", "n10"]


def test_metric_that_is_code_of_the_hub_is_refused_even_where_exceptions_are_caught(monkeypatch):
    library: Any = types.ModuleType("evaluate")
    library.loading = types.ModuleType("evaluate.loading")
    monkeypatch.setitem(sys.modules, "evaluate", library)
    driver.refuse_metric_code()
    for load in (library.load, library.loading.load):
        with pytest.raises(driver.Refused, match=r"metric 'rouge' is code .* with HACRL_LM_EVAL_METRIC_CODE=1"):
            load("rouge", module_type="metric")
    assert not issubclass(driver.Refused, Exception)  # which the harness catches, to continue without the metric


def test_driver_and_trainer_name_the_same_variable():
    assert driver.METRIC_CODE_VARIABLE == METRIC_CODE_VARIABLE
