"""Runs the proof's cases op by op on a page of tests/kernels, and edits kernel text before it is compiled."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from playwright.sync_api import Page

from py_engine.plan.kernels import Device, Shader
from py_engine.plan.plan import PerToken
from py_engine.proof.case import Case
from py_engine.proof.random_data import SparseBytes
from tests.support.kernels.bench import dispatch
from tests.support.kernels.matrices import emulated

Edit = Callable[[Shader], Shader]


def run_case(page: Page, case: Case, device: Device, edit: Edit = lambda shader: shader) -> dict[str, np.ndarray]:
    """The case's written buffers afterwards."""
    data = dict(case.data)
    for op, shader in zip(case.ops, case.shaders, strict=True):
        contents = replace(case, data=data).contents(op, shader)
        grid = [g.count(case.batch.n) if isinstance(g, PerToken) else g for g in op.grid]
        text = edit(emulated(shader) if device.matrix else shader)
        bound = {n: v.whole() if isinstance(v, SparseBytes) else v for n, (v, _) in contents.items()}
        out = dispatch(page, text, bound, dict(op.consts), grid)
        for name, got in out.items():
            values, buffer = contents[name]
            assert buffer is not None
            data[buffer] = got.view(values.dtype)[: values.size].reshape(values.shape)
    return {name: data[name] for name in case.written()}
