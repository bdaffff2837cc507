"""The conformance suite of the Model Context Protocol for clients, in Node.

Runs with WISP_INSTALLS=1 only: it installs the suite, of 50 MB, and the newer Node that it needs. Not among the
scenarios: basic-cimd, which asks for an address of Wisp as its client id, where a page of anybody's host has none;
and 2025-03-26-oauth-metadata-backcompat, whose authorization server names another issuer than its address, which the
official client refuses.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from tools.failure import run
from tools.npm import node
from tools.paths import ROOT

pytestmark = pytest.mark.skipif("WISP_INSTALLS" not in os.environ, reason="WISP_INSTALLS=1 runs it")
PACKAGES = ("@modelcontextprotocol/conformance@0.1.16", "node@22.23.3")
SCENARIOS = [
    "initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", "auth/metadata-default",
    "auth/metadata-var1", "auth/metadata-var2", "auth/metadata-var3", "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported", "auth/scope-omitted-when-undefined", "auth/scope-step-up",
    "auth/scope-retry-limit", "auth/token-endpoint-auth-basic", "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none", "auth/pre-registration", "auth/2025-03-26-oauth-endpoint-fallback",
]  # fmt: skip


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the suite, and the client as one module."""
    folder = tmp_path_factory.mktemp("conformance")
    npm = shutil.which("npm") or "npm"
    run([npm, "install", "--no-audit", "--no-fund", *PACKAGES], "Cannot install the suite", cwd=folder)
    entry = {"name": "client", "file": str(ROOT / "tests" / "support" / "mcp_conformance.mjs"), "format": "esm"}
    request = json.dumps({"root": str(ROOT), "entries": [entry]})
    bundled = run([node(), ROOT / "tools" / "bundle.mjs"], "Cannot bundle", cwd=ROOT, stdin=request)
    (folder / "client.mjs").write_text(json.loads(bundled)["outputs"]["client"], encoding="utf-8")
    return folder


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_conforms(suite: Path, scenario: str) -> None:
    newer = suite / "node_modules" / "node" / "bin" / "node"
    program = suite / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command: list[str | Path] = [
        newer,
        program,
        "client",
        "--command",
        f"{newer} {suite / 'client.mjs'}",
        "--scenario",
        scenario,
    ]
    run(command, "The client does not conform", cwd=suite)
