"""What a request may ask of a planned model. WispError names the parameter at fault."""

from __future__ import annotations

from collections.abc import Sequence

from py_engine.errors import WispError
from py_engine.generate.answer import GenerationRequest
from py_engine.plan import diffusion
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Sampling
from py_engine.plan.shared_constants import MAX_BIASES


def check_request(plan: Plan, request: GenerationRequest) -> None:
    """Raise WispError for sampling with wrong token ids, and for what this kind of model does not do."""
    _check_sampling(plan, request.sampling)
    if plan.diffusion is None:
        diffusion.check_unused(request.sampling)
        return
    if request.constraint is not None:
        check_constrains(plan, "response_format")
    if request.media:
        raise diffusion.unsupported("messages", "Pictures and sound are")
    diffusion.check(request.sampling, plan.diffusion.shifted)


def check_constrains(plan: Plan, param: str) -> None:
    """Raise WispError unsupported_parameter, naming `param`, if the model's answers cannot have a constraint."""
    if plan.diffusion is not None:
        raise diffusion.unsupported(param)


def check_vocabulary(plan: Plan, ids: Sequence[int], param: str | None = None) -> None:
    """Raise WispError invalid_value for an id that is no token."""
    for bad in (min(ids, default=0), max(ids, default=0)):
        if not 0 <= bad < plan.n_vocab:
            what = f"Token id {bad} is outside the vocabulary of {plan.n_vocab}."
            raise WispError(what, "invalid_value", param=param)


def _check_sampling(plan: Plan, sampling: Sampling) -> None:
    most = MAX_BIASES - (plan.diffusion is not None)  # the mask has a bias, too
    if len(sampling.logit_bias) > most:
        raise WispError(f"logit_bias has more than {most} tokens.", "invalid_value", param="logit_bias")
    check_vocabulary(plan, [token for token, _ in sampling.logit_bias], "logit_bias")
    check_vocabulary(plan, sampling.dry_breakers, "dry_breakers")
