"""The build's compiled methods of dataclasses, in place of those that `@dataclass` compiles."""

import dataclasses
import marshal
from pathlib import Path
from typing import Any

import pytest

from app import dataclass_code


def point() -> Any:
    """A new class, whose methods have the same sources each time."""
    return dataclasses.make_dataclass("Point", [("x", int)])


@pytest.mark.parametrize("content", [None, b"", b"?", b"{"])
def test_a_page_starts_without_the_build_s_file(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "compiled.bin"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(dataclass_code, "COMPILED", path)
    monkeypatch.setattr(dataclasses, "exec", exec, raising=False)
    dataclass_code.install()
    assert vars(dataclasses)["exec"] is exec


def test_equal_classes_take_the_same_compiled_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = {}

    def keep(source: str, *namespaces: Any) -> None:
        compiled[dataclass_code.key_of(source)] = compile(source, "<compiled>", "exec")
        exec(source, *namespaces)

    monkeypatch.setattr(dataclasses, "exec", keep, raising=False)
    point()
    path = tmp_path / "compiled.bin"
    path.write_bytes(marshal.dumps(compiled))
    monkeypatch.setattr(dataclass_code, "COMPILED", path)
    dataclass_code.install()
    for _ in range(2):
        made = point()
        assert made.__init__.__code__.co_filename == "<compiled>"
        assert made(3).x == 3
