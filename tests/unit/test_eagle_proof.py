"""The proof's cases of the kernels of EAGLE-3 heads."""

from pathlib import Path

import numpy as np
import pytest

from py_engine.cpu import attention
from py_engine.plan.kernels import Device
from py_engine.plan.lists import MTP, MTP_NEXT, PREFILL, SMALL_BATCH, each
from py_engine.proof import comparison
from py_engine.proof.case import Case
from tests.support import eagle_models
from tests.support.devices import GPU
from tests.support.draft_proofs import SOFTWARE, cases_of, check_each_result

LISTS = [PREFILL, SMALL_BATCH, MTP, MTP_NEXT, each(MTP), each(MTP_NEXT)]


def made(folder: Path, kind: str, device: Device) -> list[Case]:
    """The cases of a head's lists."""
    paths = folder / "model.gguf", folder / "head.gguf"
    eagle_models.write(eagle_models.KINDS[kind], *paths)
    return cases_of(*paths, LISTS, device)


@pytest.mark.parametrize(("kind", "device"), [("reduced", GPU), ("shared", SOFTWARE)], ids=["gpu", "software"])
def test_another_value_in_any_result_is_a_fault(kind: str, device: Device, tmp_path: Path) -> None:
    check_each_result(made(tmp_path, kind, device))


def test_every_row_of_a_heads_input_is_computed(tmp_path: Path) -> None:
    """Inputs that are bound as read_write are not poisoned as results are."""
    sources = set()
    for case in made(tmp_path, "reduced", GPU):
        for op in (op for op in case.ops if op.kernel == "mtp_input"):
            sources.add((op.params["HIDDEN"], op.params.get("RESIDUAL")))
            cols, y = int(op.params["COLS"]), case.want[op.bindings["y"].name][: case.batch.n]
            assert np.isfinite(y[:, : 2 * cols]).all()
    assert sources == {("batch", None), ("ring", "raw"), ("own", "raw")}


def test_a_kernel_that_sees_the_first_position_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def attentions() -> list[Case]:
        return [case for case in made(tmp_path, "reduced", GPU) if case.ops[0].params.get("FROM")]

    right, visible = attentions(), attention.visible
    monkeypatch.setattr(attention, "visible", lambda c, pos, seq: (0, visible(c, pos, seq)[1]))
    assert right
    for case, other in zip(right, attentions(), strict=True):
        assert comparison.fault(case, case.want) is None
        assert comparison.fault(case, other.want)
