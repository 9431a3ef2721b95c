"""The environment variables of a trainer: what it needs, and no secret of the worker."""

from __future__ import annotations

import os
import re

from django.conf import settings

from workers.contract.spec.harness import METRIC_CODE_VARIABLE, PYTHON_VARIABLE, TASKS_VARIABLE

# Everything else (database, Redis, secrets, hub tokens) stays in the worker.
_ALLOWED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TZ|TMPDIR|VIRTUAL_ENV|PYTHON\w*|LD_LIBRARY_PATH|DYLD_\w+|XDG_\w+"
    r"|(CUDA|NVIDIA|NCCL|GLOO|OMP|MKL|OPENBLAS|TORCH|PYTORCH|TRITON|TRANSFORMERS|TOKENIZERS|VLLM|RAY|ROCR|HIP)_?\w*"
    r"|SLURM_\w+"
    r"|HF_HOME|HF_HUB_(OFFLINE|CACHE)|HF_ENDPOINT|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|(https?|no|HTTPS?|NO)_(proxy|PROXY)"
    r"|HACRL_FAKE_\w+|HACRL_ALGORITHMS|HACRL_BUBBLEWRAP|HACRL_JUDGE_ALLOW|HACRL_REWARD_NETWORK"
)
_SECRET = re.compile(r"TOKEN(?!IZERS)|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.IGNORECASE)
_PROXY_LOGIN = re.compile(r"^([a-z][a-z0-9+.-]*://)?.*@", re.IGNORECASE | re.DOTALL)  # user:password@


def trainer_environment() -> dict[str, str]:
    """The variables of this process that are allowed, proxies without their login."""
    variables = {k: v for k, v in os.environ.items() if _ALLOWED.fullmatch(k) and not _SECRET.search(k)}
    for name in variables:
        if name.lower() in ("http_proxy", "https_proxy"):
            variables[name] = _PROXY_LOGIN.sub(r"\1", variables[name])
    # The trainer also ignores a hub token in a file of HF_HOME.
    return variables | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}


def harness_environment() -> dict[str, str]:
    """The variables that tell a trainer where lm-evaluation-harness is and what its tasks may do."""
    return {
        PYTHON_VARIABLE: str(settings.LM_EVAL_PYTHON),
        TASKS_VARIABLE: str(settings.LM_EVAL_TASKS),
        METRIC_CODE_VARIABLE: str(settings.LM_EVAL_METRIC_CODE),
    }
