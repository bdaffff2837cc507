"""The proof's cases of the kernels of DFlash models."""

from pathlib import Path

import numpy as np
import pytest

from py_engine.cpu import attention
from py_engine.plan.kernels import Device
from py_engine.plan.lists import (
    DRAFT_BLOCK,
    DRAFT_BLOCK_LOGITS,
    DRAFT_BLOCK_MASKED,
    DRAFT_END,
    PREFILL,
    SMALL_BATCH,
    begin_block,
)
from py_engine.proof import comparison
from py_engine.proof.case import Case
from tests.support import dflash_models
from tests.support.devices import GPU
from tests.support.draft_proofs import SOFTWARE, cases_of, check_each_result

LISTS = [PREFILL, SMALL_BATCH, begin_block(1), DRAFT_BLOCK, DRAFT_BLOCK_MASKED, DRAFT_BLOCK_LOGITS, DRAFT_END]


def made(folder: Path, kind: str, device: Device) -> list[Case]:
    """The cases of a DFlash model's lists."""
    paths = folder / "model.gguf", folder / "draft.gguf"
    dflash_models.write(dflash_models.KINDS[kind], *paths)
    return cases_of(*paths, LISTS, device)


@pytest.mark.parametrize(("kind", "device"), [("windowed", GPU), ("plain", SOFTWARE)], ids=["gpu", "software"])
def test_another_value_in_any_result_is_a_fault(kind: str, device: Device, tmp_path: Path) -> None:
    check_each_result(made(tmp_path, kind, device))


@pytest.mark.parametrize("stage", ["block", "masked"])
def test_another_state_or_token_is_a_fault(stage: str, tmp_path: Path) -> None:
    found = [case for case in made(tmp_path, "plain", GPU) if case.ops[0].params.get("STAGE") == stage]
    assert len(found) == (2 if stage == "block" else 1)
    for case in found:
        changed = {name: np.flatnonzero(case.want[name] != case.data[name]) for name in case.want}
        assert len(changed["state"]) > 1
        assert ("tokens" in changed) == (stage == "block")
        for name, places in changed.items():
            for at in places:
                values = case.want[name].copy()
                values.reshape(-1)[at] += 1
                assert comparison.fault(case, case.want | {name: values}), f"{name} {at}"


def test_a_kernel_that_hides_later_tokens_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def attentions() -> list[Case]:
        return [case for case in made(tmp_path, "plain", GPU) if case.ops[0].params.get("MUTUAL")]

    right, visible = attentions(), attention.visible
    monkeypatch.setattr(attention, "visible", lambda c, pos, seq: (visible(c, pos, seq)[0], pos + 1))
    assert right
    for case, other in zip(right, attentions(), strict=True):
        assert comparison.fault(case, case.want) is None
        assert comparison.fault(case, other.want)
