"""Finds the wheels of packages in an index. Runs in a sandbox of its own, in which no code of a model runs.

micropip chooses the wheels, with what they need, and checks their hashes. The page fetches for it, and gets the list.
"""

import asyncio
import json
from typing import Any, ClassVar

import micropip
import wisp_page  # of python.js: get(address), packages
from micropip import package_index

from wisp.install_errors import explain_install_error

_found: dict[str, None] = {}  # a package that two others need is found twice
_unreachable: dict[str, Exception] = {}


class _Layer:
    """What micropip has of its surroundings: fetches by way of the page, and nothing that installs."""

    lockfile_info: ClassVar[dict[str, str]] = {}
    lockfile_packages: ClassVar[dict[str, dict[str, Any]]] = {}  # the sandbox's own packages
    lockfile_base_url = None
    loadedPackages = type("Loaded", (), {})

    @staticmethod
    async def fetch_bytes(url: str, _options: Any) -> bytes:
        return bytes((await _fetched(url)).data.to_bytes())

    @staticmethod
    async def fetch_string_and_headers(url: str, _options: Any) -> tuple[str, dict[str, str]]:
        response = await _fetched(url)
        return response.data.to_bytes().decode(), {"content-type": response.type}

    @staticmethod
    async def install(_data: bytes, filename: str, *_more: Any) -> None:
        """Note a wheel whose hash is right."""
        _found[filename] = None

    @staticmethod
    async def loadPackage(_names: Any) -> None:
        """Do nothing: the sandbox's own packages are imported where the code runs."""

    @staticmethod
    def to_js(value: Any, **_options: Any) -> Any:
        return value


async def _fetched(url: str) -> Any:
    response = await wisp_page.get(url)
    if response.why:
        error = OSError(response.why)
        if not response.status:
            _unreachable[url] = error
        raise error
    return response


async def resolve(names: list[str], index: str) -> str:
    """Return JSON: the file names of the wheels that the packages need, or the `problem`."""
    _Layer.lockfile_packages = {one["name"].lower(): one for one in wisp_page.packages.to_py()}
    _found.clear()
    _unreachable.clear()
    package_index.DEFAULT_INDEX_URLS = [index]  # for this list micropip takes what the sandbox has first
    micropip.install.__self__.compat_layer = _Layer
    try:
        await micropip.install(names, index_urls=[index])
    except Exception as error:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # downloads that the next call is not to wait for
            task.cancel()
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error  # micropip names CORS instead
        return json.dumps({"problem": explain_install_error(cause, _unreachable, asked=True)})
    return json.dumps({"wheels": list(_found)})
