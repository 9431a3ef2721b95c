"""Whether models can be downloaded from the hub, or are in the cache; a short child process of the web.

`python -m workers.hub.access` reads {hub_token, models: [[hub id, revision]]} from stdin and prints {refusals: [text]},
one for each model that the hub refuses. Where the hub does not answer nothing is refused: {silent: true}. As in the
download before a run, an empty token is none, whatever the environment has.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from workers.hub.client import cached_weight_facts, hub_errors, refusal, status_of

TIMEOUT_S = 3
FILE = "config.json"  # which every model of transformers has


def access_to(models: list[tuple[str, str | None]], token: str) -> dict[str, Any]:
    """What the hub says of the download of each model."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    refusals = []
    for hub_id, revision in models:
        if cached_weight_facts(hub_id, revision):
            continue
        try:
            url = hf_hub_url(hub_id, FILE, revision=revision)
            get_hf_file_metadata(url, token=token or False, timeout=TIMEOUT_S)
        except hub_errors() as error:
            if cause := refusal(error, "model", hub_id, revision, has_token=bool(token)):
                refusals.append(f"{cause}.")
            elif status_of(error) is None:
                return {"refusals": refusals, "silent": True}
    return {"refusals": refusals, "silent": False}


if __name__ == "__main__":
    request = json.load(sys.stdin)
    print(json.dumps(access_to(request["models"], request.get("hub_token", ""))))
