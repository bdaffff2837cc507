"""Projectors' headers that Wisp refuses."""

from dataclasses import replace
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.plan.kernels import Device
from py_engine.planner import PlanOptions, make_plan
from tests.support.media import VISION, header_of


def refusal(name: str, metadata: dict[str, Any], without: str) -> str:
    """The code of the error when a golden's projector is planned with other metadata, or without a tensor."""
    header = header_of(VISION / f"{name}.mmproj.gguf")
    tensors = {name: info for name, info in header.tensors.items() if name != without}
    changed = replace(header, metadata=header.metadata | metadata, tensors=tensors)
    with pytest.raises(WispError) as error:
        make_plan(changed, Device(), PlanOptions(1, 1, "f16"))
    return error.value.code
