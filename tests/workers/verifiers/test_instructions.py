"""IFEval's 25 instructions: texts that follow each and texts that do not, and references that cannot be checked."""

from __future__ import annotations

import json
import time

import pytest

from workers.questions.columns import QuestionMapping, guess
from workers.questions.files import QuestionFileError
from workers.verifiers.instructions import verdict as verdicts
from workers.verifiers.instructions.checks import CHECKS, LANGUAGE_CHECKS, count_sentences
from workers.verifiers.instructions.reference import ARGUMENTS
from workers.verifiers.instructions.verdict import instructions_verdict, unclear_instructions

WORDS = {"num_words": 3}
CASES: dict[str, tuple[dict, list[str], list[str]]] = {  # arguments, texts that follow, texts that do not
    "keywords:existence": ({"keywords": ["cat", "Dog"]}, ["A dog. Cats!"], ["a cat", "a d o g cat"]),
    "keywords:frequency": (
        {"keyword": "cat", "frequency": 2, "relation": "at least"}, ["Cat cat", "catcat"], ["one cat"]
    ),
    "keywords:forbidden_words": ({"forbidden_words": ["cat"]}, ["a category"], ["a Cat.", "cat"]),
    "keywords:letter_frequency": (
        {"letter": "a", "let_frequency": 2, "let_relation": "less than"}, ["a cot", "x"], ["A cat", "aaa"]
    ),
    "language:response_language": (
        {"language": "de"}, ["Das ist ein langer Satz über Katzen."], ["This is a long sentence about cats."]
    ),
    "length_constraints:number_sentences": (
        {"num_sentences": 3, "relation": "less than"}, ["One. Two!", "Dr. No is 3.5 m. So?"], ["A cat. Dog? Yes"]
    ),
    "length_constraints:number_paragraphs": (
        {"num_paragraphs": 2}, ["a\n***\nb", "***\na\n***\nb\n***"], ["a\n\nb", "a\n***\n***\nb", "a"]
    ),
    "length_constraints:number_words": (WORDS | {"relation": "at least"}, ["a b c", "it's 3"], ["a b", "a-b"]),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Cats"},
        ["a\n\ncats, too", 'a\n\n"Cats" b'],
        ["Cats\n\na", "a\n\nb\n\nCats", "a\n\ncat"],
    ),
    "detectable_content:number_placeholders": ({"num_placeholders": 2}, ["[a] [b]", "[a][b][c]"], ["[a", "[a\n]"]),
    "detectable_content:postscript": ({"postscript_marker": "P.S."}, ["a\nP.S. b", "p. s. b"], ["PS b", "a"]),
    "detectable_format:number_bullet_lists": ({"num_bullets": 2}, ["* a\n- b", " - a\n  * b"], ["* a", "**a**\n* b"]),
    "detectable_format:constrained_response": ({}, ["My answer is maybe."], ["yes", "my answer is no"]),
    "detectable_format:number_highlighted_sections": ({"num_highlights": 2}, ["*a* and *b*"], ["*a*", "** ** *a*"]),
    "detectable_format:multiple_sections": (
        {"section_spliter": "Section", "num_sections": 2}, ["Section 1\na\nSection 2\nb"], ["Section 1", "section 1 2"]
    ),
    "detectable_format:json_format": ({}, ['{"a": 1}', "```json\n[1]\n```"], ["a", "{a: 1}", ""]),
    "detectable_format:title": ({}, ["<<A title>>\ntext"], ["<<>>", "<< >>", "<title>"]),
    "combination:two_responses": ({}, ["a\n******\nb"], ["a", "a******a", "a******b******c", "a************b"]),
    "combination:repeat_prompt": ({"prompt_to_repeat": "Say hi."}, ["say hi. Hi!"], ["Hi! Say hi."]),
    "startend:end_checker": ({"end_phrase": "The end."}, ['so "the end."', "The end."], ["The end", "The end. No"]),
    "startend:quotation": ({}, ['"a"', ' "a b" '], ['"', '"a', "a"]),
    "change_case:capital_word_frequency": (
        {"capital_frequency": 2, "capital_relation": "at least"}, ["A BIG cat", "USA UK"], ["A cat", "Cat Dog"]
    ),
    "change_case:english_capital": (
        {}, ["THIS IS A LONG SENTENCE ABOUT CATS."], ["THIS is a long one.", "DAS IST EIN LANGER SATZ ÜBER KATZEN."]
    ),
    "change_case:english_lowercase": (
        {}, ["this is a long sentence about cats."], ["This is long.", "das ist ein langer satz über katzen."]
    ),
    "punctuation:no_comma": ({}, ["a; b"], ["a, b"]),
}  # fmt: skip


def gold_of(*names: str, **arguments: object) -> str:
    return json.dumps([[name, arguments or CASES[name][0]] for name in names])


