"""Diffusion text models: what their plans have beside the layers, and the options of their generation.

Such a model computes a whole sequence, in which every token attends to all others, and predicts the tokens at the
positions of mask tokens. It has no KV cache. In its plan, the lists DECODE and SMALL_BATCH compute no layers: they read
the hidden states that PREFILL has left, at the positions of a small batch's States.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, DiffusionPlan, PerToken
from py_engine.plan.sampling import Sampling
from py_engine.plan.shared_constants import MAX_LOGPROBS, THREADS

EPS, BLOCK = 1e-3, 32  # of requests that give neither: Dream's, and LLaDA's
USUAL_TOKENS = 128  # of an answer whose request sets no limit


class Algorithm(IntEnum):
    """Which of the sampled tokens a step keeps, with llama.cpp's numbers."""

    ORIGIN = 0  # each with the same probability
    ENTROPY = 1  # those of the distributions with the least entropy
    MARGIN = 2  # those with the largest lead over the second likeliest token
    RANDOM = 3
    CONFIDENCE = 4  # the most probable ones

    @property
    def logprobs(self) -> int:
        """The likeliest tokens that it compares; -1: it needs no probabilities."""
        return {Algorithm.ENTROPY: MAX_LOGPROBS, Algorithm.MARGIN: 2, Algorithm.CONFIDENCE: 0}.get(self, -1)


@dataclass(frozen=True)
class Schedule:
    """How many masked tokens each step fills in: by Dream's timesteps, or by LLaDA's blocks from left to right."""

    steps: int
    eps: float = 0.0  # the time at which the last step begins
    block: int = 0  # tokens; 0: the whole answer is one block, filled in by timesteps

    @classmethod
    def of(cls, sampling: Sampling, shifted: bool) -> Schedule:
        """The schedule that a request asks for, or the usual one of the model."""
        eps, block = sampling.diffusion_eps, sampling.diffusion_block_length
        if eps and block:
            raise WispError(
                "diffusion_eps and diffusion_block_length are two schedules; give one of them.",
                "invalid_value",
                param="diffusion_block_length",
            )
        if not eps and not block:
            eps, block = (EPS, 0) if shifted else (0.0, BLOCK)
        return cls(sampling.diffusion_steps, eps, block)


def read_metadata(header: Header, vocab: int) -> DiffusionPlan:
    """What the file's metadata says of generation. WispError missing_metadata without a mask token."""
    mask = header.metadata.get("tokenizer.ggml.mask_token_id")
    if mask is None:
        raise WispError("The metadata of this diffusion model names no mask token.", "missing_metadata")
    if isinstance(mask, bool) or not isinstance(mask, int) or not 0 <= mask < vocab:
        raise WispError(
            f"tokenizer.ggml.mask_token_id is {mask!r:.100} in the file's metadata; it must be a token.",
            "corrupt_header",
        )
    return DiffusionPlan(mask, header.metadata.get("diffusion.shift_logits", True) in (True, "true"))


def pick_rows(ops: OpList, x: Buffer) -> Buffer:
    """The rows of x (positions, cols) at the positions of the batch's States: (n, cols)."""
    y = ops.buffer(f"{ops.name}.picked", (ops.batch, x.shape[1]))
    vecs = x.shape[1] // 4
    params, bindings = {"VECS": vecs} | ops.state_params, {"state": ops.state, "x": x, "y": y}
    ops.add("pick_rows", params, {"rows": x.shape[0]}, bindings, -(-vecs // THREADS), PerToken())
    return y


def check(sampling: Sampling, shifted: bool) -> None:
    """Raise WispError unsupported_parameter for what a diffusion model cannot do, invalid_value for two schedules."""
    Schedule.of(sampling, shifted)
    usual = Sampling()
    names = ("presence_penalty", "frequency_penalty", "repeat_penalty", "dry_multiplier", "logprobs", "processor")
    for name in names:
        if getattr(sampling, name) != getattr(usual, name):
            raise unsupported(name)


def check_unused(sampling: Sampling) -> None:
    """Raise WispError unsupported_parameter for diffusion's parameters in a request to another model."""
    usual = Sampling()
    for name in (field for field in vars(usual) if field.startswith("diffusion_")):
        if getattr(sampling, name) != getattr(usual, name):
            raise WispError(
                f"{name} is for diffusion models; this model generates one token after the other. Leave it out.",
                "unsupported_parameter",
                param=name,
            )


def unsupported(param: str, what: str = "") -> WispError:
    """The error for a parameter of a request to a diffusion model. `what`: it, as the subject of a sentence."""
    return WispError(
        f"{what or param + ' is'} not supported by diffusion models, which fill in tokens in any order. Leave it out.",
        "unsupported_parameter",
        param=param,
    )
