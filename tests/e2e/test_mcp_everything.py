"""The reference server of the Model Context Protocol from npm: over HTTP from the page, and over stdio by the relay.

Runs with WISP_INSTALLS=1 only: it installs 32 MB of packages.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.support.served_api import served_api
from tests.support.waiting import wait_for
from tools.api import ApiServer
from tools.failure import run
from tools.mcp_servers import Program
from tools.npm import node

SERVICE_WORKER = True

pytestmark = pytest.mark.skipif("WISP_INSTALLS" not in os.environ, reason="WISP_INSTALLS=1 runs it")
PACKAGE = "@modelcontextprotocol/server-everything@2026.8.31"
USE = """async ({ url, path }) => {
  const engine = await (await import("/wisp.js")).Wisp.create();
  const questions = [], progress = [];
  const server = await engine.mcp.connect(url, {
    onInput: (question) => { questions.push(question.message); return { name: "Ada" }; },
    onProgress: (step) => progress.push(step.progress),
  });
  const call = (name, given = {}) => server.tools.find((tool) => tool.function.name === name).run(given, {});
  const found = {
    name: server.name,
    protocol: server.protocol,
    sum: await call("get-sum", { a: 2, b: 3 }),
    image: await call("get-tiny-image"),
    structured: await call("get-structured-content", { location: "Chicago" }),
    long: await call("trigger-long-running-operation", { duration: 0.5, steps: 2 }),
    asked: await call("trigger-elicitation-request"),
    resources: (await server.resources()).length,
    prompts: (await server.prompts()).map(({ name }) => name),
    prompt: await server.prompt("args-prompt", { city: "Paris" }),
    questions,
    progress,
  };
  await server.close();
  return found;
}"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("everything")
    npm = shutil.which("npm") or "npm"
    run([npm, "install", "--no-audit", "--no-fund", PACKAGE], "Cannot install the server", cwd=folder)
    return folder / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"


@pytest.fixture(scope="module")
def over_http(program: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    env = {**os.environ, "PORT": str(port)}

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with subprocess.Popen([node(), program, "streamableHttp"], env=env, stderr=subprocess.DEVNULL) as running:
        wait_for(listens)
        yield f"http://127.0.0.1:{port}/mcp"
        running.kill()


@pytest.fixture(scope="module")
def api(dist: Path, program: Path) -> Iterator[ApiServer]:
    with served_api(dist, relayed={"everything": Program([node(), str(program), "stdio"])}) as running:
        yield running


@pytest.fixture(scope="module")
def page(context: BrowserContext, api: ApiServer) -> Page:
    page = context.new_page()
    page.goto(f"{api.url}notices.html")
    return page


def assert_everything(found: dict[str, Any]) -> None:
    assert (found["name"], found["protocol"]) == ("mcp-servers/everything", "2025-11-25")
    assert "5" in found["sum"]
    assert "[image: image/png]" in found["image"]
    assert "temperature" in found["structured"]
    assert "completed" in found["long"]
    assert "Ada" in found["asked"]
    assert found["questions"]
    assert found["progress"][-1] == 2
    assert found["resources"] > 0
    assert "args-prompt" in found["prompts"]
    assert "Paris" in found["prompt"][0]["content"]


def test_over_http(page: Page, over_http: str) -> None:
    assert_everything(page.evaluate(USE, {"url": over_http}))


def test_over_stdio_by_the_relay(page: Page, api: ApiServer) -> None:
    (described,) = api.relay.described(api.url.split("/")[2])
    assert_everything(page.evaluate(USE, {"url": described["url"]}))
