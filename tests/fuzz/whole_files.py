"""Damage whole files of every kind of golden, and read them as a load does, up to the placement of weights.

Damage: header values of other types; tensors renamed, swapped, doubled, reshaped, of other types or elsewhere; counts
and offsets that do not fit; bytes cut off or added. Kinds: models, encoders, projectors, adapters, control vectors,
drafts, vocabularies and split models.
"""

import asyncio
import re
import struct
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from app.models import projector as media
from app.models.loading import vocabulary
from py_engine import planner
from py_engine.errors import CODES, WispError
from py_engine.files.gguf_header import Header, parse, read_header
from py_engine.files.parts import Parts
from py_engine.files.records import PieceIndex, plan_records
from py_engine.inspection import Capacity, inspect
from py_engine.load_plan import plan_for
from py_engine.media.projector import Projector
from py_engine.options import AdapterOptions, DraftOptions, LoadOptions
from py_engine.plan import budget
from py_engine.plan.adapters import check_files
from py_engine.plan.placement import Placements
from tests.fuzz.headers import EXTRA, GOLDEN, TOKENIZER, VALUES, typed
from tests.fuzz.templates import MESSAGES
from tests.support.gguf_bytes import ARRAY, MINI, STRING, U32, gguf, key, tensor

LARGEST = 1 << 20  # bytes of a golden, as each case rewrites the file
FIRST_BYTES = 20_000  # of a header that is read in parts
SIZES = (0, 1, 3, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
TYPES = (0, 1, 2, 3, 8, 10, 12, 14, 20, 24, 25, 26, 28, 30, 39, 99)
SCALARS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
READ = re.compile(r'(?:header, |arch\(|reader\.\w+\()"([a-z0-9_.]+)"')
SOURCES = Path(planner.__file__).parent
Case = tuple[str, list[tuple[bytes, int]]]  # the kind, and (bytes, the size that a server states) of each file


@cache
def sets() -> list[tuple[str, list[Path]]]:
    """(kind, paths) of goldens: one of each architecture and folder, and all projectors and adapters."""
    whole: dict[tuple[str, str], Path] = {}
    found: list[tuple[str, list[Path]]] = []
    for path in [MINI, *sorted(GOLDEN.glob("*/*.gguf"))]:
        if path.name.endswith(".mmproj.gguf"):
            found.append(("projector", [path]))
        elif path.name.startswith("lora-"):
            name = path.name.split(".", 1)[0].removeprefix("lora-")
            models = sorted(one for one in GOLDEN.glob(f"*/{name}.*.gguf") if one.parent.name != "lora")
            found += [("adapter", [models[0], path])] if models else []
        elif path.parent.name == "split":
            continue
        elif path.stat().st_size < LARGEST:
            header, _ = _read(path)
            whole.setdefault((path.parent.name, header.metadata.get("general.architecture", "")), path)
    found += [("split", sorted((GOLDEN / "split").glob("*.gguf")))] * 3
    for path in whole.values():
        has_tokens = "tokenizer.ggml.tokens" in _read(path)[0].metadata
        found += [("model", [path])] + ([("draft", [path, path])] if has_tokens else [])
    return found


@cache
def read_keys() -> list[str]:
    """Keys of metadata, without the architecture, that the engine's code reads."""
    found: set[str] = set()
    for folder in ("models", "media", "plan"):
        for path in (SOURCES / folder).rglob("*.py"):
            found |= set(READ.findall(path.read_text()))
    return sorted(found)


@cache
def _read(path: Path) -> tuple[Header, bytes]:
    data = path.read_bytes()
    return parse(data, None), data


def case(rng: Random) -> Case:
    """Files, at least one of them damaged."""
    kind, paths = rng.choice(sets())
    damaged = rng.randrange(len(paths))
    files = [
        _damaged(rng, kind, *_read(path)) if i == damaged or rng.random() < 0.1 else _read(path)[1]
        for i, path in enumerate(paths)
    ]
    if kind in ("split", "adapter") and rng.random() < 0.05:
        files = rng.choice((files[::-1], files[:1], files * 2))
    large = rng.random() < 0.02
    return kind, [(data, rng.choice(SIZES[3:]) if large else len(data)) for data in files]


def _damaged(rng: Random, kind: str, header: Header, data: bytes) -> bytes:
    if rng.random() < 0.15:
        return _bytes_changed(rng, data, header.data_offset)
    metadata = dict(header.metadata)
    names = [name for name in metadata if not name.startswith("tokenizer")] * 2
    names += [f"tokenizer.ggml.{name}" for name in TOKENIZER] + ["tokenizer.chat_template", "general.alignment"]
    prefix = metadata.get("general.architecture", "x")
    names += [f"{prefix}.{name}" for name in rng.choice((EXTRA, rng.sample(read_keys(), 40)))]
    if kind == "projector":
        names += [f"{prefix}.{part}.{name}" for name in rng.sample(read_keys(), 40) for part in ("vision", "audio")]
    changes: dict[str, tuple[int, Any]] = {}
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        name = rng.choice(names)
        changes[name] = _value(rng, metadata.get(name))
        if rng.random() < 0.15:
            metadata.pop(name, None)
            changes.pop(name)
    keys = [key(name, *changes.pop(name, typed(given))) for name, given in metadata.items()]
    keys += [key(name, *given) for name, given in changes.items()]
    table: list[list[Any]] = [[t.name, t.shape, int(t.type), t.offset] for t in header.tensors.values()]
    for _ in range(rng.choice((0, 0, 1, 1, 3))):
        if table:
            _change_tensor(rng, table)
    counts = (len(table), len(keys))
    if rng.random() < 0.03:
        counts = (counts[0] + rng.choice((-1, 1, *SIZES[2:4])) if rng.random() < 0.5 else counts[0], counts[1] + 1)
    head = gguf(keys, [tensor(*entry) for entry in table], n=(max(0, counts[0]), counts[1]))
    head += bytes(-len(head) % header.alignment)
    return head + data[header.data_offset :]


def _bytes_changed(rng: Random, data: bytes, end_of_header: int) -> bytes:
    """Change some bytes of the header, replace a number of 8 bytes, or cut the file."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(min(end_of_header, rng.choice((64, 2000, end_of_header))))
        if rng.random() < 0.5:
            changed[at] = rng.choice((0, 1, 8, 9, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        else:
            changed[at : at + 8] = struct.pack("<Q", rng.choice(SIZES))
    if rng.random() < 0.2:
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


def _value(rng: Random, given: Any) -> tuple[int, Any]:
    """Another value of a key: any, or one like the given value."""
    if isinstance(given, list) and given and rng.random() < 0.5:  # the right kind, at another length or in other order
        kind, values = typed(given)[1]
        values = list(values[: rng.choice((0, 1, len(values) - 1, len(values)))]) * rng.choice((1, 1, 2))
        rng.shuffle(values)
        return ARRAY, (kind, values)
    if type(given) is int and rng.random() < 0.5:
        return U32, max(0, min(given + rng.choice((-given, -1, 1, given, 1 - given, 3 * given)), 2**32 - 1))
    if isinstance(given, str) and rng.random() < 0.5:
        return STRING, rng.choice((given[::-1], given * 3, given[: len(given) // 2], "{{ messages }}", "\0", "{% for"))
    return rng.choice(VALUES)


def _change_tensor(rng: Random, table: list[list[Any]]) -> None:
    """Change one tensor of the table, or two."""
    entry, other = rng.choice(table), rng.choice(table)
    name, shape, kind, offset = entry
    change = rng.randrange(9)
    if change == 0:
        table.remove(entry)
    elif change == 1:
        entry[0], other[0] = other[0], entry[0]
    elif change == 2:
        table.append([rng.choice((name, name + "x", other[0] + ".scale", "blk.0." + name)), shape, kind, offset])
    elif change == 3:
        entry[0] = rng.choice((*SCALARS, "", "x", name[::-1], name * 2, name.replace("weight", "bias"), "é" * 40))
    elif change == 4:
        n = rng.choice(SIZES[:6])
        entry[1] = rng.choice((shape[::-1], (*shape, 2)[:5], shape[1:], (*shape[:-1], n), (n, *shape[1:]), (n,) * 4))
    elif change == 5:
        entry[2] = rng.choice(TYPES)
    elif change == 6:
        entry[3] = rng.choice((offset + 32, offset + 1, other[3], *SIZES))
    elif change == 7:
        entry[1], other[1] = other[1], entry[1]
    else:  # a large tensor of numbers, where a few are read
        table.append([rng.choice(SCALARS), (rng.choice((0, 1, 16, 33, 10**6, 10**9)),), rng.choice((0, 1)), offset])


class Source:
    """A file in memory. `most`: bytes that may be read of it."""

    local = True
    most = 64 << 20

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size

    async def read(self, offset: int, length: int) -> bytes:
        assert length <= self.most, f"{length} bytes are read"
        return self.data[offset : offset + length]


def run(given: Case) -> None:
    """Read the files as a load does."""
    kind, files = given
    try:
        asyncio.run(_load(kind, [Source(*file) for file in files]))
    except WispError as error:
        if error.code not in CODES or error.code == "internal_error":
            raise AssertionError(error.code) from error


async def _load(kind: str, sources: list[Any]) -> None:
    headers = [await read_header(one.read, one.size, FIRST_BYTES) for one in sources]
    short = len(sources[0].data) % 2
    options = LoadOptions(backend="cpu", context_length=64 if short else None, clamp_context=True)
    if kind == "projector":
        assert Projector.from_gguf(headers[0]).digest
        await _planned(sources, headers, options)
        return
    count = len(headers) if kind == "split" else 1
    check_files(headers[:1] if kind == "draft" else headers, count)
    model = vocabulary("x", headers[0], {})
    model.tokenizer.decode(model.tokenizer.encode("Hello <s> 12345 wörld 漢字", True, True))
    model.template.render(MESSAGES[:2])
    media.prompt_rows(model)
    if not headers[0].tensors:
        return
    if kind == "adapter":
        options = replace(options, adapters=(AdapterOptions(),) * (len(headers) - 1))
    if kind == "draft":
        options = replace(options, draft=DraftOptions(1, 4))
    await _planned(sources, headers, options)
    if short and kind == "model" and sources[0].size % 5 == 0:
        await inspect(sources, headers, options, Capacity(1 << 32, True))


async def _planned(sources: list[Any], headers: list[Header], options: LoadOptions) -> None:
    """Plan the model, and place every record of its weights."""
    parts = Parts.of(sources, headers, options.draft_files)
    plan = await plan_for(parts, None, options)
    budget.estimate(plan, None)
    placements = Placements(parts.header, plan, 1 << 62)
    for source, header in zip(parts.sources, parts.headers, strict=True):
        index = PieceIndex(header)
        for record in plan_records(header, source.size):
            placements.of(index.pieces(record))
