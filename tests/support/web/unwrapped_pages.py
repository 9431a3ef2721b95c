"""Pages as a browser reads them: a line break within a sentence or a tag is a space, wherever a template has it."""

from __future__ import annotations

import re

from hacrl_web.web.middleware import Middleware

# Where line breaks are shown, or are code.
_KEPT = re.compile(r"(<(pre|textarea|script|style)\b.*?</\2\s*>)", re.DOTALL)
_END_OF_TAG = re.compile(r"\s*\n\s*(/?>)")
_BREAK = re.compile(r"[^\S\n]*\n\s*")


def unwrapped(page: str) -> str:
    parts = _KEPT.split(page)  # text, block, name of its tag, text, ...
    parts[::3] = [_BREAK.sub(" ", _END_OF_TAG.sub(r"\1", part)) for part in parts[::3]]
    del parts[2::3]
    return "".join(parts)


class UnwrappedPages(Middleware):
    def __call__(self, request):
        response = self.get_response(request)
        is_page = response.get("Content-Type", "").startswith("text/html") and not response.streaming
        if is_page and request.META.get("SERVER_NAME") == "testserver":
            response.content = unwrapped(response.content.decode())
        return response
