"""A trainer without torch: tells of made-up steps through the real spool, obeys TERM, and misbehaves on request.

Start it with HACRL_TRAINER_COMMAND='["python", "-m", "tests.fake_trainer"]'.

The first word of the run's name (or HACRL_FAKE_MODE) is the misbehaviour:
  crash: exits with status 3 in step 3    crash-once: only in attempt 1    deaf: ignores TERM    hang: stops in step 3
  fail: says "failed"    silent: exits with 0 and no last word    orphan: leaves a child process behind
HACRL_FAKE_STEP_S: seconds per step (default 0.01).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from workers.events import (
    Body,
    Checkpoint,
    Contribution,
    Evaluation,
    Finished,
    Log,
    Metrics,
    Progress,
    Rollout,
    SpoolWriter,
    Started,
    read_spool,
)
from workers.launcher import die_with_supervisor
from workers.spec import RunSpec

MODES = ("crash", "crash-once", "deaf", "hang", "fail", "silent", "orphan")
is_stopped = False


def note_stop(*_: object) -> None:
    global is_stopped
    is_stopped = True


def last_checkpoint(run_dir: Path) -> int:
    """The step of the last checkpoint that the spool tells of."""
    steps = [record["step"] for record in read_spool(run_dir) if record["type"] == "checkpoint"]
    return max(steps, default=0)


def agent_metrics(step: int, agent: str, chance: random.Random) -> Metrics:
    correct = chance.randrange(8, 64)
    return Metrics(
        step=step,
        agent=agent,
        values={
            "capability": correct / 64,
            "advantage/mean": chance.gauss(0, 0.01),
            "advantage/std": chance.random(),
            "baseline/mean": correct / 64,
            "entropy": 2.0 / step,
            "kl": 0.01 * step,
            "grad_norm": chance.random(),
            "loss": chance.gauss(0, 1),
            "learning_rate": 1e-6,
            "completions/mean_length": chance.uniform(10, 20),
        },
        ratios={
            "reward/mean": (float(correct), 64.0),
            "clip_ratio/low_mean": (float(chance.randrange(4)), 64.0),
            "frac_reward_zero_std": (1.0, 8.0),
        },
    )


def pair_metrics(step: int, learner: str, source: str, chance: random.Random) -> Metrics:
    clipped = float(chance.randrange(64))
    return Metrics(
        step=step,
        agent=learner,
        source=source,
        values={"omega": chance.uniform(0.5, 2), "omega_clamped": 0.0, "sequence_ratio/mean": chance.random()},
        ratios={
            "clip_lower_frac": (clipped, 64.0),
            "clip_lower_frac/positive": (clipped / 2, 32.0),
            "clip_lower_frac/negative": (clipped / 2, 32.0),
            "clip_upper_frac": (0.0, 64.0),
            "used_frac": (64 - clipped, 64.0),
        },
    )


def rollouts(step: int, agents: list[str], chance: random.Random) -> list[Body]:
    bodies: list[Body] = []
    for agent in agents:
        reward = float(chance.random() < 0.5)
        bodies.append(
            Rollout(
                step=step,
                agent=agent,
                prompt_id="1",
                sample=0,
                prompt="1+2*3=",
                completion="<b>\\boxed{7}</b>",
                answer="7",
                reward=reward,
                finish_reason="stop",
                num_tokens=9,
                mean_logp=-0.5,
            )
        )
        bodies += [
            Contribution(
                step=step,
                agent=learner,
                source=agent,
                prompt_id="1",
                sample=0,
                num_tokens=9,
                advantage=reward - 0.5,
                sequence_ratio=0.9,
                clipped_ratio=0.9,
                omega=1.0,
                weight=0.9,
                mini_batch=0,
            )
            for learner in agents
        ]
    return bodies


def evaluations(step: int, spec: RunSpec) -> list[Body]:
    gain = {"gspo": 30, "gspox2": 35, "hacpo": 50}.get(spec.algorithm.name, 40)
    found: list[Body] = []
    for place, agent in enumerate(spec.agents):
        correct = 10 + place + (gain + spec.seed) * step // spec.training.steps
        body = Evaluation(
            step=step,
            agent=agent.name,
            benchmark=spec.data.benchmark,
            metric="accuracy",
            value=correct / 100,
            correct=correct,
            asked=100,
        )
        found.append(body)
    return found


def step_bodies(step: int, spec: RunSpec, started: float, chance: random.Random) -> list[Body]:
    agents = [agent.name for agent in spec.agents]
    bodies: list[Body] = [agent_metrics(step, agent, chance) for agent in agents]
    bodies += [pair_metrics(step, a, b, chance) for a in agents for b in agents if a != b]
    bodies += rollouts(step, agents, chance)
    elapsed_s = time.monotonic() - started
    per_step = spec.training.train_batch_size * spec.num_generations * len(agents)
    progress = Progress(
        step=step,
        total_steps=spec.training.steps,
        elapsed_s=elapsed_s,
        eta_s=elapsed_s / step * (spec.training.steps - step),
        rollouts_generated=step * per_step,
        tokens_generated=step * per_step * 9,
        phase_s={"rollout": 0.5, "update": 0.5},
    )
    return [*bodies, progress]


def misbehave(mode: str, step: int, attempt: int) -> None:
    if step == 3 and (mode == "crash" or (mode == "crash-once" and attempt == 1)):
        print("the last line before the crash", file=sys.stderr)
        os._exit(3)
    if step == 3 and mode == "hang":
        time.sleep(3600)


def main(spec_path: str, run_dir: str, attempt: int) -> None:
    die_with_supervisor()
    spec = RunSpec.from_file(Path(spec_path))
    first_word = os.environ.get("HACRL_FAKE_MODE") or spec.name.split()[0]
    mode = first_word if first_word in MODES else "complete"
    signal.signal(signal.SIGTERM, signal.SIG_IGN if mode == "deaf" else note_stop)
    if mode == "orphan":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        print(f"child {child.pid}", flush=True)
    spool = SpoolWriter(Path(run_dir), attempt, spec.telemetry.spool_quota_mib * 2**20)
    first = last_checkpoint(Path(run_dir))
    names = [agent.name for agent in spec.agents]
    spool.emit(
        Started(step=first, total_steps=spec.training.steps, agents=names, device="none", versions={"fake": "1"}),
        Log(message=f"fake trainer, attempt {attempt}"),
        *(evaluations(0, spec) if first == 0 else ()),
    )
    step, started, chance = first, time.monotonic(), random.Random(spec.seed)
    while step < spec.training.steps and not is_stopped:
        step += 1
        misbehave(mode, step, attempt)
        spool.emit(*step_bodies(step, spec, started, chance))
        if spec.checkpoint.save_steps and step % spec.checkpoint.save_steps == 0:
            spool.emit(Checkpoint(step=step, path=f"checkpoints/step-{step:06d}", size_bytes=0))
        time.sleep(float(os.environ.get("HACRL_FAKE_STEP_S", "0.01")))
    if mode == "silent":
        return
    if is_stopped:
        spool.emit(Checkpoint(step=step, path=f"checkpoints/step-{step:06d}", size_bytes=0))
        spool.emit(Finished(step=step, outcome="stopped"))
    elif mode == "fail":
        spool.emit(Finished(step=step, outcome="failed", reason="the fake loss became NaN in step 3"))
    else:
        spool.emit(*evaluations(step, spec), Finished(step=step, outcome="completed"))
    spool.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[4]))
