"""Starts servers of the Model Context Protocol for tests."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tools.paths import ROOT

STDIO = [sys.executable, "-m", "tests.support.mcp_tools"]


@contextmanager
def mcp_server(*flags: str) -> Iterator[str]:
    """Run mcp_tools.py over HTTP; yield its address."""
    with subprocess.Popen([*STDIO, "--http", *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        try:
            yield running.stdout.readline().strip()
        finally:
            running.kill()
