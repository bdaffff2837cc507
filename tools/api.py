"""Serve the page and the API of app/openai/endpoints.json, which a tab's engine answers: `build.py serve --api`.

Only programs of this machine that send the printed key get answers. The server rejects a request, checked in this
order, for another Host, another Origin, a missing key, a body that is too large or too slow, and if no tab lends an
engine.
"""

import hmac
import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from secrets import token_urlsafe
from urllib.parse import parse_qs, urlsplit

from app.openai.endpoints import ENDPOINTS
from tools.connections import WRITE_S, BadRequest, is_closed, number
from tools.mcp_relay import RELAY_KEY, RELAYED, HttpRelay, Relay, received, relay_stdio
from tools.mcp_servers import Address
from tools.serve import Handler, Server
from tools.tab import REPLACED, SILENT_S, ClientDisconnectedError, Exchange, Tab
from tools.web_socket import WebSocket

BODY_LIMIT = 32 << 20  # bytes
PIECE = 1 << 16  # bytes; without it, the length that a server states is what is read, and it may be any number
MAX_TICKETS = 32
TAB, BACKGROUND = "tab", "background"  # a tab of the user's browser; a headless one
API_PATHS = {path: endpoint for endpoint in ENDPOINTS.values() for path in (endpoint.path, *endpoint.also)}
OLLAMA = "/api/"  # below it are Ollama's endpoints
LM_STUDIO = ("/api/v0/", "/api/v1/")  # and LM Studio's, with OpenAI's errors
ANTHROPIC_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
}  # of errors that are not invalid_request_error
TAB_S = 10.0  # how long a request waits for a tab to connect


