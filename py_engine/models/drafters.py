"""What drafts in the plan of a model from its hidden states: its MTP layer, an assistant, an EAGLE-3 head or a DFlash
model; and the lists that this needs (plan/draft.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from py_engine.files.draft_header import is_assistant, is_dflash, is_eagle
from py_engine.models.config import Config
from py_engine.models.draft_file import DraftFile
from py_engine.plan.cache import Cache
from py_engine.plan.draft import add_block, add_mtp
from py_engine.plan.features import Features
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DRAFT_BLOCK, DRAFT_BLOCK_LOGITS, MTP, MTP_NEXT, each
from py_engine.plan.ops import Ops
from py_engine.plan.pages import shift_index
from py_engine.plan.plan import Buffer, Plan
from py_engine.plan.weights import Weights

if TYPE_CHECKING:
    from py_engine.models.dflash import DFlash
    from py_engine.models.eagle import Eagle
    from py_engine.models.gemma4_assistant import Assistant
    from py_engine.models.mtp import MtpLayer


class OpsOf(Protocol):
    """Makes the ops of a list for a batch of so many tokens."""

    def __call__(self, name: str, batch: int, state_per_token: bool = False, /) -> Ops: ...


@dataclass(frozen=True)
class StepDrafter:
    """What drafts a token in each step."""

    layer: MtpLayer | Assistant | Eagle
    n_ctx: int  # positions that it may be used at
    features: Features | None = None  # what it reads of the model's layers
    anchor: int = 0  # as of Rope

    def fill(self, ops: Ops, x: Buffer) -> None:
        """Append what it needs of a batch with the last hidden state x."""
        self.layer.fill(ops, x)

    def add_lists(self, plan: Plan, ops_of: OpsOf, logits: Buffer, batch_logits: Buffer) -> None:
        """Add the lists of its steps, with the logits of one sequence, or of a small batch."""
        hidden = self.layer.predict(ops_of(MTP, 1), logits)
        self.layer.predict(ops_of(MTP_NEXT, 1), logits, hidden)
        hidden = self.layer.predict(ops_of(each(MTP), plan.max_small_batch, True), batch_logits)
        self.layer.predict(ops_of(each(MTP_NEXT), plan.max_small_batch, True), batch_logits, hidden)

    def add_to(self, plan: Plan, device: Device) -> None:
        """Make it what drafts in the plan, which has all its lists."""
        add_mtp(plan, device, self.n_ctx, self.anchor)


@dataclass(frozen=True)
class BlockDrafter:
    """What drafts all tokens in one step."""

    layer: DFlash

    @property
    def features(self) -> Features:
        """What it reads of the model's layers."""
        return self.layer.features

    def fill(self, ops: Ops, x: Buffer) -> None:
        """Append what it needs of a batch with the last hidden state x."""
        self.layer.fill(ops, x)

    def add_lists(self, plan: Plan, ops_of: OpsOf, logits: Buffer, batch_logits: Buffer) -> None:
        """Add the lists of its step, which is always of a small batch, with their logits."""
        x = self.layer.block(ops_of(DRAFT_BLOCK, plan.max_small_batch, True))
        self.layer.logits(ops_of(DRAFT_BLOCK_LOGITS, plan.max_small_batch, True), x, batch_logits)

    def add_to(self, plan: Plan, device: Device) -> None:
        """Make it what drafts in the plan, which has all its lists."""
        shape = self.layer.shape
        add_block(plan, device, self.layer.context_length, shape.most, shape.mask)


def make_drafter(
    file: DraftFile, model: Config, ops: Ops, w: Weights, caches: list[Cache]
) -> StepDrafter | BlockDrafter | None:
    """What drafts by a file from a model's hidden states; None: the file is a model that drafts by itself.

    `w`: all tensors; those of the file begin with DRAFT. `caches`: of the model's layers. WispError draft_mismatch, or
    what is wrong with the file.
    """
    header, plan = file.header, ops.plan
    if is_assistant(header):
        from py_engine.models.gemma4 import Config as Gemma4
        from py_engine.models.gemma4_assistant import make_assistant

        assert isinstance(model, Gemma4)  # check_draft() has made sure
        assistant = make_assistant(header, model, ops, w, caches, file.factors)
        return StepDrafter(assistant, plan.n_ctx, anchor=shift_index(plan.n_ctx, plan.page))
    if is_eagle(header):
        from py_engine.models.eagle import make_eagle

        head = make_eagle(file, model, ops, w)
        return StepDrafter(head, head.context_length, head.features)
    if is_dflash(header):
        from py_engine.models.dflash import make_dflash

        return BlockDrafter(make_dflash(file, model, ops, w))
    return None
