"""The goldens of encoder-decoder models: a prompt for the encoder, and answers of the decoder."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from py_engine.engine import Engine
from tests.support.tolerances import assert_close
from tools.goldens import golden_models

MODELS = [path for path in golden_models() if path.parent.name == "encoder_decoder"]
PATHS = {path.name.removesuffix(".F16.gguf"): path for path in MODELS}
N_CTX = 256


def golden(path: Path) -> tuple[Any, dict[str, Any]]:
    """A golden's arrays, and what its .json says."""
    return np.load(path.with_suffix(".npz")), json.loads(path.with_suffix(".json").read_text())


async def assert_logits(path: Path, engine: Engine) -> None:
    """The logits of both answers are the reference's."""
    want, _ = golden(path)
    for name in ("", "long_"):
        reference = want[name + "logits_ref"]
        logits, shape = await engine.evaluate(want[name + "prompt"].tolist(), answer=want[name + "answer"].tolist())
        assert shape == (1 + len(want[name + "answer"]), want["logits"].shape[1])
        assert_close(reference, np.asarray(logits).reshape(shape)[-len(reference) :], "f32")