class ApiHandler(Handler):
    """Serve files as Handler does, and the API."""

    server: "ApiServer"

    def route(self) -> None:
        """Answer a file, a request to the API, or the WebSocket of a tab."""
        path = self.decoded_path()
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in self.server.hosts:
            self._forbid("forbidden_host", f"This server does not answer for the host {host!r}.")
        elif path == "/v1/bridge":
            self._bridge(origin)
        elif path.startswith(RELAYED):
            self._relayed(origin, path.removeprefix(RELAYED))
        elif path.startswith(("/v1/", OLLAMA)) or path.strip("/") in API_PATHS:
            self._api(origin)
        elif self.command in ("GET", "HEAD"):
            self.connection.settimeout(WRITE_S)
            self.ignore_body()
            self._answer(body=self.command == "GET")
        else:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "not_found", f"{self.command} is not allowed for {path}.")

    def reject(self, status: HTTPStatus, code: str, message: str) -> None:
        """Answer with an error in OpenAI's form, then close the connection."""
        self._refuse(status, code, message)

    def _bridge(self, origin: str | None) -> None:
        """Accept the WebSocket of a tab that has a ticket and is a page of this server."""
        (ticket,) = parse_qs(urlsplit(self.path).query).get("ticket", [""])[:1]
        name = self.server.tickets.redeem(ticket) if origin in self.server.origins else None
        if name is None:
            self._forbid("forbidden_origin", "Only a page that this server has opened may lend its engine.")
            return
        self.close_connection = True
        socket, relay = WebSocket(self.connection), self.server.relay
        if socket.accept(self.requestline, self.headers):
            tab = Tab(socket, name, self.server.silent_s)
            tab.send({"kind": "ticket", "ticket": self.server.tickets.issue(name)})  # to connect again
            if relay.servers:
                tab.send({"kind": "relay", "servers": relay.described(self.headers["Host"])})
            self.server.take(tab)
            try:
                tab.run()
            finally:
                self.server.leave(tab)

    def _relayed(self, origin: str | None, name: str) -> None:
        """Relay a request of the page to one of the MCP servers that the command line names."""
        relay = self.server.relay
        key = self.headers.get(RELAY_KEY) or parse_qs(urlsplit(self.path).query).get("key", [""])[0]
        target = relay.servers.get(name)
        if self._is_foreign(origin) or not _same(key, relay.key):
            self._forbid("forbidden_origin", "Only a page that this server has opened may use its MCP servers.")
        elif target is None:
            self._refuse(HTTPStatus.NOT_FOUND, "not_found", f"The command line names no MCP server {name}.")
        elif isinstance(target, Address):
            self._relay_http(target)
        elif origin is None:  # only browsers open WebSockets, and they say where they come from
            self._forbid("forbidden_origin", "Only a page may connect to this MCP server.")
        else:
            self.close_connection = True
            socket = WebSocket(self.connection)
            if socket.accept(self.requestline, self.headers):
                relay_stdio(socket, target)

    def _relay_http(self, address: Address) -> None:
        """Repeat the page's request to a server, and pass its answer on."""
        body = self._body()
        if body is None:
            return
        try:
            relay = HttpRelay(address)
        except (HTTPException, ValueError) as error:  # of an address that is none
            self._refuse(HTTPStatus.BAD_GATEWAY, "mcp_unreachable", f"{address.url} is no address: {error}")
            return
        try:
            answer = relay.ask(self, body)
        except (OSError, HTTPException) as error:
            what = f"The MCP server at {relay.host} cannot be reached: {error}"
            self._refuse(HTTPStatus.BAD_GATEWAY, "mcp_unreachable", what)
            relay.close()
            return
        try:
            self.close_connection = True
            headers = {"content-type": "application/json", **received(answer), "Connection": "close"}
            self._begin(answer.status, headers.pop("content-type"), headers)
            while piece := answer.read1(PIECE):
                self.wfile.write(piece)
        except (OSError, HTTPException):
            pass  # either side has ended
        finally:
            relay.close()

    def _is_foreign(self, origin: str | None) -> bool:
        """Whether a page of another origin has sent the request."""
        foreign = self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        return foreign or (origin is not None and origin not in self.server.origins)

    def _api(self, origin: str | None) -> None:
        if self._is_foreign(origin):
            self._forbid("forbidden_origin", f"Pages of {origin or 'another origin'} may not use this server.")
            return
        scheme, _, key = self.headers.get("Authorization", "").partition(" ")
        key = key if scheme.lower() == "bearer" else self.headers.get("X-Api-Key", "")  # Anthropic's clients
        if not _same(key.strip(), self.server.key):
            what = "The API key is wrong or missing: send the one that build.py serve --api has printed."
            self._refuse(HTTPStatus.UNAUTHORIZED, "invalid_api_key", what)
            return
        body = self._body()
        if body is None:
            return
        tab = self.server.wait_for_tab()
        if tab is None:
            what = "No tab has an engine: open the address that build.py serve --api has printed, and try again."
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "no_engine", what, keep_alive=True)
            return
        exchange = tab.ask(self.command, self.path, body or None, self._form())
        try:
            self._relay(exchange)
        except (ClientDisconnectedError, OSError):
            exchange.abort()
            self.close_connection = True
        finally:
            exchange.close()

    def _form(self) -> str | None:
        """The Content-Type of a multipart form."""
        kind: str = self.headers.get("Content-Type", "")
        sane = kind.isascii() and kind.isprintable()
        return kind if sane and kind.lower().startswith("multipart/form-data") else None

    def _body(self) -> bytes | None:
        """The request's body; None, and an error sent, where it has no length or is too long."""
        if "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "length_required", "Send the body with a Content-Length.")
            return None
        length = number(self.headers.get("Content-Length", "0"))
        if length > self.server.body_limit:
            what = f"The body has {length} bytes; {self.server.body_limit} are allowed."
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request_too_large", what)
            return None
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionAbortedError
        self.connection.settimeout(WRITE_S)
        return body

    def _relay(self, exchange: Exchange) -> None:
        """Relay the answer. Pull a piece only when the client has read the one before."""
        head = exchange.next(self._is_disconnected)
        if head["kind"] != "head":
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "engine_gone", TAB_CLOSED, keep_alive=True)
            return
        kind = next((value for name, value in head["headers"] if name == "content-type"), "application/json")
        events = kind.startswith(("text/event-stream", "application/x-ndjson")) and self.command != "HEAD"
        chunked = events and self.request_version != "HTTP/1.0"
        if events:
            self.close_connection |= not chunked
            self._begin(head["status"], kind, {"Transfer-Encoding": "chunked"} if chunked else {})
        text = ""
        while True:
            exchange.pull()
            part = exchange.next(self._is_disconnected)
            if part["kind"] == "piece" and not events:
                text += part["text"]
                continue
            if part["kind"] == "lost" and not events:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "engine_gone", TAB_CLOSED, keep_alive=True)
                return
            if part["kind"] == "end" and not events:
                passed = {name.title(): value for name, value in head["headers"] if name == "retry-after"}
                self._send(head["status"], kind, text, passed)
                return
            piece = part["text"] if part["kind"] == "piece" else ""
            if part["kind"] == "lost":
                error = self._error(HTTPStatus.SERVICE_UNAVAILABLE, "engine_gone", TAB_CLOSED)
                name = "event: error\n" if self._errors() == "anthropic" else ""
                piece = f"{name}data: {error}\n\n" if kind.startswith("text/event-stream") else f"{error}\n"
            if piece:
                data = piece.encode("utf-8", "replace")
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
            if part["kind"] != "piece":
                break
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _is_disconnected(self) -> bool:
        """Whether the client has closed its connection."""
        return is_closed(self.connection)

    def _forbid(self, code: str, message: str) -> None:
        self._refuse(HTTPStatus.FORBIDDEN, code, message)

    def _refuse(self, status: HTTPStatus, code: str, message: str, *, keep_alive: bool = False) -> None:
        """Answer with an error, then close the connection, unless the whole request has been read (`keep_alive`)."""
        headers = {}
        if status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        if not keep_alive:
            headers["Connection"] = "close"
        try:
            self.connection.settimeout(WRITE_S)
            self._send(status, "application/json", self._error(status, code, message), headers)
            if not keep_alive:
                self.close_connection = True
                self.linger()
        except OSError:
            self.close_connection = True

    def _errors(self) -> str:
        """Whose form errors have (Endpoint.errors)."""
        try:
            path = self.decoded_path()
        except BadRequest:
            return "openai"
        if (endpoint := API_PATHS.get(path.strip("/"))) is not None:
            return endpoint.errors
        return "ollama" if path.startswith(OLLAMA) and not path.startswith(LM_STUDIO) else "openai"

    def _error(self, status: HTTPStatus, code: str, message: str) -> str:
        """Return an error in the form of the endpoint's API."""
        form, inside = self._errors(), status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if form == "ollama":
            return json.dumps({"error": message})
        if form == "llama":
            refused = "authentication_error" if status == HTTPStatus.UNAUTHORIZED else "invalid_request_error"
            kind = "unavailable_error" if inside else refused
            return json.dumps({"error": {"code": status, "message": message, "type": kind}})
        kind = "server_error" if inside else "invalid_request_error"
        error = {"message": message, "type": kind, "param": None, "code": code}
        if form == "anthropic":
            kind = "api_error" if inside else ANTHROPIC_TYPES.get(status, kind)
            return json.dumps({"type": "error", "error": error | {"type": kind}})
        return json.dumps({"error": error})

    def _send(self, status: int, kind: str, text: str, headers: dict[str, str] | None = None) -> None:
        """Send a whole answer: the answer to HEAD has no body."""
        body = text.encode("utf-8", "replace")
        self._begin(status, kind, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in {**API_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()


class Tickets:
    """Tickets that let a page lend its engine. Each is valid once; a page that has used one gets another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}  # ticket -> the name of the page that it is for
        self.offered = self.issue(TAB)  # to the user

    def issue(self, name: str) -> str:
        """Make a ticket. The oldest is forgotten when there are too many."""
        with self._lock:
            ticket = token_urlsafe(24)
            self._names[ticket] = name
            if len(self._names) > MAX_TICKETS:
                del self._names[next(old for old in self._names if old != self.offered)]
            return ticket

    def redeem(self, ticket: str) -> str | None:
        """The name of the page that a ticket is for; None if it is unknown or was used."""
        with self._lock:
            found = next((known for known in self._names if _same(known, ticket)), None)
            name = self._names.pop(found) if found else None
        if found == self.offered:
            self.offered = self.issue(TAB)
        return name


API_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
TAB_CLOSED = "The tab whose engine was answering has closed. Open it again and repeat the request."


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


class ApiServer(Server):
    """The page's server with the API. The tab that connected last answers."""

    handler = ApiHandler
    body_limit = BODY_LIMIT
    tab_s = TAB_S
    silent_s = SILENT_S

    def __init__(
        self, root: Path, port: int, *, headers: dict[str, str] | None = None, mounts: dict[str, Path] | None = None
    ) -> None:
        super().__init__(root, port, headers=headers, mounts=mounts)
        self.key = f"wisp-{token_urlsafe(24)}"
        self.tickets = Tickets()
        self.relay = Relay({})
        self.say: Callable[[str], None] = lambda _: None  # tells the user
        self.hosts = {f"{name}:{self.server_address[1]}" for name in ("127.0.0.1", "localhost")}
        self.origins = {f"http://{host}" for host in self.hosts}
        self.tab: Tab | None = None
        self.changed = threading.Condition()

    @property
    def lending_url(self) -> str:
        """The address whose page lends its engine."""
        return f"{self.url}#bridge={self.tickets.offered}"

    def take(self, tab: Tab) -> None:
        """Let this tab answer from now on, and close the one before."""
        with self.changed:
            before, self.tab = self.tab, tab
            self.changed.notify_all()
        if tab.name == TAB:
            self.say(f"{'Another' if before and before.name == TAB else 'A'} tab of your browser answers now.")
            self.say(f"To let another tab of your browser answer, open {self.lending_url}")
        if before:
            before.close(REPLACED)

    def leave(self, tab: Tab) -> None:
        """Forget the tab, whose WebSocket has closed."""
        with self.changed:
            if self.tab is tab:
                self.tab = None

    def wait_for_tab(self, timeout_s: float | None = None) -> Tab | None:
        """Return the tab, or None if none connects within the timeout."""
        with self.changed:
            self.changed.wait_for(lambda: self.tab is not None, self.tab_s if timeout_s is None else timeout_s)
            return self.tab
