"""Finds the account of a Hub token, in a short child process of the web.

`python -m workers.hub.account` reads {hub_token} from stdin and prints {name}, {refused: text} if the hub refuses the
token, or {error: text} if the hub does not answer.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from workers.hub.client import TIMEOUT_S, WRONG_TOKEN, hub_errors, status_of


def account_of(token: str) -> dict[str, Any]:
    """What the hub says of a token."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import get_session

    try:
        url = f"{HfApi().endpoint}/api/whoami-v2"
        answer = get_session().get(url, headers={"authorization": f"Bearer {token}"}, timeout=TIMEOUT_S)
        if answer.status_code in (401, 403):
            return {"refused": f"{WRONG_TOKEN}."}
        answer.raise_for_status()
        return {"name": str(answer.json()["name"])}
    except hub_errors() as error:
        reason = f"status {status_of(error)}" if status_of(error) else type(error).__name__
    except (ValueError, KeyError, TypeError):
        reason = "an answer without a name"
    return {"error": f"The hub did not confirm the token (within {TIMEOUT_S} s, 1 try; {reason}): check again later."}


if __name__ == "__main__":
    print(json.dumps(account_of(json.load(sys.stdin)["hub_token"])))
