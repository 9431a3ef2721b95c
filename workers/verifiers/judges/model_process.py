"""The process of a judge in a local folder: a language model that answers, or a reward model that gives numbers.

`python -m workers.verifiers.judges.model_process` reads {kind, model, device, max_tokens, max_input_tokens} as its
first line and answers {ready} or {failed}. Each further line is {messages: [text]} or {pairs: [[question, response]]};
the answer is {replies: [{text | values, tokens, new_tokens, failure}]}, `values` being the model's outputs.
Only safetensors are read and no code of the folder is run.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from workers.tokenizer_files import read_tokenizer

Line = dict[str, Any]


class _Model:
    """A tokenizer and a model from a folder, in evaluation mode."""

    def __init__(self, request: Line) -> None:
        """Errors: OSError, ValueError."""
        import torch
        from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
        self.torch, self.max_tokens, self.max_input = torch, request["max_tokens"], request["max_input_tokens"]
        device = torch.device(request["device"])
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError("device is cuda but this machine has no usable GPU")
        factory: Any = AutoModelForCausalLM if request["kind"] == "model" else AutoModelForSequenceClassification
        self.tokenizer = read_tokenizer(request["model"], local_files_only=True)
        model, loaded = factory.from_pretrained(
            request["model"],
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
        )
        if absent := [*loaded["missing_keys"], *loaded["mismatched_keys"]]:
            raise ValueError(f"the folder lacks {len(absent)} tensors of such a model, such as {absent[0]}")
        self.model, self.device = model.to(device).eval(), device
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token

    def answers(self, messages: list[str]) -> list[Line]:
        """Greedy answers of a language model, in one batch."""
        chats = [self._chat([{"role": "user", "content": text}], text, is_prompt=True) for text in messages]
        short = [place for place, ids in enumerate(chats) if len(ids) <= self.max_input]
        replies: list[Line] = [{"failure": f"its message is longer than {self.max_input} tokens"} for _ in messages]
        if not short:
            return replies
        width = max(len(chats[place]) for place in short)
        pad = self.tokenizer.pad_token_id or 0
        ids = self.torch.tensor(
            [[pad] * (width - len(chats[p])) + chats[p] for p in short], device=self.device
        )  # (B, T)
        mask = self.torch.tensor(
            [[0] * (width - len(chats[p])) + [1] * len(chats[p]) for p in short], device=self.device
        )  # (B, T)
        with self.torch.inference_mode():
            output = self.model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=self.max_tokens, pad_token_id=pad
            )  # (B, T + new)
        for place, row in zip(short, output[:, width:].tolist(), strict=True):
            text = self.tokenizer.decode(row, skip_special_tokens=True)
            is_cut_off = len(row) >= self.max_tokens and not set(row) & self._ends()
            replies[place] = {
                "text": text, "tokens": len(chats[place]), "new_tokens": len(row), "is_cut_off": is_cut_off,
            }  # fmt: skip
        return replies

    def _ends(self) -> set[int]:
        """The tokens that end an answer."""
        ends = self.model.generation_config.eos_token_id
        return {*ends} if isinstance(ends, list) else {ends}

    def values(self, pairs: list[list[str]]) -> list[Line]:
        """The outputs of a reward model for each question and response, one by one: padding changes nothing."""
        replies: list[Line] = []
        for question, response in pairs:
            chat = [{"role": "user", "content": question}, {"role": "assistant", "content": response}]
            ids = self._chat(chat, question, response)
            if len(ids) > self.max_input:
                replies.append({"failure": f"question and response are longer than {self.max_input} tokens"})
                continue
            with self.torch.inference_mode():
                row = self.model(input_ids=self.torch.tensor([ids], device=self.device)).logits[0]  # (labels,)
            replies.append({"values": row.float().tolist(), "tokens": len(ids)})
        return replies

    def _chat(self, chat: list[dict[str, str]], *texts: str, is_prompt: bool = False) -> list[int]:
        """The tokens of a conversation by the model's template; without one, of the texts."""
        if self.tokenizer.chat_template:
            ids = self.tokenizer.apply_chat_template(
                chat, add_generation_prompt=is_prompt, tokenize=True, return_dict=False
            )
        else:
            ids = self.tokenizer(*texts)["input_ids"]
        return [int(one) for one in ids]


def main() -> int:
    requests = sys.stdin
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints does not mix with the answers

    def send(line: Line) -> None:
        print(json.dumps(line), file=answers, flush=True)

    try:
        model = _Model(json.loads(requests.readline()))
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        send({"failed": " ".join(f"{type(error).__name__}: {error}".split())[:500]})
        return 1
    send({"ready": True})
    for line in requests:
        request = json.loads(line)
        try:
            replies = model.answers(request["messages"]) if "messages" in request else model.values(request["pairs"])
        except Exception as error:  # such as too little memory for this batch: the next one may fit
            text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            replies = [{"failure": text}] * len(request.get("messages") or request["pairs"])
        send({"replies": replies})
    return 0


if __name__ == "__main__":
    sys.exit(main())
