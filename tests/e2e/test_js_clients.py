"""Client packages for JavaScript, unmodified: in Node against `serve --api`, and one in the page (docs/http-api.md).

Runs with WISP_INSTALLS=1 only: it installs 165 MB of packages.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.support.chat_page import wait_ready
from tests.support.served_api import served_api
from tests.support.waiting import HANG_S
from tools.api import ApiServer
from tools.failure import run
from tools.npm import node
from tools.paths import ROOT

SERVICE_WORKER = True

pytestmark = pytest.mark.skipif("WISP_INSTALLS" not in os.environ, reason="WISP_INSTALLS=1 runs it")
ROME = "The capital of Italy is Rome."


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts and their packages. instructor-js has a folder of its own: it needs an older zod."""
    folder = tmp_path_factory.mktemp("clients") / "clients"
    shutil.copytree(ROOT / "tests" / "support" / "clients", folder)
    npm = shutil.which("npm") or "npm"
    for at in (folder, folder / "instructor"):
        run([npm, "install", "--no-audit", "--no-fund", "--legacy-peer-deps"], "Cannot install the packages", cwd=at)
    return folder


@pytest.fixture(scope="module")
def api(dist: Path, clients: Path) -> Iterator[ApiServer]:
    with served_api(dist, {"clients/": clients}) as running:
        running.tab_s = HANG_S
        yield running


@pytest.fixture(scope="module")
def page(context: BrowserContext, api: ApiServer) -> Page:
    """The page, whose engine answers."""
    page = context.new_page()
    page.goto(api.lending_url)
    wait_ready(page)
    return page


def result(api: ApiServer, script: Path) -> dict[str, Any]:
    """What a script prints."""
    command = [node(), script.name, f"{api.url}v1", api.key]
    done = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", ["vercel_ai", "langchain", "llamaindex"])
def test_chats_streams_tools_schemas_embeddings_errors(name: str, clients: Path, api: ApiServer, page: Page) -> None:
    found = result(api, clients / f"{name}.mjs")
    assert (found["chat"], found["streamed"], found["usage"]) == (ROME, ROME, True)
    assert found["tool"]["cities"] == ["Paris"]
    assert set(found["object"]) == {"city", "large"}
    assert isinstance(found["object"]["large"], bool)
    assert (found["embeddings"], found["failed"]) == (2, 400)
    assert found["tool"].get("steps", 2) == 2, "the result of the tool went back to the model"
    assert found["tool"].get("answered", True)


def test_instructor_gets_objects_of_a_schema(clients: Path, api: ApiServer, page: Page) -> None:
    found = result(api, clients / "instructor" / "instructor.mjs")
    assert set(found) == {"TOOLS", "JSON_SCHEMA", "streamed"}
    for answer in found.values():
        assert isinstance(answer["city"], str)
        assert isinstance(answer["large"], bool)


def test_a_client_in_the_page_is_answered_by_its_service_worker(clients: Path, page: Page) -> None:
    entry = {"name": "in_page", "file": str(clients / "in_page.mjs"), "format": "esm"}
    request = json.dumps({"root": str(clients), "entries": [entry]})
    bundled = run([node(), ROOT / "tools" / "bundle.mjs"], "Cannot bundle", cwd=ROOT, stdin=request)
    (clients / "bundle.js").write_text(json.loads(bundled)["outputs"]["in_page"], encoding="utf-8")
    found = page.evaluate(
        """async () => {
          while (!navigator.serviceWorker.controller) await new Promise((resolve) => setTimeout(resolve, 50));
          return (await import("/clients/bundle.js")).ask("What is the capital of Italy?");
        }"""
    )
    assert found["streamed"] == ROME
    assert set(found["output"]) == {"city"}
