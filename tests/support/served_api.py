"""The server of `build.py serve --api`, for as long as a test needs it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import HANG_S
from tools.api import ApiServer
from tools.mcp_servers import Target


@contextmanager
def served_api(
    dist: Path, mounts: Mapping[str, Path] | None = None, relayed: Mapping[str, Target] | None = None
) -> Iterator[ApiServer]:
    """Serve dist/ and `mounts`. `relayed`: MCP servers by name, which pages reach through it."""
    running = ApiServer(dist, 0, mounts=dict(mounts or {}))
    running.silent_s = HANG_S  # a page of a busy machine may say nothing for long
    running.relay.servers = dict(relayed or {})
    running.start()
    try:
        yield running
    finally:
        running.shutdown()
        running.server_close()
