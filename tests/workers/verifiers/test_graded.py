"""Partial credit by rules: words, longest common subsequences, fields of JSON objects; and no credit for cheats."""

from __future__ import annotations

import json
import random
import time

import pytest

from workers.verifiers.graded.fields import json_verdict, unclear_object
from workers.verifiers.graded.words import (
    answer_text,
    common_subsequence,
    plain_words,
    rouge_verdict,
    unclear_text,
    words_f1,
    words_verdict,
)


def slow_common_subsequence(left: list[str], right: list[str]) -> int:
    """By the usual table."""
    row = [0] * (len(right) + 1)
    for word in left:
        above = row[:]
        for place, other in enumerate(right, 1):
            row[place] = above[place - 1] + 1 if word == other else max(above[place], row[place - 1])
    return row[-1]


def test_longest_common_subsequence_equals_that_of_the_table():
    draw = random.Random(0)
    for _ in range(300):
        left, right = ([draw.choice("abcde") for _ in range(draw.randrange(0, 90))] for _ in range(2))
        assert common_subsequence(left, right) == slow_common_subsequence(left, right)


def test_f1_of_words_counts_each_as_often_as_both_have_it():
    # 2 common of 3 and 4: P = 2/3, R = 1/2, F1 = 2 * (1/3) / (7/6) = 4/7
    assert words_f1(["a", "b", "c"], ["a", "b", "d", "e"]) == pytest.approx(4 / 7)
    assert words_f1(["a"] * 50, ["a", "b"]) == pytest.approx(2 / 52)
    assert words_f1([], ["a"]) == 0.0


def test_words_are_compared_without_case_punctuation_and_articles():
    assert plain_words("The  U.S.A.'s “well-known” ﬁrst!") == ["usas", "well", "known", "first"]
    assert unclear_text("...") == "it has no words"
    assert unclear_text("Ja") == ""


@pytest.mark.parametrize("verdict", [words_verdict, rouge_verdict])
def test_repetition_thoughts_and_emptiness_gain_nothing(verdict):
    gold = "a red fox jumps"
    assert verdict(gold, gold).reward == 1.0
    assert verdict(f"{gold} " * 3, gold).reward < 0.6
    for response in (
        "",
        "   ",
        "<think>a red fox jumps",
        "<think>red fox jumps</think>",
        "\\boxed{}",
        "\\boxed{red fox",
    ):
        assert verdict(response, gold).reward == 0.0, response
    assert verdict("word " * 6000, gold).reward == 0.0


def test_hostile_texts_are_scored_in_no_time():
    texts = ["<answer>" * 20_000, "the " * 30_000, "{" * 100_000, "[" * 100_000, "```json\n" * 20_000, '{"a":' * 20_000]
    begin = time.process_time()
    for text in texts:
        for verdict in (words_verdict, rouge_verdict):
            verdict(text, "the fox " * 2000)
        json_verdict(text, '{"a": 1}')
    assert time.process_time() - begin < 3


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("x <answer>a</answer> y <answer>b</answer>", "b"),
        ("<answer>a</answer><answer>b", "a"),
        ("\\boxed{a} and \\boxed{b}", "b"),
        ("<think>\\boxed{a}</think>b", "b"),
        ("  a b \n", "a b"),
    ],
)
def test_answer_is_the_last_tag_else_the_last_box_else_the_response(response, text):
    assert answer_text(response) == text


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2, "uniqueItems": True},
        "place": {"type": ["object", "null"], "properties": {"x": {"multipleOf": 0.5}}, "required": ["x"]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("answer", "num_right"),  # of five: four fields, and that there are no others
    [
        ({"name": "Bo", "age": 3, "tags": ["a"], "place": {"x": 1.5}}, 5),
        ({"name": "Bo", "age": 3.0}, 5),
        ({"name": "B", "age": 3}, 4),
        ({"name": "Bo", "age": 150}, 4),
        ({"name": "Bo", "age": True}, 4),
        ({"name": "Bo"}, 4),
        ({"name": "Bo", "age": 3, "other": 1}, 4),
        ({"name": "Bo", "age": 3, "tags": ["a", "a"]}, 4),
        ({"name": "Bo", "age": 3, "tags": ["c"]}, 4),
        ({"name": "Bo", "age": 3, "place": {}}, 4),
        ({"name": "Bo", "age": 3, "place": {"x": 0.3}}, 4),
        ({"name": "Bo", "age": 3, "place": None}, 5),
        ({"name": "Bo", "age": 10**400}, 4),
        ({"name": "Bo", "age": 3, "place": {"x": 10**400}}, 4),
        ({}, 3),
    ],
)
def test_each_field_of_a_schema_counts_alike(answer, num_right):
    assert json_verdict(json.dumps(answer), json.dumps(SCHEMA)).reward == pytest.approx(num_right / 5)


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("", "no JSON object"),
        ("[]", "no JSON object"),
        ("{}", "has 0 fields"),
        ('{"properties": {"a": {"pattern": "x"}}}', "'pattern' of JSON Schema is not checked"),
        ('{"properties": {"a": {"type": "text"}}}', "no JSON Schema: 'text' is not valid"),
        ('{"properties": {"a": {"minimum": "1"}}}', "no JSON Schema: '1' is not of type 'number'"),
        ('{"properties": {"a": {"multipleOf": 0}}}', "no JSON Schema: 0 is less than"),
        ('{"properties": {"a": {"items": []}}}', "no JSON Schema: []"),
        ('{"properties": {"a": {}}, "required": "a"}', "no JSON Schema: 'a' is not of type 'array'"),
        (json.dumps({str(place): 1 for place in range(201)}), "has 201 fields"),
    ],
)
def test_reference_that_no_object_can_be_compared_with_is_told(gold, reason):
    assert reason in unclear_object(gold)
    assert json_verdict('{"a": 1}', gold).reward in (None, 0.0)


@pytest.mark.parametrize(
    "response",
    ['{"a": 1, "a": 2}', '{"a": NaN}', "[1]", '{"a": 1', "null", '{"a": 1} {"a": 2}', '{"b": 1}', '{"a": "1"}'],
)
def test_what_is_no_object_or_another_value_gets_no_credit(response):
    assert json_verdict(response, '{"a": 1}').reward == 0.0


def test_object_is_found_in_a_block_of_code_and_within_words():
    for response in ('```json\n{"a": 1}\n```', 'It is {"a": 1}, I think.', '{"x": {"y": 2}}\n```\n{"a": 1}\n```'):
        assert json_verdict(response, '{"a": 1}').reward == 1.0, response
