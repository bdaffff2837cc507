"""Checks of the proof's cases of draft models that read a model's hidden states."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from py_engine.plan.kernels import Device
from py_engine.planner import PlanOptions, make_plan
from py_engine.proof import comparison
from py_engine.proof.case import Case
from py_engine.proof.cases import cases
from py_engine.proof.variants import shaders_of
from tests.support.model_files import ModelFiles

SOFTWARE = Device(subgroup=4, software=True)


def cases_of(model: Path, draft: Path, lists: Sequence[str], device: Device) -> list[Case]:
    """The cases of the lists of a model with its draft model; they have those of all shaders."""
    files = ModelFiles.read(model, draft=draft)
    options = PlanOptions(512, 128, "f16", draft=files.parts.draft, draft_tokens=files.draft_tokens())
    plan = make_plan(files.parts.header, device, options)
    found = list(cases(plan, device, lists, lambda shader: False))
    assert {s.label for case in found for s in case.shaders} == {s.label for s in shaders_of(plan, device, lists)}
    return found


def check_each_result(found: Iterable[Case]) -> None:
    """Another value in any result is a fault; the results as they are have none."""
    for case in found:
        assert comparison.fault(case, case.want) is None
        for name, (op, binding) in case.written().items():
            values = case.want[name].copy()
            if binding in comparison.PASSED_ON or values.dtype == np.uint32:
                continue
            at = np.flatnonzero(values.reshape(-1).astype(np.float32) > comparison.REMOVED)
            assert len(at) or not op.consts.get("q_rows", 1), op.kernel  # queries, where there are keys alone
            if len(at):
                usual = np.sqrt(np.mean(values.reshape(-1)[at].astype(np.float64) ** 2))
                values.reshape(-1)[at[-1]] += usual
                assert comparison.fault(case, case.want | {name: values}), f"{op.kernel} {binding}"
