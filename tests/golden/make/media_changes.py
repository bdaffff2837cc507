"""Random changes of a projector: keys, tensors less or more, and other shapes of what belongs together.

A change that does not fit a file makes one that llama.cpp refuses, which is then not compared.
"""

import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.golden.make.changed_models import Change, without_key
from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.tensor_types import dequantize
from tools.gguf_writer import Value

QKV = ("attn_q", "attn_k", "attn_v")
OTHER_KEYS = ("general.", "GGUF.")  # beginnings of keys that are not the projector's
EACH_BLOCK = ("wa_pattern_mode", "is_deepstack_layers")  # lists with a value for each block

VALUES: dict[str, list[Value]] = {
    "use_gelu": [True, False],
    "use_silu": [True, False],
    "minicpmv_version": [0, 2, 3, 4, 5, 6, 100045],
    "vision.attention.layer_norm_epsilon": [1e-3, 1e-5],
    "audio.attention.layer_norm_epsilon": [1e-3],
    "vision.attention.head_dim": [8, 16, 32],
    "vision.attention.head_count_kv": [1, 2],
    "vision.image_mean": [[0.1, 0.4, 0.7]],
    "vision.image_std": [[0.9, 0.3, 0.5]],
    "vision.image_size": [28, 56, 112, 448],
    "vision.image_min_pixels": [1, 784, 20000, 60000],
    "vision.image_max_pixels": [784, 9000, 90000],
    "vision.n_wa_pattern": [0, 1, 2, 3],
    "vision.window_size": [1, 7, 64, 112],
    "vision.wa_layer_indexes": [[0], [1], [0, 1]],
    "vision.image_resize_algo": ["bilinear", "bicubic", "lanczos"],
    "vision.preproc_image_size": [56, 100, 300],
    "vision.preproc_min_tiles": [1, 2, 3],
    "vision.preproc_max_tiles": [1, 4, 6, 9],
    "vision.mm_patch_merge_type": ["spatial_unpad", "flat"],
    "vision.feature_layer": [[0], [1], [0, 1], [2]],
    "vision.expert_used_count": [1, 3, 9],
    "vision.projection_dim": [17],
    "vision.feed_forward_length": [17],
    "audio.projection_dim": [17],
    "audio.feed_forward_length": [17],
    "audio.feature_layer": [[0], [1, 2]],
    "audio.window_size": [1, 2, 300],
    "audio.rvq.codebook_size": [[1, 7, 9], [12, 7, 1]],
    "audio.projector.stack_factor": [1, 2, 5],
}
# Tensors of a block that encoders have or have not, and which dimension of which other tensor is their length.
IN_BLOCKS = {
    **{f"{name}.bias": (f"{name}.weight", 0) for name in (*QKV, "attn_qkv", "attn_out", "ffn_up", "ffn_gate")},
    "ffn_down.bias": ("ffn_down.weight", 0),
    **{f"{name}.bias": (f"{name}.weight", 0) for name in ("ln1", "ln2")},
    **{f"{name}.weight": ("ln1.weight", 0) for name in ("ls1", "ls2")},
}


def read(path: Path) -> GgufFile:
    """A file's metadata, and its tensors as float32 numbers."""
    reader = gguf.GGUFReader(path)
    file = GgufFile(str(reader.fields["general.architecture"].contents()), 0)
    for field in reader.fields.values():
        if not field.name.startswith(OTHER_KEYS):
            file.metadata.append((field.name, field.contents()))
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        file.tensors[tensor.name] = values.reshape([int(n) for n in tensor.shape[::-1]])
        if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
            file.float32.add(tensor.name)
    return file


def projector_changes(file: GgufFile, random: np.random.Generator) -> Iterator[tuple[str, Change, float]]:
    """What each change is, the function that makes it, and how often it is to be chosen."""
    keys = dict(file.metadata)
    for name in keys:
        yield f"without {name}", without_key(name), 0.15
    sides = [side for side in ("vision", "audio") if keys.get(f"clip.has_{side}_encoder")]
    for key, values in VALUES.items():
        side, dot, _ = key.partition(".")
        if dot and side not in sides:
            continue
        present = f"clip.{key}" in keys
        for value in values:
            yield f"{key} = {value}", with_value(key, value), (0.6 if present else 0.15) / len(values)
    for name in dict.fromkeys(map(role, file.tensors)):
        yield f"without {name}", without(name), 0.04 if name.endswith(".weight") else 0.15
    for name, (beside, axis) in IN_BLOCKS.items():
        for side in sides:
            before = f"{side[0]}.blk."
            if f"{before}0.{name}" not in file.tensors and f"{before}0.{beside}" in file.tensors:
                yield f"with {before}N.{name}", in_blocks(before, name, beside, axis), 0.15
    for side in sides:
        yield from shapes(file, keys, side, random)


