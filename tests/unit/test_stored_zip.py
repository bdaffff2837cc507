"""The worker unpacks the build's zips itself."""

import io
import zipfile

import pytest

from tests.support.js_modules import Evaluate, evaluator
from tools.python_zip import pack

FILES = {"a/b/c.py": b"x = 1\n", "a/empty.py": b"", "top.json": b"{}", "a/\u00fc.bin": bytes(range(256)) * 300}
READ = "Object.fromEntries([...m.filesOf(new Uint8Array(a[0]).buffer)].map(([name, data]) => [name, [...data]]))"
UNPACK = """(async () => {
  const done = [];
  const FS = { mkdirTree: (path) => done.push(path), writeFile: (path, data) => done.push([path, data.length]) };
  m.unpack(FS, new Uint8Array(a[0]).buffer, "/wisp");
  return done;
})()"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("zip"), ["app/stored_zip.js"])


def test_files_are_those_that_were_packed(evaluate: Evaluate) -> None:
    found = evaluate(READ, list(pack(FILES)))
    assert {name: bytes(data) for name, data in found.items()} == FILES
    assert evaluate(READ, list(pack({}))) == {}


def test_unpack_makes_each_folder_once(evaluate: Evaluate) -> None:
    done = evaluate(UNPACK, list(pack({name: FILES[name] for name in ("a/b/c.py", "a/empty.py", "top.json")})))
    assert done == ["/wisp/a/b", ["/wisp/a/b/c.py", 6], "/wisp/a", ["/wisp/a/empty.py", 0], "/wisp",
                    ["/wisp/top.json", 2]]  # fmt: skip


def test_other_files_are_refused(evaluate: Evaluate) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.py", b"x" * 1000)
    refused = f"(async () => {{ try {{ {READ} }} catch (error) {{ return error.message; }} }})()"
    assert evaluate(refused, list(out.getvalue())) == "a.py is compressed"
    assert evaluate(refused, list(b"no zip" * 10)) == "this is no zip of the build"
