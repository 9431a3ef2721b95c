"""Constants as intervals: they hold the true value, settle giants at once, and leave alone what is not plainly one."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mpmath", reason="mpmath is missing: pip install -c constraints.txt -e '.[train]'")

from workers.verifiers.mathematics.answers import decide
from workers.verifiers.mathematics.intervals import enclose, same_constant, same_polynomial

GIANTS = [
    "9^{(9^{9})}",
    "10^{10^{10}}",
    "9^{9^{9^{9}}}",
    "9^9^9^9",
    "99999999^99999999",
    "(9^9)^{9^9}",
    "9^{-9^9}",
    "1/(9^(9^9))",
    "(1+1/3)^(99999999999)",
    "\\binom{1000000000}{500000000}",
    "99999999!",
    "(10^{20})!",
    "\\lfloor 10^{10^{10}} \\rfloor",
    "\\exp(10^{30})",
    "2^{2^{2^{2^{2^{2^{2^{2}}}}}}}",
    "\\log(9^{9^9})",
    "\\sqrt{" * 100 + "2" + "}" * 100,
]


@pytest.mark.parametrize("text", GIANTS)
def test_giant_is_told_from_five_at_once(text):
    begin = time.process_time()
    assert same_constant("5", text) is False
    assert time.process_time() - begin < 0.2


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("10^{10^{10}}", "10^{10^{10}}+1"),
        ("1", "10^{100}+1-10^{100}"),
        ("1", "1^{9^{9^{9^9}}}"),
        ("0", "9^{-9^{9^9}}"),
        ("2", "1/2\\pi"),
        ("2", "x"),
        ("2", "2x"),
        ("2", "e^{\\log 2}"),
        ("2", "i^2"),
        ("2", "1 2"),
        ("2", "(1,2)"),
        ("2", "5\\frac{1}{2}"),
        ("2", "1/0"),
        ("2", "\\log 0"),
        ("2", "\\sqrt{-4}"),
        ("2", "(-8)^{1/3}"),
        ("2", "0^0"),
        ("2", "0^{-1}"),
        ("2", "3!!"),
        ("2", "\\sin 2\\pi"),
        ("2", "\\sin(10^{40})"),
        ("2", "2+"),
        ("2", "(2"),
        ("2", "2)"),
        ("2", ""),
        ("2", "50\\%"),
        ("2", "5\\text{cm}"),
        ("2", "(" * 200 + "2" + ")" * 200),
    ],
)
def test_what_intervals_cannot_settle_is_left_to_the_algebra(gold, answer):
    assert same_constant(gold, answer) is None


@pytest.mark.parametrize(
    ("gold", "answer", "is_same"),
    [
        ("\\frac{\\sqrt{3}}{3}", "\\frac1{\\sqrt3}", True),
        ("\\sqrt{2}+\\sqrt{3}", "\\sqrt{5+2\\sqrt{6}}", True),
        ("2^{100000}", "2\\cdot 2^{99999}", True),
        ("\\frac{\\log 2}{\\log 2-\\log 3}", "\\frac{\\ln 2}{\\ln 2-\\ln 3}", True),
        ("\\log_2 8", "3", True),
        ("\\log 1000", "3", True),
        ("\\sqrt[3]{2}", "2^{1/3}", True),
        ("-4", "-2^2", True),
        ("4", "(-2)^2", True),
        ("2^{27}", "2^{3^3}", True),
        ("\\frac{\\pi}{4}", "\\pi/4", True),
        ("\\frac12", "\\sin(\\pi/6)", True),
        ("1", "\\tan(\\pi/4)", True),
        ("-3", "\\lfloor -2.5 \\rfloor", True),
        ("-2", "\\lceil -2.5 \\rceil", True),
        ("10", "\\binom52", True),
        ("0", "\\sqrt2-\\sqrt2", True),
        ("0", "10^{-300}", False),
        ("\\sqrt{2}", "1.41421356", True),
        ("\\sqrt{2}", "1.41421357", True),  # within a unit of the last digit: 1.414213562
        ("\\sqrt{2}", "1.41421358", False),
        ("\\sqrt{2}", "1.4142", False),
        ("\\frac14", "0.2500001", False),  # a quarter ends: it is not rounded
        ("1.41421356", "\\sqrt{2}", True),
    ],
)
def test_constants_are_compared_by_value(gold, answer, is_same):
    assert same_constant(gold, answer) is is_same


def trees() -> st.SearchStrategy[tuple[str, Fraction]]:
    """Texts of rational constants, and their values."""
    leaf = st.integers(0, 99).map(lambda n: (str(n), Fraction(n)))

    def larger(part: st.SearchStrategy[tuple[str, Fraction]]) -> st.SearchStrategy[tuple[str, Fraction]]:
        two = st.tuples(part, part)
        return st.one_of(
            two.map(lambda p: (f"({p[0][0]}+{p[1][0]})", p[0][1] + p[1][1])),
            two.map(lambda p: (f"({p[0][0]} - {p[1][0]})", p[0][1] - p[1][1])),
            two.map(lambda p: (f"({p[0][0]})({p[1][0]})", p[0][1] * p[1][1])),
            two.map(lambda p: (f"{{{p[0][0]}}}\\cdot {{{p[1][0]}}}", p[0][1] * p[1][1])),
            two.filter(lambda p: p[1][1] != 0).map(lambda p: (f"\\frac{{{p[0][0]}}}{{{p[1][0]}}}", p[0][1] / p[1][1])),
            st.tuples(part, st.integers(1, 5)).map(lambda p: (f"({p[0][0]})^{{{p[1]}}}", p[0][1] ** p[1])),
        )

    return st.recursive(leaf, larger, max_leaves=8)


@given(trees())
def test_interval_of_a_rational_constant_holds_its_value(tree):
    text, value = tree
    interval = enclose(text)
    assert interval is not None
    product = interval * value.denominator  # the value itself is no binary number
    assert product.a <= value.numerator <= product.b


@pytest.mark.parametrize(
    ("gold", "answer", "is_same"),
    [
        ("x^2-2x-15", "(x+3)(x-5)", True),
        ("x^2-2x-15", "(x+3)(x-4)", False),
        ("ab", "ba", True),
        ("x+1", "1+X", False),
        ("-x^2", "(-x)^2", False),
        ("x^{40}+1", "x^{40}+2", False),
        ("x^2+x", "x(x+1)", None),  # f(x) is no product
        ("x^{12}", "x^12", None),  # TeX raises the 1 alone
        ("2^x", "2^x", None),
        ("e+i", "i+e", None),
        ("5", "5", None),
    ],
)
def test_polynomials_are_compared_without_algebra(gold, answer, is_same):
    assert same_polynomial(gold, answer) is is_same


@pytest.mark.parametrize(
    ("answer", "gold", "decision"),
    [
        ("(1, 2)", "(1,2)", True),
        ("(0.5,2)", r"(\frac{1}{2},2)", True),
        ("[1,3)", "[1,2)", False),
        ("(1,2,3)", "(1,2)", None),
        ("[1,2]", "(1,2)", None),
        ("(x,2)", "(1,2)", None),
    ],
)
def test_tuples_and_intervals_of_plain_numbers_are_decided_by_text(answer, gold, decision):
    assert decide(answer, gold) is decision
