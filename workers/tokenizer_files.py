"""Reads a tokenizer as its tokenizer.json says: the one way in which agents, judges and inspections load one.

transformers builds the classes of some model types anew from the vocabulary alone. Of a model whose files name another
class than they hold, such as DeepSeek's, that splits texts in another way, or loses the spaces between words.
"""

from __future__ import annotations

from typing import Any

# Spaces, line ends, letters with marks, numbers and contractions, which kinds of tokenizers split in different ways.
_PROBE = (
    "What is 2+2?\n\n  Gr\u00f6\u00dfe don't I'LL \u6570\u5b66 1234567 x\u00b2\t\"a\" \r\n<b>e\u0301</b> \U0001f34e "
)


def read_tokenizer(location: str, revision: str | None = None, *, local_files_only: bool = False) -> Any:
    """A tokenizer from a folder or the hub. Errors: all kinds of exceptions, where its files are broken."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.utils.hub import cached_file

    settings: dict[str, Any] = {"revision": revision, "local_files_only": local_files_only}
    tokenizer: Any = AutoTokenizer.from_pretrained(location, trust_remote_code=False, **settings)
    file = cached_file(location, "tokenizer.json", _raise_exceptions_for_missing_entries=False, **settings)
    if file is None or type(tokenizer) is PreTrainedTokenizerFast:  # which reads the file as it is
        return tokenizer
    written = Tokenizer.from_file(file)
    written.no_truncation()
    written.no_padding()
    try:
        ids = written.encode(_PROBE, add_special_tokens=False).ids
        if _ids(tokenizer) == ids:
            return tokenizer
        as_written: Any = PreTrainedTokenizerFast.from_pretrained(location, **settings)
        return as_written if _ids(as_written) == ids else tokenizer
    except BaseException as error:  # no Exception; it is said with the text that it comes at
        if type(error).__name__ != "PanicException":
            raise
        return tokenizer


def _ids(tokenizer: Any) -> list[int]:
    return list(tokenizer(_PROBE, add_special_tokens=False).input_ids)
