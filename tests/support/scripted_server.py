"""An OpenAI-compatible server whose model follows a script: texts, and calls of tools."""

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Said = str | list[tuple[str, dict[str, Any]]]  # an answer: a text, or calls: (name, arguments)


class Handler(BaseHTTPRequestHandler):
    """Handles requests of a page."""

    protocol_version = "HTTP/1.1"
    server: "ScriptedServer"

    def do_OPTIONS(self) -> None:
        """Answer a CORS preflight."""
        self._send(204, "text/plain", b"")

    def do_GET(self) -> None:
        """List the model."""
        self._send(200, "application/json", json.dumps({"object": "list", "data": [{"id": "scripted"}]}).encode())

    def do_POST(self) -> None:
        """Answer with the script's next entry; the last one repeats."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        if self.server.wait:
            error = {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}
            self._send(429, "application/json", json.dumps(error).encode())
            return
        script = self.server.script
        said = script.pop(0) if len(script) > 1 else script[0]
        if asked.get("tool_choice") == "none" and not isinstance(said, str):
            said = "No more calls."
        chunks = [json.dumps(chunk) for chunk in self._chunks(said)]
        body = "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"])
        self._send(200, "text/event-stream", body.encode(), self.server.rest)

    def _chunks(self, said: Said) -> list[dict[str, Any]]:
        def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

        usage = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}
        if isinstance(said, str):
            return [chunk({"role": "assistant", "content": said}), chunk({}, "stop"), usage]
        number = len(self.server.asked)
        calls = [
            {"index": i, "id": f"call_{number}_{i}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(arguments)}}
            for i, (name, arguments) in enumerate(said)
        ]  # fmt: skip
        return [chunk({"role": "assistant", "tool_calls": calls}), chunk({}, "tool_calls"), usage]

    def _send(self, status: int, kind: str, body: bytes, rest: threading.Event | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Access-Control-Allow-Headers", "authorization, content-type")
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            self.send_header("Access-Control-Expose-Headers", "Retry-After")
            self.send_header("Retry-After", self.server.wait)
        self.end_headers()
        at = body.index(b"\n\n") + 2 if rest else 0  # after the first chunk
        self.wfile.write(body[:at])
        if rest:
            rest.wait()
        self.wfile.write(body[at:])

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class ScriptedServer(ThreadingHTTPServer):
    """The server. `script` has the coming answers, `asked` the requests so far; `rest` holds back their ends.

    With `wait`, every answer is 429 with this Retry-After.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Said] = ["Hello."]
        self.asked: list[dict[str, Any]] = []
        self.rest: threading.Event | None = None
        self.wait = ""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Base URL for an upstream."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"
