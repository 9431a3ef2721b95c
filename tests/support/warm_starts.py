"""The demo's two agents as `python -m workers.demo.make` leaves them, without the two minutes that making them takes.

    python -m tests.support.warm_starts MADE_FOLDER

keeps the weights of a made folder in tests/data/warm_starts/ (in bfloat16). To be repeated after a change of the
demo's recipe: `./hacrl test full` makes them anew and trains on those.
"""

from __future__ import annotations

import sys
from pathlib import Path

KEPT = Path(__file__).resolve().parents[1] / "data" / "warm_starts"


def put_demo(folder: Path) -> None:
    """Fill `folder` with the demo's questions and agents, whole for the product: it makes them no more."""
    from safetensors.torch import load_file

    from workers.contract.demo_recipe import SEED
    from workers.demo.cache import make_once
    from workers.demo.make import WARM_STARTS, demo_identity
    from workers.demo.task import make_problems, write_questions
    from workers.demo.warm_start import STEPS, make_model, make_tokenizer, save_agent

    def make(content: Path) -> None:
        write_questions(content, *make_problems(SEED))
        for name, start in WARM_STARTS.items():
            tokenizer = make_tokenizer(start.pieces)
            model = make_model(start.architecture, tokenizer)
            others = model.load_state_dict(load_file(KEPT / f"{name}.safetensors"), strict=False)
            assert (others.missing_keys, others.unexpected_keys) == (["lm_head.weight"], [])  # tied to the embeddings
            save_agent(model, tokenizer, content / name)

    make_once(folder, demo_identity(SEED, STEPS), make)


def keep(made: Path) -> None:
    """Store the weights of a made demo."""
    from safetensors.torch import load_file, save_file

    for path in sorted(made.glob("*/model.safetensors")):
        weights = {name: value.bfloat16().contiguous() for name, value in load_file(path).items()}
        save_file(weights, KEPT / f"{path.parent.name}.safetensors")


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
