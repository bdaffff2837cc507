"""Wisp Mini's vocabulary and template, without an engine that computes."""

from typing import Any, cast

from app.models.loaded import Loaded
from app.models.loading import vocabulary
from py_engine.files.gguf_header import parse
from tests.support.gguf_bytes import MINI


class Engine:
    """An engine with a context only."""

    def __init__(self, context_length: int) -> None:
        self.context_length = context_length


def mini(context_length: int = 4096) -> Loaded:
    data = MINI.read_bytes()
    model = vocabulary("mini", parse(data, None), {})
    model.engine = cast(Any, Engine(context_length))
    return model
