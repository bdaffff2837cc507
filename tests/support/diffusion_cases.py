"""The goldens of diffusion models: what generation must make of each of their runs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from py_engine.plan.sampling import Sampling
from tools.goldens import golden_models

MODELS = [path for path in golden_models() if path.parent.name == "diffusion"]
N_CTX = 256


@dataclass(frozen=True)
class DiffusionRun:
    """A run of a golden: a request, and the ids that llama.cpp's logits lead to."""

    prompt: list[int]
    ids: list[int]
    options: dict[str, Any]  # diffusion's parameters

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=0, **self.options)


def runs(path: Path) -> list[DiffusionRun]:
    """The runs of a golden."""
    golden, about = np.load(path.with_suffix(".npz")), json.loads(path.with_suffix(".json").read_text())
    return [
        DiffusionRun(
            golden[f"run_{k}_prompt"].tolist(),
            golden[f"run_{k}_ids"].tolist(),
            {
                "diffusion_steps": run["steps"],
                "diffusion_eps": run["eps"],
                "diffusion_block_length": run["block"],
                "diffusion_algorithm": run["algorithm"],
            },
        )
        for k, run in enumerate(about["runs"])
    ]
