"""Rewards by a judge: a language model or a reward model, asked once for each different response.

A response without a reward is unscorable and is asked about again in the next step. If a judge fails throughout, or its
budget is spent, a `JudgeError` names it, and the run pauses.
"""

from __future__ import annotations

import os
import re
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from workers.contract.spec.judge import JudgeFile
from workers.contract.trainer_process import read_keys
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.functions.function_verifier import Case
from workers.verifiers.judges.endpoint import Endpoint, JudgeRefuses
from workers.verifiers.judges.local_model import LocalModel
from workers.verifiers.judges.replies import Reply, reward_of_replies
from workers.verifiers.scoring.verdicts import JudgeCall, Verdict

CACHE_SIZE = 100_000
ONE_KEY = "HACRL_JUDGE_KEY"  # without the web server: of every judge, or with _NAME of one
MIN_UNREADABLE = 8  # so many answers, none of which can be read, and the judge fails
_Key = tuple[str, str, str]


@cache
def _sent() -> dict[str, str]:
    return read_keys()


def judge_key(name: str) -> str:
    """Of the judge of that name; empty if it has none. The supervisor sends it by a pipe: no file or log holds it."""
    own = f"{ONE_KEY}_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"
    return _sent().get(name) or os.environ.get(own) or os.environ.get(ONE_KEY, "")


class JudgeError(VerifierError):
    """A judge fails as a whole; the text names it."""


class JudgeUnusable(JudgeError):
    """Waiting does not help: it refuses requests, its settings do not fit, or its budget is spent."""


class JudgeVerifier(AbstractContextManager["JudgeVerifier"]):
    """Scores responses by a model. Used by one thread at a time."""

    def __init__(self, file: JudgeFile, key: str = "") -> None:
        """key: of an address that needs one."""
        self.file, self.settings = file, file.settings
        self.spent = 0.0  # in the currency of its prices
        self._cache: OrderedDict[_Key, Verdict] = OrderedDict()
        self._backend: Endpoint | LocalModel = (
            Endpoint(file.settings, key, self._may_spend)
            if file.settings.kind == "endpoint"
            else LocalModel(file.settings)
        )

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End its process, if it has one."""
        self._backend.close()

    def doubts(self, answers: Sequence[str]) -> list[str]:
        """A judge may find any reference answer useful."""
        return [""] * len(answers)

    def forget_unscorable(self) -> None:
        """Only rewards are cached."""

    def score_cases(self, cases: Sequence[Case]) -> list[Verdict]:
        """One verdict per case, in order. Errors: JudgeError, JudgeUnusable."""
        keys = [(case.question, case.answer, case.response) for case in cases]
        verdicts = {key: self._cache[key] for key in keys if key in self._cache}
        new_keys = list(dict.fromkeys(key for key in keys if key not in verdicts))
        verdicts |= self._ask(new_keys)
        for key in new_keys:
            if verdicts[key].reward is not None:
                self._cache[key] = verdicts[key]
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        result, has_call = [], set()
        for key in keys:
            verdict = verdicts[key]
            if key in new_keys and key not in has_call:  # the first of equal responses pays for all of them
                has_call.add(key)
                result.append(verdict)
            else:
                call = JudgeCall(0.0, 0.0, is_cached=True)
                result.append(Verdict(verdict.reward, verdict.reason, verdict.is_timeout, call=call))
        return result

    def _ask(self, keys: Sequence[_Key]) -> dict[_Key, Verdict]:
        """Error: JudgeError."""
        if not keys:
            return {}
        questions, owners = self._questions(keys)
        try:
            replies = self._backend.ask(questions, self._pay)
        except JudgeRefuses as refusal:
            raise JudgeUnusable(self._text(str(refusal), self._place)) from None
        by_key: dict[_Key, list[Reply]] = {key: [] for key in keys}
        for key, reply in zip(owners, replies, strict=True):
            by_key[key].append(reply)
        verdicts = {key: self._verdict(own, key) for key, own in by_key.items()}
        self._check(verdicts, replies)
        return verdicts

    def score_again(self, cases: Sequence[Case]) -> list[Verdict]:
        """One verdict per case, in order, by asking anew in the reverse order, whatever is known already.

        Errors: JudgeError, JudgeUnusable. What it costs counts in `spent`.
        """
        keys = [(case.question, case.answer, case.response) for case in cases]
        verdicts = self._ask([*dict.fromkeys(reversed(keys))])
        return [verdicts[key] for key in keys]

    def _questions(self, keys: Sequence[_Key]) -> tuple[list[Any], list[_Key]]:
        """What the model is asked, and which response each question is about."""
        if self.settings.kind == "reward_model":
            return [[question, response] for question, _, response in keys], list(keys)
        messages = [(key, text) for key in keys for text in self.settings.messages(*key)]
        return [text for _, text in messages], [key for key, _ in messages]

    def _verdict(self, replies: Sequence[Reply], key: _Key) -> Verdict:
        question, _, response = key
        reward, reason = reward_of_replies(self.settings, replies, response, question)
        cost = sum(self.settings.cost(reply.input_tokens, reply.output_tokens) for reply in replies)
        call = JudgeCall(sum(reply.seconds for reply in replies), cost)
        is_timeout = any(reply.failure.startswith("no answer within") for reply in replies)
        return Verdict(reward, reason, is_timeout, call=call)

    def _check(self, verdicts: dict[_Key, Verdict], replies: Sequence[Reply]) -> None:
        """Error: JudgeError, if nothing could be scored or the budget is spent."""
        if not self._may_spend() and any(reply.failure.startswith("not asked") for reply in replies):
            spent = f"its budget of {self.settings.budget:g} is spent ({self.spent:.4g})"
            raise JudgeUnusable(self._text(spent, "raise the budget"))
        if any(verdict.reward is not None for verdict in verdicts.values()):
            return
        if not any(reply.is_transport for reply in replies) and len(verdicts) < MIN_UNREADABLE:
            return
        reasons = Counter(verdict.reason.removeprefix("unscorable: ") for verdict in verdicts.values())
        reasons.pop("not asked, because the judge failed before", None)
        (reason, _), *_ = reasons.most_common(1) or [("no answer", 0)]
        remedy = self._place if any(reply.is_transport for reply in replies) else "check its rubric and its scale"
        raise JudgeError(self._text(f"none of {len(verdicts)} responses could be scored: {reason}", remedy))

    def _pay(self, reply: Reply) -> None:
        self.spent += self.settings.cost(reply.input_tokens, reply.output_tokens)

    def _may_spend(self) -> bool:
        return not self.settings.budget or self.spent < self.settings.budget

    @property
    def _place(self) -> str:
        """What to look at if it does not answer."""
        return "check its address, model and key" if self.settings.kind == "endpoint" else "check its folder and device"

    def _text(self, problem: str, remedy: str) -> str:
        name = f"the judge {self.file.name!r}, version {self.file.version}, fails"
        return f"{name}: {problem}: {remedy}, then resume the run"