def test_all_published_instructions_are_known():
    assert len(CHECKS) == 25
    assert set(CHECKS) == set(ARGUMENTS) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_instruction_is_followed_by_some_texts_and_not_by_others(name):
    if name in LANGUAGE_CHECKS:
        pytest.importorskip("py3langid", reason="py3langid is missing: pip install -c constraints.txt -e '.[train]'")
    _, followed, missed = CASES[name]
    assert [instructions_verdict(text, gold_of(name)).reward for text in followed] == [1.0] * len(followed)
    assert [instructions_verdict(text, gold_of(name)).reward for text in missed] == [0.0] * len(missed)
    assert instructions_verdict(" \n", gold_of(name)).reward == 0.0  # an empty response follows nothing


def test_all_instructions_make_it_correct_and_their_share_is_recorded():
    gold = gold_of("punctuation:no_comma", "startend:quotation")
    found = [instructions_verdict(text, gold) for text in ('"a"', "a", ",")]
    assert [(one.reward, one.parts["followed"]) for one in found] == [(1.0, 1.0), (0.0, 0.5), (0.0, 0.0)]
    assert found[1].reason == "not followed: startend:quotation"


def test_thoughts_do_not_count():
    gold = gold_of("punctuation:no_comma")
    assert instructions_verdict("<think>a, b</think>\n\nok", gold).reward == 1.0
    assert instructions_verdict("<think>ok", gold).reward == 0.0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("no end", 1),
        ("One. Two! Three?", 3),
        ("Mr. Smith met J. R. Jones at 3.30 p.m. today.", 1),
        ("1. First\n2. Second.", 1),
        ('He said "Go!" Then he left...', 2),
        ("真的。是！", 2),
    ],
)
def test_sentences_end_at_marks_that_end_no_abbreviation(text, count):
    assert count_sentences(text) == count


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("x", "no list of 1 to 20 instructions"),
        ("[]", "no list of 1 to 20 instructions"),
        ('["punctuation:no_comma"]', "each instruction is [name, arguments]"),
        ('[["no:such", {}]]', "'no:such' is unknown"),
        ('[["length_constraints:number_words", {"num_words": "3"}]]', "needs 'num_words', a whole number"),
        ('[["length_constraints:number_words", {"num_words": 3, "relation": "about"}]]', "is at least or less than"),
        ('[["keywords:existence", {"keywords": []}]]', "needs 'keywords', a list of texts"),
        ('[["startend:end_checker", {"end_phrase": " "}]]', "has an empty 'end_phrase'"),
    ],
)
def test_reference_that_cannot_be_checked_is_unscorable(gold, reason):
    assert reason in unclear_instructions(gold)
    assert instructions_verdict("text", gold).reward is None


def test_questions_about_a_language_are_unscorable_without_the_library(monkeypatch):
    monkeypatch.setattr(verdicts, "is_available", lambda: False)
    assert instructions_verdict("Ja.", gold_of("language:response_language")).reward is None
    assert "pip install py3langid" in unclear_instructions(gold_of("language:response_language"))
    assert unclear_instructions(gold_of("punctuation:no_comma")) == ""


def test_columns_of_ifeval_are_recognized_and_become_the_reference():
    row = {
        "key": 1000,
        "prompt": "Write.",
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [{"num_words": None}, {"num_words": 300.0, "relation": "at least", "keyword": None}],
    }
    mapping = guess(list(row), [row]).mapping
    assert (mapping.question, mapping.extraction) == ("prompt", "instructions")
    question = mapping.question_of(row)
    numbers = {"num_words": 300, "relation": "at least"}
    assert json.loads(question.answer) == [
        ["punctuation:no_comma", {}],
        ["length_constraints:number_words", numbers],
    ]
    as_text = {
        **row,
        "instruction_id_list": json.dumps(row["instruction_id_list"]),
        "kwargs": json.dumps(row["kwargs"]),
    }
    assert mapping.question_of(as_text).answer == question.answer  # CSV
    for change, text in (
        ({"kwargs": [{}]}, "has 2 entries and 'kwargs' 1"),
        ({"kwargs": "x"}, "'kwargs' must be a list"),
        ({"kwargs": [{}, 3]}, "list of objects"),
        ({"instruction_id_list": ["a:b", "c:d"]}, "unknown"),
    ):
        with pytest.raises(QuestionFileError, match=text):
            QuestionMapping(question="prompt", answer="kwargs", extraction="instructions").question_of(
                {**row, **change}
            )


def test_hostile_responses_are_checked_in_no_time():
    gold = json.dumps([[name, CASES[name][0]] for name in CASES if name not in LANGUAGE_CHECKS][:20])
    begin = time.process_time()
    for piece in ("[", "*", "<<", "\n\n", "a. ", "p. ", "Section", '"', "***", "1.\n", "- \n", "P.", "<< "):
        instructions_verdict(piece * (200_000 // len(piece)), gold)
    assert time.process_time() - begin < 4
