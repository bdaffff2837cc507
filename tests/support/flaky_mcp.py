"""A server of the Model Context Protocol with sessions (revision 2025-06-18) that fails as a test says."""

import json
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

NO_METHOD = -32601
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Expose-Headers": "Mcp-Session-Id, WWW-Authenticate",
}


class Handler(BaseHTTPRequestHandler):
    """Handles a request of a page."""

    protocol_version = "HTTP/1.1"
    server: "FlakyMcp"

    def do_OPTIONS(self) -> None:
        """Answer a CORS preflight."""
        self._send(HTTPStatus.NO_CONTENT)

    def do_GET(self) -> None:
        """Refuse a stream of the server's own messages; describe no authorization server."""
        self._send(HTTPStatus.METHOD_NOT_ALLOWED if self.path == "/mcp" else HTTPStatus.NOT_FOUND)

    def do_DELETE(self) -> None:
        """End a session."""
        self._send(HTTPStatus.NO_CONTENT)

    def do_POST(self) -> None:
        """Answer a message."""
        if self.path != "/mcp":  # no authorization server
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._send(HTTPStatus.NOT_FOUND)
            return
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.fault == "gone":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        method, session = message.get("method"), self.headers.get("Mcp-Session-Id")
        self.server.asked.append(method)
        if method in ("initialize", "server/discover") or "id" not in message:
            self._begin(message)
        elif session not in self.server.sessions:  # as the specification has it
            self._send(HTTPStatus.NOT_FOUND, {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "x"}})
        elif method == "tools/list":
            self._result(message, {"tools": [self._tool(name) for name in self.server.tools]})
        elif method == "tools/call":
            self._call(message)
        else:
            self._error(message, NO_METHOD, "Method not found")

    def _begin(self, message: dict[str, Any]) -> None:
        if message["method"] == "initialize":
            session = uuid4().hex
            self.server.sessions.add(session)
            about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}},
                     "serverInfo": {"name": "flaky", "version": "1"}}  # fmt: skip
            self._result(message, about, {"Mcp-Session-Id": session})
        elif message["method"] == "server/discover":
            self._error(message, NO_METHOD, "Method not found")
        else:
            self._send(HTTPStatus.ACCEPTED)

    def _call(self, message: dict[str, Any]) -> None:
        name, fault = message["params"]["name"], self.server.fault
        if fault == "slow":
            self.server.rest.wait()
        if fault == "dies":
            self.send_response(HTTPStatus.OK)
            for header, value in {**CORS, "Content-Type": "application/json", "Content-Length": "100"}.items():
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(b'{"jsonrpc": ')
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif fault == "nonsense":
            self._send(HTTPStatus.OK, "<html>Welcome</html>", kind="text/html")
        elif fault == "no JSON":
            self._send(HTTPStatus.OK, "}{")
        elif fault == "no result":
            self._result(message, {"content": 7})
        elif fault == "breaks":
            self._send(HTTPStatus.BAD_GATEWAY, "Bad gateway", kind="text/html")
        elif fault == "sign in":
            self._send(HTTPStatus.UNAUTHORIZED, {"error": "invalid_token"})
        elif name not in self.server.tools:
            self._error(message, -32602, f"Unknown tool: {name}")
        else:
            self._result(message, {"content": [{"type": "text", "text": f"{name} is done"}]})

    def _tool(self, name: str) -> dict[str, Any]:
        return {"name": name, "description": "A test.", "inputSchema": {"type": "object", "properties": {}}}

    def _result(self, message: dict[str, Any], result: Any, headers: dict[str, str] | None = None) -> None:
        self._send(HTTPStatus.OK, {"jsonrpc": "2.0", "id": message["id"], "result": result}, headers)

    def _error(self, message: dict[str, Any], code: int, text: str) -> None:
        self._send(HTTPStatus.OK, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}})

    def _send(
        self, status: int, body: Any = None, headers: dict[str, str] | None = None, kind: str = "application/json"
    ) -> None:
        data = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {**CORS, **(headers or {}), "Content-Type": kind, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class FlakyMcp(ThreadingHTTPServer):
    """The server. `tools`: their names; `fault`: how calls fail; `asked`: the methods so far."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sessions: set[str] = set()
        self.tools = ["first", "old"]
        self.fault = ""
        self.rest = threading.Event()  # a slow call ends when it is set
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def restart(self) -> None:
        """Forget all sessions, as a server does that was started again."""
        self.sessions.clear()

    def handle_error(self, *_: object) -> None:
        """Log nothing."""
