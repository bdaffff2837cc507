"""A package index with PyPI's simple API, in HTML, on a server of its own."""

import hashlib
import http.server
import io
import threading
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def package_index(
    wheels: Mapping[str, bytes | list[bytes]],
    *,
    torn: Collection[str] = (),
    compiled: Collection[str] = (),
    malformed: Collection[str] = (),
) -> Iterator[tuple[str, list[str]]]:
    """Serve pure wheels by the names of their packages: the index's address, and the paths that were asked for.

    `wheels`: of one version, or of several.

    `torn`: whose hashes are wrong; `compiled`: packages that have wheels for Linux only; `malformed`: whose links are
    no addresses.
    """
    pages: dict[str, bytes] = {}
    for name, versions in wheels.items():
        pages[f"/simple/{name}/"] = b""
        for data in versions if isinstance(versions, list) else [versions]:
            file = f"{name.replace('-', '_')}-{_version(data)}-py3-none-any.whl"
            digest = "0" * 64 if name in torn else hashlib.sha256(data).hexdigest()
            pages[f"/files/{file}"] = data
            pages[f"/simple/{name}/"] += f'<a href="/files/{file}#sha256={digest}">{file}</a>'.encode()
    for name in compiled:
        file = f"{name}-1.0-cp314-cp314-manylinux_2_17_x86_64.whl"
        pages[f"/simple/{name}/"] = f'<a href="/files/{file}#sha256={"0" * 64}">{file}</a>'.encode()
    for name in malformed:
        file = f"{name}-1.0-py3-none-any.whl"
        pages[f"/simple/{name}/"] = f'<a href="https://%/{file}">{file}</a>'.encode()
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            data = pages.get(self.path)
            self.send_response(404 if data is None else 200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple", asked
    finally:
        server.shutdown()
        server.server_close()


def _version(wheel: bytes) -> str:
    """The version in a wheel's metadata."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith("METADATA"))
        return metadata.split("/")[0].removesuffix(".dist-info").partition("-")[2]
