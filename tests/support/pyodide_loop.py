"""The worker's event loop, beside Pyodide's own in Node."""

import asyncio
import sys

import js
from pyodide.code import run_js

from app.event_loop import EventLoop

# The tests' context of Node has no MessageChannel.
CHANNEL = """(class {
  port1 = { onmessage() {} };
  port2 = { postMessage: () => setTimeout(() => this.port1.onmessage(null)) };
})"""


def new_loop() -> EventLoop:
    """Make a loop. Pyodide's own stays the running one."""
    own, hooks = asyncio.get_running_loop(), sys.get_asyncgen_hooks()
    js.globalThis.MessageChannel = run_js(CHANNEL)
    try:
        return EventLoop()
    finally:
        del js.globalThis.MessageChannel
        sys.set_asyncgen_hooks(*hooks)
        asyncio._set_running_loop(own)
