"""The check, before any weights are loaded, that a run fits this machine's memory. Reads configurations only."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from workers.contract.memory import Machine, Shape, shape_of, shortfall
from workers.contract.spec.run import RunSpec
from workers.model.loading import choose_device

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container; "max" or absent: none


class DoesNotFit(RuntimeError):
    """The run needs more memory than the machine has; the text says how much, and what would fit."""


def check_memory(spec: RunSpec) -> None:
    """Refuse a run that does not fit. Errors: DoesNotFit; OSError where a model does not exist."""
    if spec.compute.placement != "local":  # its agents may be on other machines
        return
    shapes = [model_shape(agent.model, agent.revision) for agent in spec.agents]
    readable = [shape for shape in shapes if shape is not None]
    if len(readable) < len(shapes):  # the estimate knows decoders only
        return
    lacking = shortfall(spec, readable, this_machine(spec))
    if lacking is not None:
        raise DoesNotFit(str(lacking))


def model_shape(location: str, revision: str | None) -> Shape | None:
    """The shape of a model in a folder or on the hub, without loading its weights."""
    config = AutoConfig.from_pretrained(location, revision=revision, trust_remote_code=False)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    return shape_of(config.to_dict(), sum(parameter.numel() for parameter in model.parameters()))


def this_machine(spec: RunSpec) -> Machine:
    """The memory that the run can use here; without GPUs where it trains on the CPU."""
    gpus: tuple[int, ...] = ()
    if choose_device(spec).type == "cuda":
        count = torch.cuda.device_count()
        gpus = tuple(torch.cuda.get_device_properties(index).total_memory for index in range(count))
    memory = psutil.virtual_memory().total
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else ""
    return Machine(gpus=gpus, memory=min(memory, int(limit)) if limit.isdigit() else memory)
