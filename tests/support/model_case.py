"""Models of the faulty server, loaded by the download and cache layer in a page."""

import hashlib
import itertools
from math import inf
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from playwright.sync_api import Page

from tests.support.browser import call_python
from tests.support.faulty_server import FaultyServer, File, Pause
from tests.support.waiting import wait_for
from tools.gguf_writer import finish

names = (f"model-{i}.gguf" for i in itertools.count())


def write_model(path: Path) -> bytes:
    """A GGUF of 3 MB: tensors smaller and larger than the 256 KiB that the tests cut records at."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(1000)])
    rng = np.random.default_rng(1)
    for i, shape in enumerate([(700, 512), (10,), (300, 1000), (64, 64), (1,), (50, 256)]):
        writer.add_tensor(f"blk.{i}.weight", rng.standard_normal(shape, np.float32))
    finish(writer)
    return path.read_bytes()


class Case:
    """One file on the faulty server, under a name of its own, and the page that loads it."""

    def __init__(self, page: Page, server: FaultyServer, file: File) -> None:
        self.page, self.file = page, file
        name = next(names)
        server.files[name] = file
        self.url = server.url(name)

    def load(self, **args: Any) -> dict[str, Any]:
        """Load the model as the engine does; return the result of tests/support/page/shards.py."""
        found: dict[str, Any] = call_python(self.page, "shards.load", url=self.url, **args)
        wait_for(lambda: not self.file.under_way)  # the server may not have noticed yet which requests have ended
        return found

    def cached(self) -> list[list[int]]:
        """[offset, length] of the records in the database."""
        return self.page.evaluate("(url) => wispShards.listRecords(url)", self.url)


def check_cancelled_load(c: Case) -> None:
    """Cancel the load of a file that does not arrive whole: its requests end, and a later load gets the whole file."""
    c.file.pause = Pause(inf, after=len(c.file.data) // 2)  # more than a record
    assert call_python(c.page, "shards.cancelled_load", url=c.url) == "cancelled"
    c.file.pause = Pause(0.05)  # a busy browser may close its connections late: the rest must not be sent by then
    wait_for(lambda: not c.file.under_way)
    c.file.pause = None
    assert c.file.sent < len(c.file.data)
    assert c.load()["sha256"] == sha(c.file.data)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
