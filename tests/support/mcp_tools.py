"""A server of the Model Context Protocol with the official Python package: python -m tests.support.mcp_tools [--http]

Without arguments it speaks stdio. With --http it serves streamable HTTP on a free port of 127.0.0.1, and prints the
address: for pages of other origins with --cors, without the revision 2026-07-28 with --old, and only for the token
"secret" with --token, or for users who have signed in with --oauth.
"""

import argparse
import asyncio
import socket
from typing import Annotated, Any, Literal

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import ImageContent, TextContent
from pydantic import BaseModel, Field
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.mcp_authorization import sign_in_options

NEWEST = "2026-07-28"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Size(BaseModel):
    """What a person is asked for."""

    centimetres: int


def ask_size() -> Elicit[Size]:
    """Ask how large it is."""
    return Elicit("How large is it?", Size)


def made(**options: Any) -> MCPServer[Any]:
    """The server, with a tool of each kind."""
    about: dict[str, Any] = {"version": "1.2", "instructions": "Prices are in euros."}
    server: MCPServer[Any] = MCPServer("Shop", **about, log_level="ERROR", **options)

    @server.tool(description="The price of an article")
    def price(article: Literal["apples", "pears"], count: Annotated[int, Field(ge=1, le=9)] = 1) -> str:
        return f"{count} {article}: {3 * count} euros"

    @server.tool(description="The weather of a city")
    def get_weather(city: Annotated[str, Field(max_length=30)]) -> str:
        return f"It is sunny in {city}."

    @server.tool()
    def stock() -> dict[str, int]:
        return {"apples": 4}

    @server.tool()
    def fail() -> str:
        raise ToolError("the till is closed")

    @server.tool()
    def picture() -> list[TextContent | ImageContent]:
        image = ImageContent(type="image", data=PIXEL, mime_type="image/png")
        return [TextContent(type="text", text="An apple"), image]

    @server.tool()
    def look_behind(code: Annotated[str, Field(json_schema_extra={"pattern": "(?<=a)b"})]) -> str:
        return code

    @server.tool()
    def measure(size: Annotated[Size, Resolve(ask_size)]) -> str:
        return f"It is {size.centimetres} cm large."

    @server.tool()
    async def count(until: int, ctx: Context[Any, Any]) -> str:
        for i in range(until):
            await ctx.report_progress(i + 1, until, f"at {i + 1}")
            await anyio.sleep(0.01)
        return "counted"

    @server.tool()
    async def wait(ctx: Context[Any, Any]) -> str:
        await ctx.report_progress(0)
        try:
            await anyio.sleep(600)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise
        return "waited"

    cancelled: list[int] = []

    @server.tool()
    def cancellations() -> int:
        return len(cancelled)

    @server.resource("shop://hours", mime_type="text/plain")
    def hours() -> str:
        return "9 to 5"

    @server.resource("shop://article/{name}")
    def article(name: str) -> str:
        return f"About {name}"

    @server.resource("shop://shelves/{+path}{?sort,limit}")
    def shelf(path: str, sort: str = "name", limit: str = "all") -> str:
        return f"{path}, {limit} by {sort}"

    @server.prompt()
    def offer(article: str) -> str:
        return f"Write an offer for {article}."

    return server


class Gate:
    """Refuses requests without the token, and those of a revision that the server is not to know."""

    def __init__(self, app: ASGIApp, old: bool, token: bool) -> None:
        self._app, self._old, self._token = app, old, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = dict(scope.get("headers", ()))
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._token and headers.get(b"authorization") != b"Bearer secret":
            await JSONResponse({"error": "invalid_token"}, 401)(scope, receive, send)
        elif self._old and headers.get(b"mcp-protocol-version", b"").decode() == NEWEST:
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Unsupported protocol version"}}
            await JSONResponse(error, 400)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def serve(options: argparse.Namespace) -> None:
    """Serve streamable HTTP until the process ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = made(**(sign_in_options(origin) if options.oauth else {})).streamable_http_app()
    app.add_middleware(Gate, old=options.old, token=options.token)
    if options.cors:
        any_of = {"allow_origins": ["*"], "allow_methods": ["*"], "allow_headers": ["*"]}
        app.add_middleware(CORSMiddleware, **any_of, expose_headers=["Mcp-Session-Id"])  # type: ignore[arg-type]
    print(f"{origin}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--http", "--cors", "--old", "--token", "--oauth"):
        parser.add_argument(flag, action="store_true")
    given = parser.parse_args()
    if given.http:
        serve(given)
    else:
        made().run()
