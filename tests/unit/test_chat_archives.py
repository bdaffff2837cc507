"""ZIP archives of chats: which of their texts are read, and which archives are refused."""

import base64
import io
import json
import zipfile
from typing import Any

import pytest

from tests.support.chat_files import chat_files
from tests.support.js_modules import Evaluate


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return chat_files(tmp_path_factory)


def in_archive(js: Evaluate, data: bytes) -> Any:
    """The texts of a ZIP archive's conversations, or the message of the error."""
    code = """(async () => {
        const file = new Blob([Uint8Array.fromBase64?.(a[0]) ?? Buffer.from(a[0], "base64")]);
        if (!(await m.isArchive(file))) return "no archive";
        try { return await m.conversationsOf(file) } catch (error) { return error.message }
    })()"""
    return js(code, base64.b64encode(data).decode())


def archive(files: dict[str, str], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as packed:
        for name, text in files.items():
            packed.writestr(name, text)
        packed.comment = comment
    return out.getvalue()


def test_an_archive_s_conversations_are_read(js: Evaluate) -> None:
    texts = [
        json.dumps([{"title": "Tee \U0001f375", "n": n, "mapping": {}}] * 3000, ensure_ascii=False) for n in (1, 2)
    ]
    files = {
        "chat.html": "<p>",
        "x/conversations-002.json": texts[1],
        "file-1.png": "?",
        "x/conversations-001.json": texts[0],
    }
    for method, comment in ((zipfile.ZIP_DEFLATED, b""), (zipfile.ZIP_STORED, b"of a program" * 99)):
        assert in_archive(js, archive(files, method, comment)) == texts
    assert "no conversations.json" in in_archive(js, archive({"a.json": "[]"}))
    assert in_archive(js, b"[]") == "no archive"


def test_an_archive_whose_files_are_large_in_sum_is_refused(js: Evaluate) -> None:
    """Each of them is small enough to be read, and they may share their bytes."""
    packed = archive({f"conversations-{n}.json": "[]" for n in range(3)})
    large = packed
    at = large.find(b"PK\1\2")
    while at >= 0:
        large = large[: at + 24] + (200_000_000).to_bytes(4, "little") + large[at + 28 :]
        at = large.find(b"PK\1\2", at + 1)
    assert large != packed
    assert "damaged" in in_archive(js, large)


def test_a_damaged_archive_is_refused(js: Evaluate) -> None:
    text = json.dumps([f"text {n}" for n in range(500)])
    whole = archive({"conversations.json": text})
    assert in_archive(js, whole) == [text]
    sizes = whole.replace(len(text).to_bytes(4, "little"), b"\x01\0\0\0")  # it says that its text has one byte
    assert sizes != whole
    cut = [whole[:n] for n in range(4, len(whole), 97)]
    name = whole.index(b"PK\1\2") + 28  # where the directory has the length of the file's name
    long_name = whole[:name] + b"\xff\xff" + whole[name + 2 :]
    for bad in (
        *cut,
        sizes,
        long_name,
        whole[:60] + b"\xff" * 20 + whole[80:],  # it cannot be unpacked
        archive({"conversations.json": "[]"}, zipfile.ZIP_LZMA),
    ):
        assert "damaged" in in_archive(js, bad)
