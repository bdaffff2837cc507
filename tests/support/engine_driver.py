"""Loads an engine in an engine page for one call."""

import base64
from typing import Any

import numpy as np
from playwright.sync_api import Page

from tests.support.browser import call_python


def run(
    page: Page,
    url: str | list[str],
    task: str,
    arguments: dict[str, Any] | None = None,
    within: str | None = None,
    **options: Any,
) -> Any:
    """Load `url` with `options` and return what a task of tests/support/page does with the engine and the arguments.

    `task` and `within`, the context that it runs in, are "module.function".
    """
    urls = url if isinstance(url, list) else [url]
    given = {"task": task, "urls": urls, "options": options, "arguments": arguments or {}, "within": within}
    return call_python(page, "engines.with_engine", **given)


def logits_of(result: dict[str, Any]) -> np.ndarray:
    """The logits of a task's result, (n_tokens, n_vocab)."""
    return floats(result["logits"], result["shape"])


def floats(text: str, shape: Any) -> np.ndarray:
    """Decode what raw() of tests/support/page/engines.py encoded."""
    return np.frombuffer(base64.b64decode(text), np.float32).reshape(shape)
