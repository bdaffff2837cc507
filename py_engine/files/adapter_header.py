"""The headers of LoRA adapters and control vectors, which are files beside a model's.

Tensors of adapter number i get names that begin with prefix(i), which are unlike the model's and other adapters'.
"""

from __future__ import annotations

from dataclasses import replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header

CONTROL_VECTOR = "controlvector"  # general.architecture of a control vector


def is_adapter(header: Header) -> bool:
    """Whether a file is an adapter or a control vector, not a model."""
    kind = header.get("general.architecture")
    return header.get("general.type") == "adapter" or kind == CONTROL_VECTOR or header.get("adapter.type") is not None


def check_model(header: Header) -> None:
    """Raise WispError unsupported_architecture if the file of a model is an adapter."""
    if is_adapter(header):
        raise WispError(
            "This file is a LoRA adapter or a control vector, not a model. Load it beside the model that it was made "
            'for: load({ model, lora: [{ model: "adapter.gguf" }] }).',
            "unsupported_architecture",
            param="model",
        )


def prefix(number: int) -> str:
    """What the names of an adapter's tensors begin with."""
    return f"adapter.{number}."


def prefixed(header: Header, number: int) -> Header:
    """The header of an adapter with its tensors' names prefixed."""
    tensors = {
        prefix(number) + name: replace(info, name=prefix(number) + name) for name, info in header.tensors.items()
    }
    return replace(header, tensors=tensors)
