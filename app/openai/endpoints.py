"""The table of HTTP endpoints below /v1, which the SDK, `fetch`, the worker's handlers and upstreams share.

endpoints.json has one row per endpoint; JavaScript imports the same file. A row's fields are those of Endpoint.
"""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Endpoint:
    """One endpoint."""

    path: str  # below /v1/
    sdk: str  # the method of the SDK, such as "chat.completions.create"
    method: str = "POST"
    upstream: bool = False  # forward a request whose model names an upstream to the same path there
    namedEvents: bool = False

    @property
    def kind(self) -> str:
        """The kind of the message that the worker gets: the SDK's method without its verb."""
        return self.sdk.removesuffix(".create").removesuffix(".list")


ENDPOINTS = {
    endpoint.kind: endpoint
    for endpoint in (Endpoint(**row) for row in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")))
}
