"""Random damage to the headers of files that are loaded together: split models, adapters, drafts, projectors.

A load's memory is estimated from the headers, as before every load.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from app.models import projector as media
from app.models.loading import vocabulary
from py_engine.engine import Engine
from py_engine.errors import CODES, WispError
from py_engine.files.gguf_header import Header, parse
from py_engine.files.gguf_values import NeedMoreBytes
from py_engine.media.projector import Projector
from py_engine.options import DraftOptions, LoadOptions
from py_engine.plan.adapters import check_files
from tests.fuzz.headers import GOLDEN, VALUES, typed
from tests.support import assistant_models, dflash_models, eagle_models
from tests.support.gguf_bytes import ARRAY, U32, gguf, key, tensor

CPU = LoadOptions(backend="cpu", context_length=64)
SPLIT = ("split.no", "split.count", "split.tensors.count")
Case = tuple[str, list[tuple[bytes, bytes]]]  # what they are, and (header, the file) of each


@cache
def sets() -> list[tuple[str, list[tuple[Header, bytes]]]]:
    """(what they are, the headers and files) of every set of files among the goldens."""
    found: list[tuple[str, list[tuple[Header, bytes]]]] = []
    for projector in sorted((GOLDEN / "vision").glob("*.mmproj.gguf")):
        found.append(("projector", [_read(projector)]))
    for adapter in sorted((GOLDEN / "lora").glob("*.gguf")):
        name = adapter.name.split(".", 1)[0].removeprefix("lora-")
        models = sorted(path for path in GOLDEN.glob(f"*/{name}.*.gguf") if path.parent.name != "lora")
        if models:
            found.append(("adapter", [_read(models[0]), _read(adapter)]))
    whole = [_read(path) for path in sorted(GOLDEN.glob("*/*.gguf"))[:40:8]]
    found += [("draft", [model, model]) for model in whole if _is_model(model[0])]
    found += [("split", [model]) for model in whole if _is_model(model[0])]
    return found + [("draft", files) for files in _drafters()]


def _drafters() -> Iterator[list[tuple[Header, bytes]]]:
    """Models with draft models that were made for them: an assistant, EAGLE-3 heads, DFlash models."""
    with TemporaryDirectory() as folder:
        model, drafter = Path(folder) / "model.gguf", Path(folder) / "drafter.gguf"
        assistant_models.write(assistant_models.BASES[0], model, drafter)
        yield [_read(model), _read(drafter)]
        for kind in eagle_models.KINDS.values():
            eagle_models.write(kind, model, drafter)
            yield [_read(model), _read(drafter)]
        for one in dflash_models.KINDS.values():
            dflash_models.write(one, model, drafter)
            yield [_read(model), _read(drafter)]


def _is_model(header: Header) -> bool:
    return header.get("tokenizer.ggml.tokens") is not None and bool(header.tensors)


def _read(path: Any) -> tuple[Header, bytes]:
    data = path.read_bytes()
    return parse(data, None), data


def case(rng: Random) -> Case:
    """Files, at least one of them damaged."""
    kind, files = rng.choice(sets())
    if kind == "split":
        return kind, _split(rng, files[0])
    damaged = rng.randrange(len(files))
    return kind, [
        (_header(rng, header) if i == damaged or rng.random() < 0.1 else data[: header.data_offset], data)
        for i, (header, data) in enumerate(files)
    ]


def _header(rng: Random, header: Header) -> bytes:
    """The header with other metadata, names, shapes and types."""
    metadata = dict(header.metadata)
    changes: dict[str, tuple[int, Any]] = {}
    own = [name for name in metadata if not name.startswith("tokenizer")] * 2
    own += ["tokenizer.ggml.tokens", "tokenizer.ggml.model", "tokenizer.ggml.token_type", "split.count"]
    for _ in range(rng.choice((0, 1, 1, 1, 3))):
        name = rng.choice(own)
        changes[name] = rng.choice(VALUES)
        if isinstance(metadata.get(name), list) and rng.random() < 0.5:  # the right kind, at another length
            kind, values = typed(metadata[name])[1]
            changes[name] = ARRAY, (kind, (values * 3)[: rng.choice((0, 1, len(values) - 1, len(values) + 1))])
        if rng.random() < 0.1:
            metadata.pop(name, None)
    keys = [key(name, *changes.pop(name, typed(given))) for name, given in metadata.items()]
    keys += [key(name, *given) for name, given in changes.items()]
    chance, tensors = 0.5 / max(1, len(header.tensors)), []
    for info in header.tensors.values():
        shape, name, kind = info.shape, info.name, int(info.type)
        if rng.random() < chance:
            shape = rng.choice(
                ((), (1,), shape[::-1], (*shape, 2)[:4], shape[:1], (0, *shape[1:]), (*shape[:-1], 2**40))
            )
        if rng.random() < chance:
            name = rng.choice(
                ("x", name + ".lora_a", name.removesuffix("_a") + "_b", "direction.1", "direction.x", name * 9)
            )
        if rng.random() < chance:
            kind = rng.choice((0, 1, 2, 8, 24, 26, 30, 39))
        if rng.random() > chance / 2:
            tensors.append(tensor(name, shape, kind, info.offset))
    return gguf(keys, tensors)


def _split(rng: Random, model: tuple[Header, bytes]) -> list[tuple[bytes, bytes]]:
    """The model as files of a few tensors each, whose numbers may be wrong."""
    header, data = model
    count = rng.choice((1, 2, 3))
    files = []
    for number in range(count):
        given: dict[str, tuple[int, Any]] = {"split.no": (U32, number), "split.count": (U32, count)}
        for name in SPLIT:
            if rng.random() < 0.2:
                given[name] = rng.choice(VALUES)
            elif rng.random() < 0.05:
                given.pop(name, None)
        metadata = header.metadata if number == 0 else {"general.architecture": header.architecture}
        keys = [key(name, *typed(value)) for name, value in metadata.items() if name not in SPLIT]
        keys += [key(name, *value) for name, value in given.items()]
        own = [info for i, info in enumerate(header.tensors.values()) if i % count == number or rng.random() < 0.001]
        files.append((gguf(keys, [tensor(t.name, t.shape, int(t.type), t.offset) for t in own]), data))
    if rng.random() < 0.1:
        rng.shuffle(files)
    return files[: rng.choice((count, count, count, 1))]


class Source:
    """A file that has nothing but its header."""

    local, size = True, 0

    def __init__(self, data: bytes) -> None:
        self.data, self.even = data, len(data) % 2 == 0

    async def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length].ljust(min(length, 1 << 20), b"\0")


def run(given: Case) -> None:
    """Estimate what a load of the files takes."""
    kind, files = given
    sources: Any = [Source(data) for _, data in files]
    try:
        headers = [parse(header, None) for header, _ in files]
        asyncio.run(_estimate(kind, headers, sources))
    except NeedMoreBytes:
        return
    except WispError as error:
        if error.code not in CODES or error.code == "internal_error":
            raise AssertionError(error.code) from error


async def _estimate(kind: str, headers: list[Header], sources: Any) -> None:
    if kind == "projector":
        projector = Projector.from_gguf(headers[0])
        assert projector.digest
        assert projector.most_tokens >= 0
        await Engine.estimate(sources, headers, CPU)
        return
    check_files(headers[:1] if kind == "draft" else headers, len(headers) if kind == "split" else 1)
    model = vocabulary("x", headers[0], {})
    media.prompt_rows(model)
    draft = DraftOptions(1, 4) if kind == "draft" else None
    length = 64 if sources[0].even else None
    await Engine.estimate(sources, headers, replace(CPU, context_length=length, draft=draft))