def role(tensor: str) -> str:
    """A tensor's name with N in place of its block."""
    return re.sub(r"blk\.\d+\.", "blk.N.", tensor)


def with_value(key: str, value: Value) -> Change:
    def change(file: GgufFile) -> None:
        without_key(f"clip.{key}")(file)
        file.metadata.append((f"clip.{key}", value))

    return change


def without(name: str) -> Change:
    def change(file: GgufFile) -> None:
        file.tensors = {tensor: data for tensor, data in file.tensors.items() if role(tensor) != name}

    return change


def fresh(file: GgufFile, name: str, shape: tuple[int, ...]) -> None:
    """Replace a tensor by random numbers of another shape, or add it."""
    old, random = file.tensors.get(name), np.random.default_rng(zlib.crc32(f"{name} {shape}".encode()))
    deviation = float(old.std()) if old is not None and old.size > 1 else 0.15
    mean = float(old.mean()) if old is not None and old.ndim == 1 else 0.0
    if old is not None and old.ndim > 1 and np.prod(old.shape[1:]) != np.prod(shape[1:]) and "position" not in name:
        deviation *= float(np.sqrt(np.prod(old.shape[1:]) / np.prod(shape[1:])))
    file.tensors[name] = (mean + deviation * random.standard_normal(shape)).astype(np.float32)
    if old is None:
        file.float32.add(name)


def in_blocks(before: str, name: str, beside: str, axis: int) -> Change:
    """A vector in every block; scales and weights of norms are near 1."""

    def change(file: GgufFile) -> None:
        for tensor in list(file.tensors):
            if tensor.startswith(before) and tensor.endswith(f".{beside}"):
                added = tensor.removesuffix(beside) + name
                fresh(file, added, (file.tensors[tensor].shape[axis],))
                file.tensors[added] += name.endswith("weight")

    return change


def head_norms(before: str, length: int) -> Change:
    """Norms of queries and keys in every block. llama.cpp takes those of all heads together beside divided matrices."""
    return both(
        *(in_blocks(f"{before}blk.", f"attn_{part}_norm.weight", "ln1.weight", 0) for part in "qk"),
        *(cut(f"{before}blk.", f".attn_{part}_norm.weight", length) for part in "qk"),
    )


def cut(before: str, end: str, length: int) -> Change:
    """Keep the first `length` values of vectors."""

    def change(file: GgufFile) -> None:
        for name in file.tensors:
            if name.startswith(before) and name.endswith(end):
                file.tensors[name] = file.tensors[name][:length]

    return change


# -- what belongs together --------------------------------------------------------------------------------------------


