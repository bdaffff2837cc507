"""One configured upstream: its name, address, key and models."""

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from py_engine.errors import WispError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
LOOPBACK = ("127.0.0.1", "localhost")  # hosts that may be reached without TLS
TIMEOUT_S = 300.0
LATEST = 1e12  # seconds since 1970 that a stored time may have


@dataclass
class Upstream:
    """An OpenAI-compatible server."""

    name: str
    base_url: str  # without a trailing slash
    key: str = field(default="", repr=False)
    timeout: float = TIMEOUT_S  # seconds without an answer
    models: list[str] = field(default_factory=list)
    given: bool = False  # the user named the models; the server is not queried
    asked: float = 0.0  # when the list of models was requested, seconds since 1970
    error: str | None = None  # why that failed

    def as_stored(self) -> dict[str, Any]:
        """The constructor's arguments, to be stored."""
        return dict(self.__dict__)

    def about(self) -> dict[str, Any]:
        """The fields that may be shown, with only the last characters of the key."""
        return {
            "name": self.name,
            "base_url": self.base_url,
            "key": masked(self.key),
            "timeout": self.timeout,
            "models": [f"{self.name}/{model}" for model in self.models],
            "asked": self.asked,
            "error": self.error,
        }

    def listing(self) -> list[dict[str, Any]]:
        """OpenAI's model objects."""
        head = {"object": "model", "created": 0, "owned_by": self.name, "loaded": False, "default": False}
        return [{"id": f"{self.name}/{model}", **head, "upstream": self.base_url} for model in self.models]

    def marked(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Prefix the model's name in an answer or chunk with this upstream's."""
        for part in (answer, answer.get("response")):
            if isinstance(part, dict) and isinstance(part.get("model"), str):
                part["model"] = f"{self.name}/{part['model']}"
        return answer


def masked(key: str) -> str | None:
    """The last characters of a key; None for no key."""
    if not key:
        return None
    return f"…{key[-4:]}" if len(key) >= 12 else "…"


def checked_name(name: Any) -> str:
    """Check a name for an upstream."""
    if not isinstance(name, str):
        raise WispError("name must be a string.", "invalid_type", param="name")
    if not NAME.fullmatch(name) or name == "wisp":
        what = "It must have 1 to 32 letters, digits, dots, dashes or underscores, and not be wisp"
        raise WispError(f"{name!r} cannot be an upstream's name. {what}.", "invalid_value", param="name")
    return name


def configured(fields: dict[str, Any], before: Upstream | None) -> Upstream:
    """Check {name, baseURL, apiKey, timeout, models} and make an upstream of it.

    Without an apiKey, the key of `before` stays if the server is the same.
    """
    name = checked_name(fields.get("name"))
    base = _address(fields.get("baseURL"))
    key = fields.get("apiKey")
    if key is None:
        key = before.key if before and _server(before.base_url) == _server(base) else ""
    if not isinstance(key, str):
        raise WispError("apiKey must be a string.", "invalid_type", param="apiKey")
    key = key.strip()
    if not all(" " < char <= "~" for char in key):
        raise WispError(
            "apiKey has characters that are not allowed in an HTTP header.", "invalid_value", param="apiKey"
        )
    timeout = fields.get("timeout")
    if timeout is None:
        timeout = TIMEOUT_S
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise WispError("timeout must be a number of seconds.", "invalid_type", param="timeout")
    if not 0 < timeout <= 86_400:
        raise WispError("timeout must be over 0 and at most 86400 seconds.", "invalid_value", param="timeout")
    models = fields.get("models")
    if models is not None and not (isinstance(models, list) and all(isinstance(m, str) and m for m in models)):
        raise WispError("models must be a list of model ids.", "invalid_type", param="models")
    return Upstream(name, base, key, float(timeout), models or [], bool(models))


def restored(fields: Any) -> Upstream | None:
    """The upstream of a stored entry; None if the entry is damaged or what `configured` would refuse."""
    if not isinstance(fields, dict):
        return None
    names = {"name": "name", "baseURL": "base_url", "apiKey": "key", "timeout": "timeout", "models": "models"}
    try:
        upstream = configured({name: fields.get(stored) for name, stored in names.items()}, None)
    except WispError:
        return None
    asked, error = fields.get("asked"), fields.get("error")
    if isinstance(asked, int | float) and 0 <= asked < LATEST:
        upstream.asked = float(asked)
    upstream.error = error if isinstance(error, str) else None
    upstream.given = fields.get("given") is True
    return upstream


def _address(url: Any) -> str:
    if not isinstance(url, str):
        raise WispError("baseURL must be a string.", "invalid_type", param="baseURL")
    url = url.strip()
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or re.search(r"\s", url):
        what = "It must be like https://example.org/v1"
        raise WispError(f"{url!r} is not the address of a server. {what}.", "invalid_value", param="baseURL")
    if parts.username or parts.password or parts.query or parts.fragment:
        what = "baseURL must have no user, query or fragment; put the key into apiKey."
        raise WispError(what, "invalid_value", param="baseURL")
    if parts.scheme == "http" and host not in LOOPBACK:
        what = (
            f"http:// is only for servers of this machine ({' and '.join(LOOPBACK)}): requests to {host} would travel "
            "unencrypted. Set up https on that server, or forward its port: "
            f"ssh -L {parts.port or 80}:127.0.0.1:{parts.port or 80} {host}"
        )
        raise WispError(what, "invalid_value", param="baseURL")
    return url.rstrip("/")


def _server(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()
