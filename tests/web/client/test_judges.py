"""Commands for judges: a file is registered and changed, and a response tried."""

from __future__ import annotations

import json
from unittest.mock import patch

import pytest

from hacrl_web.registry.children import JUDGE, ChildResult
from hacrl_web.registry.models import Judge
from tests.web.client.test_client import hacrl as hacrl  # its fixture
from tests.web.client.test_client import said_json

pytestmark = pytest.mark.django_db
TRIED = {"version": "0", "results": [{"reward": 0.9, "reason": "score 9", "parts": {}, "seconds": 1, "cost": 0}]}


def test_judge_is_added_changed_listed_and_tried(hacrl, user, settings, tmp_path):
    settings.JUDGES_DIR, settings.JUDGE_ALLOW = tmp_path / "judges", ["127.0.0.1:8000"]
    file = tmp_path / "helpful.yaml"
    file.write_text("address: http://127.0.0.1:8000/v1\nmodel: grader\n")
    assert "Judge" in hacrl("judges", "add", str(file))
    first = Judge.objects.get()
    file.write_text("address: http://127.0.0.1:8000/v1\nmodel: other\n")
    assert "version" in hacrl("judges", "add", str(file))
    assert Judge.objects.get().version != first.version
    [row] = said_json(hacrl("judges", "--json"))
    assert (row["name"], row["settings"]["model"], row["has_key"]) == ("helpful", "other", False)
    answer = ChildResult(json.dumps(TRIED).encode(), 0, False)
    with patch.object(JUDGE, "run", lambda *_: answer):
        assert hacrl("judges", "try", "helpful", "--response", "42").strip() == "0.9: score 9"
    for text in ("[1]", "a: [", "\x00"):
        file.write_text(text)
        assert (
            "cannot be read as YAML" in (said := hacrl("judges", "add", str(file), status=1)) or "no settings" in said
        )
