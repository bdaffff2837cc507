"""Kernels of users, which their architectures add to a list as Wisp's own are: `ops.add(name, ...)`."""

from __future__ import annotations

from collections.abc import Callable

from py_engine.cpu.call import Call
from py_engine.cpu.kernels import KERNELS
from py_engine.plan import kernels


def register_kernel(name: str, wgsl: str, compute: Callable[[Call], None]) -> None:
    """Let architectures use a kernel of the caller's. A name that is registered again gets the new functions.

    `name`: it begins with my_; else WispError invalid_value. `wgsl`: its text, in the form of the files in wgsl/:
    `#param` lines, one struct Params, `@bind` variables, `main`. `compute`: the same with numpy, which runs without
    WebGPU, and which results of a GPU are compared with in each load before the first token. A kernel that reads what
    it writes calls that x or y, and has a param IN_PLACE of 1.
    """
    kernels.register(name, wgsl)
    KERNELS[name] = compute