def shapes(file: GgufFile, keys: Mapping[str, Any], side: str, random: np.random.Generator) -> Iterator[Any]:
    """Changes of lengths that several keys and tensors share."""
    before = f"{side[0]}."
    n, layers, heads = (
        keys.get(f"clip.{side}.{key}", 0) for key in ("embedding_length", "block_count", "attention.head_count")
    )
    blocks = any(name.startswith(f"{before}blk.0.") for name in file.tensors)
    if blocks and heads:
        for count in [count for count in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16) if n % (4 * count) == 0 and count != heads]:
            yield f"{side} {count} heads", with_value(f"{side}.attention.head_count", count), 0.2
        yield f"{side} norms of heads", head_norms(before, n // heads), 0.3
        yield f"{side} norms of queries and keys", head_norms(before, n), 0.3
    if blocks and layers > 1:
        yield f"{side} {layers - 1} blocks", with_blocks(side, layers, layers - 1), 0.5
        for more in (layers + 1, layers + 3):
            yield f"{side} {more} blocks", with_blocks(side, layers, more), 0.4
    if blocks and f"{before}blk.0.attn_q.weight" in file.tensors:
        yield f"{side} joined qkv", joined(before), 0.5
    if blocks and f"{before}blk.0.attn_qkv.weight" in file.tensors:
        yield f"{side} divided qkv", divided(before), 0.5
    if blocks and f"{before}blk.0.ffn_up.weight" in file.tensors:
        yield f"{side} swapped ffn", swapped(before), 0.2
        old = file.tensors[f"{before}blk.0.ffn_up.weight"].shape[0]
        for new in (36, 100, 128):
            yield f"{side} ffn {new}", resized(f"{before}blk.", "ffn_", {old: new}), 0.2
    if side == "audio":
        bins, stack = keys.get("clip.audio.num_mel_bins", 0), keys.get("clip.audio.projector.stack_factor", 0)
        for new in (64, 128):
            yield f"{new} mels", both(with_value("audio.num_mel_bins", new), resized("a.conv1d", "", {bins: new})), 0.3
        for new in [new for new in (1, 2, 3, 4, 7) if stack]:
            change = both(with_value("audio.projector.stack_factor", new), resized("mm.a.", "", {n * stack: n * new}))
            yield f"stacks of {new}", change, 0.3
        return
    patch, image = keys.get("clip.vision.patch_size", 0), keys.get("clip.vision.image_size", 0)
    if patch and image and image % patch == 0:
        for new in (7, 8, 10, 16):
            yield f"patches of {new} pixels", with_patch(patch, image, new), 0.3
        for count in (2, 3, 4, 5, 6, 8, 12):
            yield f"{count} x {count} patches", with_image(patch, image, count * patch), 0.25
    table = file.tensors.get("v.position_embd.weight")
    if table is not None:
        for count in (1, 3, 4, 7, 16):
            yield f"a table of {count}", with_table(count), 0.12
    for key in ("vision.projector.scale_factor", "vision.spatial_merge_size"):
        merge = keys.get(f"clip.{key}", 0)
        for new in [new for new in (1, 2, 3, 4) if merge and new != merge]:
            yield f"squares of {new}", with_merge(key, n, merge, new), 0.3
    if "mm.0.weight" in file.tensors and keys.get("clip.projector_type") == "mlp":
        for layers in ([1], [0, 1], [2], [0, 1, 2], [1, 2]):
            yield f"features after {layers}", with_features(n, layers), 0.6
    if "clip.vision.is_deepstack_layers" in keys:
        yield "another deepstack block", another_deepstack, 0.5
    if (pinpoints := keys.get("clip.vision.image_grid_pinpoints")) or "clip.vision.mm_patch_merge_type" in keys:
        count = int(random.integers(1, 6))
        grids = [image * int(m) for m in random.integers(1, 4, 2 * count)]
        yield f"canvases {grids}", with_value("vision.image_grid_pinpoints", grids), 0.6 if pinpoints else 0.2


def both(*changes: Change) -> Change:
    def change(file: GgufFile) -> None:
        for one in changes:
            one(file)

    return change


def resized(before: str, within: str, lengths: Mapping[int, int]) -> Change:
    """Other lengths of the dimensions of tensors whose names begin with `before`."""

    def change(file: GgufFile) -> None:
        for name, data in list(file.tensors.items()):
            shape = tuple(lengths.get(length, length) for length in data.shape)
            if name.startswith(before) and within in name and shape != data.shape:
                fresh(file, name, shape)

    return change


def with_blocks(side: str, old: int, new: int) -> Change:
    """Fewer blocks, or copies of the first with other numbers."""

    def change(file: GgufFile) -> None:
        with_value(f"{side}.block_count", new)(file)
        before = f"{side[0]}.blk."
        for name, data in list(file.tensors.items()):
            if not name.startswith(before):
                continue
            block, rest = name.removeprefix(before).split(".", 1)
            if int(block) >= new:
                del file.tensors[name]
            for i in range(old, new) if block == "0" else ():
                file.tensors[f"{before}{i}.{rest}"] = data
                fresh(file, f"{before}{i}.{rest}", data.shape)
                if name in file.float32:
                    file.float32.add(f"{before}{i}.{rest}")
        for key in EACH_BLOCK:
            values = dict(file.metadata).get(f"clip.{side}.{key}")
            if isinstance(values, list):
                padded = [*values, *[False if isinstance(values[0], bool) else -1] * new]
                with_value(f"{side}.{key}", padded[:new])(file)

    return change


def joined(before: str) -> Change:
    """Matrices of queries, keys and values as one."""

    def change(file: GgufFile) -> None:
        for name in [name for name in file.tensors if re.fullmatch(rf"{before}blk\.\d+\.attn_q\.weight", name)]:
            start = name.removesuffix("attn_q.weight")
            for end in ("weight", "bias"):
                parts = [file.tensors.pop(f"{start}{part}.{end}", None) for part in QKV]
                if end == "bias" and any(part is not None for part in parts):
                    size = file.tensors[f"{start}attn_qkv.weight"].shape[0] // 3
                    parts = [np.zeros(size, np.float32) if part is None else part for part in parts]
                found = [part for part in parts if part is not None]
                if found:
                    file.tensors[f"{start}attn_qkv.{end}"] = np.concatenate(found)
                    file.float32 |= {f"{start}attn_qkv.{end}"} if end == "bias" else set()

    return change


def divided(before: str) -> Change:
    """One matrix of queries, keys and values as three."""

    def change(file: GgufFile) -> None:
        for name in [name for name in file.tensors if re.match(rf"{before}blk\.\d+\.attn_qkv\.", name)]:
            data = file.tensors.pop(name)
            for part, values in zip(QKV, np.split(data, 3), strict=True):
                other = name.replace("attn_qkv", part)
                file.tensors[other] = values
                file.float32 |= {other} if name in file.float32 else set()

    return change


def swapped(before: str) -> Change:
    """The names of the two matrices of the feed-forward network swapped, as old conversions have them."""

    def change(file: GgufFile) -> None:
        for name in [name for name in file.tensors if name.startswith(before + "blk.") and ".ffn_up." in name]:
            other = name.replace("ffn_up", "ffn_down")
            if other in file.tensors:
                file.tensors[name], file.tensors[other] = file.tensors[other], file.tensors[name]

    return change


def with_patch(patch: int, image: int, new: int) -> Change:
    """Other patches, and as many of them."""

    def change(file: GgufFile) -> None:
        with_value("vision.patch_size", new)(file)
        with_value("vision.image_size", image // patch * new)(file)
        resized("v.patch_embd", "", {patch: new, 3 * patch**2: 3 * new**2})(file)

    return change


def with_image(patch: int, image: int, new: int) -> Change:
    """Larger or smaller pictures, with as many rows of the table."""

    def change(file: GgufFile) -> None:
        with_value("vision.image_size", new)(file)
        patches, others = (image // patch) ** 2, (new // patch) ** 2
        table = file.tensors.get("v.position_embd.weight")
        for more in (0, 1):  # of a class token
            if table is not None and table.ndim == 2 and len(table) == patches + more:
                fresh(file, "v.position_embd.weight", (others + more, table.shape[1]))

    return change


def with_table(side: int) -> Change:
    """A table of positions of another size."""

    def change(file: GgufFile) -> None:
        table = file.tensors["v.position_embd.weight"]
        shape: tuple[int, ...]
        if table.ndim == 3:
            shape = (2, 12 * side, table.shape[2]) if len(table) == 2 else (side, side, table.shape[2])
        else:
            shape = (side * side, table.shape[1])
        fresh(file, "v.position_embd.weight", shape)

    return change


def with_merge(key: str, n: int, old: int, new: int) -> Change:
    """Other squares of patches that become a token."""

    def change(file: GgufFile) -> None:
        with_value(key, new)(file)
        for before in ("mm.", "v.deepstack."):
            resized(before, "", {n * old**2: n * new**2})(file)
        merger = file.tensors.get("mm.patch_merger.weight")
        if merger is not None and merger.ndim == 4:
            fresh(file, "mm.patch_merger.weight", (*merger.shape[:2], new, new))

    return change


def with_features(n: int, layers: list[int]) -> Change:
    """The outputs of some blocks beside each other, as Granite Vision 3 has them."""

    def change(file: GgufFile) -> None:
        with_value("vision.feature_layer", layers)(file)
        fresh(file, "mm.0.weight", (len(file.tensors["mm.0.weight"]), n * len(layers)))

    return change


def another_deepstack(file: GgufFile) -> None:
    """The slice of a block is that of the next one."""
    marked: Any = dict(file.metadata)["clip.vision.is_deepstack_layers"]
    with_value("vision.is_deepstack_layers", marked[-1:] + marked[:-1])(file)
    for name in [name for name in file.tensors if name.startswith("v.deepstack.")]:
        block, rest = name.removeprefix("v.deepstack.").split(".", 1)
        moved = f"moved.{(int(block) + 1) % len(marked)}.{rest}"
        file.tensors[moved] = file.tensors.pop(name)
        file.float32 |= {moved.replace("moved", "v.deepstack")} if name in file.float32 else set()
    for name in [name for name in file.tensors if name.startswith("moved.")]:
        file.tensors[name.replace("moved", "v.deepstack")] = file.tensors.pop(name)
