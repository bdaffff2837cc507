"""What code in a sandbox may try to reach: as JavaScript, and as Python."""

import json

from tests.support.listener import Listener
from tools.serve import Server

# Each attempt is an expression. It has reached something if it resolves, or if the listener notices it.
NOTICED = {"fetch": "fetch", "XMLHttpRequest": "xhr", "synchronous XMLHttpRequest": "sync", "import": "import",
           "importScripts": "scripts", "form": "form?", "WebSocket": "socket", "EventSource": "events",
           "WebSocketStream": "stream", "font": "font"}  # fmt: skip
IN_WORKERS = {
    "fetch": "fetch(HTTP + 'fetch', { mode: 'no-cors' })",
    "own server": "fetch(OWN + 'index.html', { mode: 'no-cors' })",
    "XMLHttpRequest": "new Promise((ok, no) => { const x = new XMLHttpRequest(); x.open('GET', HTTP + 'xhr'); "
    "x.onload = ok; x.onerror = no; x.send() })",
    "synchronous XMLHttpRequest": "(() => { const x = new XMLHttpRequest(); x.open('GET', HTTP + 'sync', false); "
    "x.send() })()",
    "WebSocket": "new Promise((ok, no) => { const s = new WebSocket(HTTP.replace('http', 'ws') + 'socket'); "
    "s.onopen = ok; s.onerror = no })",
    "EventSource": "new Promise((ok, no) => { const s = new EventSource(HTTP + 'events'); s.onopen = ok; "
    "s.onerror = no })",
    "WebSocketStream": "new WebSocketStream(HTTP.replace('http', 'ws') + 'stream').opened",
    "font": "new FontFace('x', `url(${HTTP}font)`).load()",
    "file system": "new Promise((ok, no) => webkitRequestFileSystem(0, 1, ok, no))",
    "WebTransport": "new WebTransport(HTTP.replace('http', 'https')).ready",
    "import": "import(HTTP + 'import')",
    "import of data": "import('data:text/javascript,export default 1')",
    "importScripts": "importScripts(HTTP + 'scripts')",
    "worker": "new Promise((ok, no) => { const w = new Worker(URL.createObjectURL(new Blob(['postMessage(1)']))); "
    "w.onmessage = ok; w.onerror = no })",
    "postMessage": "postMessage(1) ?? 1",
    "BroadcastChannel": "new BroadcastChannel('x')",
    "eval": "(0, eval)('1')",
    "Function": "new Function('return 1')()",
    "IndexedDB": "new Promise((ok, no) => { const r = indexedDB.open('x'); r.onsuccess = ok; r.onerror = no })",
    "caches": "caches.keys()",
    "OPFS": "navigator.storage.getDirectory()",
    "WebAssembly": "WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))",
}
IN_PAGES = {
    "document": "document.title.length",
    "localStorage": "localStorage.length",
    "cookie": "document.cookie.length",
    "service worker": "navigator.serviceWorker.getRegistrations()",
    "parent's document": "parent.document.title",
    "top's address": "top.location.href",
    "opener": "opener ?? (window.opener === null ? 1 : no)",
    "form": "(() => { const f = document.createElement('form'); f.action = HTTP + 'form'; f.target = 'x'; "
    "document.body.append(Object.assign(document.createElement('iframe'), { name: 'x' }), f); f.submit() })()",
    "WebRTC": "new RTCPeerConnection({ iceServers: [{ urls: `stun:127.0.0.1:${PORT}` }] })",
}
ATTEMPTS = """
const HTTP = "http://127.0.0.1:%(port)d/", OWN = "%(own)s", PORT = %(port)d;
const attempts = { %(attempts)s };
const late = () => new Promise((_, no) => setTimeout(no, %(ms)d));
const reached = [];
await Promise.all(Object.entries(attempts).map(async ([name, run]) => {
  try { await Promise.race([run(), late()]); reached.push(name); } catch {}
}));
"""


def attempts(which: dict[str, str], listener: Listener, server: Server, seconds: int = 2) -> str:
    written = ", ".join(f"{json.dumps(name)}: async () => await ({code})" for name, code in which.items())
    return ATTEMPTS % {"port": listener.port, "own": server.url, "attempts": written, "ms": 1000 * seconds}


PYTHON_ATTEMPTS = """
import asyncio
HTTP, PORT = "http://127.0.0.1:%(port)d/", %(port)d
async def attempt(run):
    try:
        result = run()
        if hasattr(result, "__await__"):
            result = await asyncio.wait_for(result, 2)
        return result
    except BaseException as error:
        return error
def urllib():
    import urllib.request
    return urllib.request.urlopen(HTTP + "urllib", timeout=2).status
def sockets():
    import socket
    return socket.create_connection(("127.0.0.1", PORT), timeout=2).send(b"GET /sockets HTTP/1.1\\r\\n\\r\\n")
def through_js(name):
    import js
    return getattr(js, name)
def pyfetch():
    from pyodide.http import pyfetch
    return pyfetch(HTTP + "pyfetch")
def open_url():
    from pyodide.http import open_url
    return open_url(HTTP + "open_url").read()
def run_js(code):
    from pyodide.code import run_js
    return run_js(code)
def constructor():
    import js
    return js.constructor.constructor("return globalThis")()
def scope():
    import pyodide_js
    return pyodide_js._api.config.jsglobals.fetch
def package():
    import pyodide_js
    return pyodide_js.loadPackage(HTTP + "package-1-py3-none-any.whl", checkIntegrity=False)
def library():
    import ctypes
    return ctypes.CDLL(HTTP + "library.so")
def worker_scope():
    from pyodide.ffi import create_proxy, to_js
    seen = []
    to_js([1]).forEach(create_proxy(lambda this, *_: seen.append(this), capture_this=True))
    return seen[0].fetch
def shell():
    import os, subprocess
    return subprocess.run(["ls"])
tries = {"urllib": urllib, "sockets": sockets, "pyfetch": pyfetch, "open_url": open_url, "scope": scope,
  "run_js": lambda: run_js("fetch('" + HTTP + "run_js')"), "constructor": constructor,
  "library": library, "shell": shell, "worker": worker_scope}
for name in "fetch XMLHttpRequest WebSocket postMessage document parent localStorage indexedDB globalThis self".split():
    tries["js." + name] = lambda name=name: through_js(name)
reached = [name for name, run in tries.items() if not isinstance(await attempt(run), BaseException)]
await attempt(package)
reached
"""
