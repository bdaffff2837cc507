"""What can go wrong with an upstream, said with its name and with what to do about it."""

from typing import Any

from app.upstreams.server import Upstream
from py_engine.errors import INVALID_REQUEST, NOT_FOUND, SERVER_ERROR, WispError

MOST = 600  # characters of another server's text that an error repeats

# HTTP status -> OpenAI's type of an error
TYPES = {401: "authentication_error", 403: "permission_error", 404: NOT_FOUND, 429: "rate_limit_error"}
HINTS = {
    401: "Check its API key in Settings.",
    403: "Check its API key in Settings, and what it allows.",
    405: "Check its base URL; it usually ends with /v1.",
    429: "Wait a little and try again.",
}


def unreachable(upstream: Upstream, origin: str) -> WispError:
    """No answer at all. Browsers do not tell why."""
    return WispError(
        f"{upstream.name} ({upstream.base_url}) cannot be reached: it is not running, its address is wrong, this "
        f"machine is offline, or it does not let the page at {origin} ask (CORS). vLLM (--allowed-origins) and "
        f"llama-server let every page, unless they were told otherwise; Ollama: OLLAMA_ORIGINS={origin} ollama serve.",
        "upstream_unreachable",
        SERVER_ERROR,
    )


def silent(upstream: Upstream, seconds: float) -> WispError:
    """It took too long."""
    return WispError(
        f"{upstream.name} ({upstream.base_url}) was silent for {seconds:g} s. Ask again, ask for less, or give it more "
        "time in its settings.",
        "upstream_timeout",
        SERVER_ERROR,
    )


def cut(upstream: Upstream) -> WispError:
    """The answer ended before its end."""
    return WispError(
        f"The connection to {upstream.name} ({upstream.base_url}) was lost in the middle of its answer. Ask again.",
        "upstream_error",
        SERVER_ERROR,
    )


def redirected(upstream: Upstream) -> WispError:
    """What was asked must not go to an address that the user did not name."""
    return WispError(
        f"{upstream.name} ({upstream.base_url}) sends requests on to another address. Give that address as its base "
        "URL.",
        "upstream_error",
        SERVER_ERROR,
    )


def unexpected(upstream: Upstream, wanted: str, text: str) -> WispError:
    """An answer that is not OpenAI's protocol."""
    return WispError(
        f"{upstream.name} ({upstream.base_url}) did not answer with {wanted}. Check its base URL; it usually ends with "
        f"/v1. It said: {_short(upstream, text) or 'nothing'}",
        "upstream_error",
        SERVER_ERROR,
    )


def refused(upstream: Upstream, status: int, answer: Any, text: str) -> WispError:
    """An error that the upstream reports, in OpenAI's shape or another server's."""
    body = answer if isinstance(answer, dict) else {}
    inner = body.get("error", body)
    found: dict[str, Any] = inner if isinstance(inner, dict) else {"message": inner}
    message = found.get("message") or found.get("detail")
    said = _short(upstream, message if isinstance(message, str) else text) or f"HTTP status {status}"
    hint = HINTS.get(status, "")
    if status == 404 and not isinstance(message, str):
        hint = "Check its base URL; it usually ends with /v1."
    ends = "" if said.endswith((".", "!", "?")) else "."
    code, param = found.get("code"), found.get("param")
    return WispError(
        f"{upstream.name}: {said}{ends} {hint}".rstrip(),
        code if isinstance(code, str) and code else "upstream_error",
        TYPES.get(status, INVALID_REQUEST if 400 <= status < 500 else SERVER_ERROR),
        param if isinstance(param, str) else None,
    )


def _short(upstream: Upstream, text: str) -> str:
    """Another server's words, without the key, which some repeat."""
    if upstream.key:
        text = text.replace(upstream.key, "…")
    text = " ".join(text.split())
    return text if len(text) <= MOST else f"{text[:MOST]} …"
