"""Errors of upstreams. Each names the upstream and says what to do."""

import math
import re
from itertools import islice
from typing import Any

from app.upstreams.server import Upstream
from py_engine.errors import INVALID_REQUEST, NOT_FOUND, SERVER_ERROR, WispError

MAX_QUOTE = 600  # characters of another server's text that an error quotes

# HTTP status -> OpenAI's error type
TYPES = {401: "authentication_error", 403: "permission_error", 404: NOT_FOUND, 429: "rate_limit_error"}
HINTS = {
    401: "Check its API key in Settings.",
    403: "Check its API key in Settings, and what it allows.",
    405: "Check its base URL; it usually ends with /v1.",
    429: "Wait a little and try again.",
}
MAX_WAIT_S = 366 * 86_400  # that a server may ask for
FAILED = "This is an error of that server: try again, and look into its log if it stays."  # statuses from 500 on


def unreachable(upstream: Upstream, origin: str) -> WispError:
    """The error for no answer at all. Browsers do not report why."""
    return WispError(
        f"{upstream.name} ({upstream.base_url}) cannot be reached: it is not running, its address is wrong, this "
        f"machine is offline, or its CORS headers do not allow {origin}. vLLM (--allowed-origins) and llama-server "
        f"allow every page by default; for Ollama: OLLAMA_ORIGINS={origin} ollama serve.",
        "upstream_unreachable",
        SERVER_ERROR,
    )


def silent(upstream: Upstream, seconds: float) -> WispError:
    """The error for a timeout."""
    return WispError(
        f"{upstream.name} ({upstream.base_url}) did not answer for {seconds:g} s. Try again, or raise its timeout in "
        "its settings.",
        "upstream_timeout",
        SERVER_ERROR,
    )


def cut(upstream: Upstream) -> WispError:
    """The error for an answer that was cut off."""
    return WispError(
        f"The connection to {upstream.name} ({upstream.base_url}) was lost in the middle of its answer. Try again.",
        "upstream_error",
        SERVER_ERROR,
    )


def endless(upstream: Upstream, limit: str) -> WispError:
    """The error for more than an answer, or an event of a stream, may have."""
    return WispError(
        f"{upstream.name} ({upstream.base_url}) sends an answer that is too long to be one: it has more than {limit}. "
        "Check its base URL, or request less at once.",
        "upstream_error",
        SERVER_ERROR,
    )


def redirected(upstream: Upstream) -> WispError:
    """The error for a redirect: requests only go to addresses that the user has configured."""
    return WispError(
        f"{upstream.name} ({upstream.base_url}) redirects to another address. Configure that address as its base URL.",
        "upstream_error",
        SERVER_ERROR,
    )


def unexpected(upstream: Upstream, expected: str, text: str) -> WispError:
    """The error for an answer that does not follow OpenAI's protocol."""
    return WispError(
        f"{upstream.name} ({upstream.base_url}) did not answer with {expected}. Check its base URL, which usually ends "
        f"with /v1. Its answer: {_short(upstream, text) or 'empty'}",
        "upstream_error",
        SERVER_ERROR,
    )


def refused(upstream: Upstream, status: int, answer: Any, text: str, wait_s: float | None = None) -> WispError:
    """An error that the upstream reports, in OpenAI's shape or another. `wait_s`: before the next try."""
    body = answer if isinstance(answer, dict) else {}
    inner = body.get("error", body)
    found: dict[str, Any] = inner if isinstance(inner, dict) else {"message": inner}
    message = found.get("message") or found.get("detail")
    reason = _short(upstream, message if isinstance(message, str) else text) or f"HTTP status {status}"
    hint = HINTS.get(status, FAILED if status >= 500 else "")
    after = math.ceil(wait_s) if wait_s is not None and 0 <= wait_s <= MAX_WAIT_S else None
    if after:
        hint = f"Try again in {_duration(after)}."
    if status == 404 and not isinstance(message, str):
        hint = "Check its base URL; it usually ends with /v1."
    ends = "" if reason.endswith((".", "!", "?")) else "."
    code, param = found.get("code"), found.get("param")
    if found.get("type") == "exceed_context_size_error":  # llama.cpp's, whose code is the HTTP status
        code = "context_length_exceeded"
    error = WispError(
        f"{upstream.name}: {reason}{ends} {hint}".rstrip(),
        code if isinstance(code, str) and code else "upstream_error",
        TYPES.get(status, INVALID_REQUEST if 400 <= status < 500 else SERVER_ERROR),
        param if isinstance(param, str) else None,
    )
    error.retry_after = after
    error.counts = {name: found[name] for name in ("n_prompt_tokens", "n_ctx") if type(found.get(name)) is int}
    return error


def _duration(seconds: int) -> str:
    """As a text, rounded up where it is long."""
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{-(-seconds // length)} {unit}"
    return f"{seconds} s"


def _short(upstream: Upstream, text: str) -> str:
    """The start of another server's text without the key, which some servers repeat."""
    if upstream.key:
        text = text.replace(upstream.key, "…")
    # An answer may be long: split off no more words than a quote may have.
    words = (found.group() for found in re.finditer(rf"\S{{1,{MAX_QUOTE}}}", text))
    text = " ".join(islice(words, MAX_QUOTE))
    return text if len(text) <= MAX_QUOTE else f"{text[:MAX_QUOTE]} …"
