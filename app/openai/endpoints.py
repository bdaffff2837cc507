"""The table of HTTP endpoints, which the SDK, `fetch`, the worker, upstreams and the terminal's server share.

endpoints.json has one row per endpoint; JavaScript imports the same file. A row's fields are those of Endpoint.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Endpoint:
    """One endpoint."""

    path: str  # below the API's root
    sdk: str  # the method of the SDK, such as "chat.completions.create"
    method: str = "POST"
    also: tuple[str, ...] = ()  # other paths of the same endpoint
    upstream: bool = False  # forward a request whose model names an upstream to the same path there
    stream: str = "done"  # server-sent events that end with [DONE], "named" ones, "bare" ones, or "lines" of JSON
    streams: bool = False  # also a request that does not say so
    errors: str = "openai"  # whose form errors have: "openai", "anthropic", "ollama" or "llama"
    text: bool = False  # the answer is plain text
    whole: bool = False  # it never streams
    truncates: bool = False  # its requests have `truncation`, which the error about a long prompt then advises
    query: tuple[str, ...] = ()  # switches that it reads of the address
    form: Mapping[str, str] | None = None  # multipart forms: field -> "file", "boolean" or "number"; others are texts

    @property
    def kind(self) -> str:
        """The kind of the message that the worker gets: the SDK's method without its verb."""
        return self.sdk.removesuffix(".create").removesuffix(".list")


ENDPOINTS = {
    endpoint.kind: endpoint
    for endpoint in (Endpoint(**row) for row in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")))
}
