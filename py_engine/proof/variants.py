"""The kernels to use in place of wrong ones: the least change of the device whose plan has no wrong kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, Protocol

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.plan import kernels
from py_engine.plan.kernels import Device, Shader
from py_engine.plan.plan import Plan

# prefixes of the kernels that are proven a list at a time
SAMPLER_KERNELS = ("sample", "advance", "draft_", "logprobs")

# (fields of Device, in words), the least loss of speed first
STEPS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"tiles": ()}, "tiles measured here"),
    ({"matrix": 0}, "subgroup matrices"),
    ({"dot8": False}, "integer dot products"),
    ({"f16": False, "matrix": 0}, "f16"),
    ({"subgroup": 0, "matrix": 0}, "subgroups"),
)


class WrongKernels(WispError):
    """Kernels are wrong on the device, or do not compile. `found`: kernel -> why; `advice`: what to do about it."""

    def __init__(self, found: dict[str, str], advice: str = "") -> None:
        first, why = next(iter(found.items()))
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        message = f"The kernel {first} does not work on this GPU ({why}){more}.{advice}"
        super().__init__(message, "wrong_results", SERVER_ERROR)
        self.found = found


class Faults(Protocol):
    """What is known of a device's kernels."""

    def fault(self, shader: Shader) -> str:
        """Why the kernel is known to be wrong; "" if it is not."""


def shaders_of(plan: Plan, device: Device, lists: Iterable[str]) -> list[Shader]:
    """The distinct kernels of a plan's lists."""
    found = (kernels.expand(op.kernel, op.params, device) for name in lists for op in plan.lists[name])
    return list({shader.label: shader for shader in found}.values())


def check(shaders: Iterable[Shader], faults: Faults) -> None:
    """Raise WrongKernels if one of the kernels is known to be wrong."""
    if wrong := {shader.kernel: why for shader in shaders if (why := faults.fault(shader))}:
        raise WrongKernels(wrong)


def variants(device: Device, forced: Collection[str]) -> Iterator[tuple[Device, str]]:
    """Devices without one, two ... of the steps' features, and what they lack. `forced` fields do not change."""
    steps = [step for step in STEPS if all(n not in forced or getattr(device, n) == v for n, v in step[0].items())]
    seen = {device}
    for count in range(1, len(steps) + 1):
        for chosen in combinations(steps, count):
            changed = device
            for fields, _ in chosen:
                changed = replace(changed, **fields)
            if changed not in seen:
                seen.add(changed)
                yield changed, " and ".join(word for fields, word in chosen if replace(device, **fields) != device)


def blamed(shaders: Collection[Shader]) -> list[Shader]:
    """The kernels of a wrong case that a variant would replace; all of them if none would."""
    found = [s for s in shaders if "enable " in s.code]
    return found or list(shaders)
