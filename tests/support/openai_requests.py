"""Parts of requests to OpenAI's endpoints, and what a request is rejected with."""

import base64
from typing import Any

import pytest

from py_engine.errors import WispError

T, V, U = "invalid_type", "invalid_value", "unsupported_parameter"
HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "other"}}


def image(url: str, **more: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def file(content: bytes = b"", data: Any = None, **fields: Any) -> dict[str, Any]:
    """A part with a file."""
    encoded = f"data:text/plain;base64,{base64.b64encode(content).decode()}"
    return {"type": "file", "file": {"file_data": encoded if data is None else data, **fields}}


def allowed(*tools: Any) -> dict[str, Any]:
    """A choice among some of the tools."""
    return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": list(tools)}}


def param_of(call: Any, body: Any) -> tuple[str, str | None]:
    """The code and the parameter of the error that a request is rejected with."""
    with pytest.raises(WispError) as error:
        call(body)
    return error.value.code, error.value.param
