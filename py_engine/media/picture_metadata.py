"""What a projector's header says of pictures: their patches, and the sizes that they are resized to."""

from __future__ import annotations

from py_engine.media.kinds import (
    CONVNEXT_SIDE,
    DEFAULT_MERGE,
    IN_FOURS,
    MERGE_KEYS,
    MOBILE_SIDE,
    MOBILE_SIZES,
    SAM_MERGE,
    SAM_PATCH,
    SAM_SIDE,
    SAM_TILES,
    SIZED_BY_FILE,
    STEP_LONGEST,
    STEP_TILE,
    TOKEN_LIMITS,
)
from py_engine.media.reader import Reader


def grid(reader: Reader, type: str) -> tuple[int, int, int]:
    """(side of a picture, side of a patch, patches along each side of a token's square)."""
    patch, merge, size = *_stated_patches(reader, type), reader.count("image_size")
    if type in SAM_TILES:  # whatever the metadata says
        return SAM_SIDE, SAM_PATCH, SAM_MERGE
    if type == "gemma4uv":  # its patches are as large as tokens
        return size, patch * merge, 1
    if type == "gemma3nv":
        if size not in MOBILE_SIZES:
            raise reader.bad_value("image_size", f"one of {', '.join(map(str, MOBILE_SIZES))}")
        return size, size // MOBILE_SIDE, merge
    if type == "yasa2":
        merge, left = divmod(size, patch * CONVNEXT_SIDE)
        if left:
            raise reader.bad_value("image_size", f"a multiple of {CONVNEXT_SIDE} patches of {patch} pixels")
    return size, patch, merge


def _stated_patches(reader: Reader, type: str) -> tuple[int, int]:
    """(side of a patch, patches along each side of a token's square), as the file says or the type has them."""
    patch, size = reader.count("patch_size"), reader.count("image_size")
    if patch > size:
        raise reader.bad_value("patch_size", f"at most the picture's {size} pixels")
    merge = DEFAULT_MERGE.get(type, 1)
    if type in MERGE_KEYS:
        merge = reader.count(MERGE_KEYS[type], merge)
    if type == "minicpmv4_6" and merge not in (2, 4):
        raise reader.bad_value(MERGE_KEYS[type], "2 or 4")
    if type in IN_FOURS and merge != 2:
        raise reader.bad_value(MERGE_KEYS[type], "2")
    if type == "step3vl":
        if merge != 4:
            raise reader.bad_value(MERGE_KEYS[type], "4")
        if size % (4 * patch) or STEP_TILE % (4 * patch):
            raise reader.bad_value("patch_size", f"a quarter of a divisor of {size} and {STEP_TILE} pixels")
    if type == "youtuvl" and (merge != 2 or patch % 8):
        raise reader.bad_value("patch_size", "a multiple of 8, with squares of 2 x 2 patches")
    return patch, merge


def pixel_limits(reader: Reader, type: str) -> tuple[int, int]:
    """The fewest and the most pixels of a resized picture; (0, 0): its size has no limits."""
    if type == "step3vl":  # it has pieces of two sizes
        low, high = sorted((reader.count("image_size"), STEP_TILE))
        return low**2, high**2
    patch, merge = _stated_patches(reader, type)
    token = (patch * merge) ** 2
    low, high = (tokens * token for tokens in TOKEN_LIMITS.get(type, (0, 0)))
    if type in SIZED_BY_FILE and (type != "kimik25" or _states_sizes(reader)):
        low = reader.count("image_min_pixels", low or None)
        high = reader.count("image_max_pixels", high or None)
        if high < max(low, token):
            raise reader.bad_value("image_max_pixels", "at least those of a token, and at least image_min_pixels")
    return low, high


def longest_edge(reader: Reader, type: str, size: int) -> int:
    """The longest side of resized pictures; 0: the picture's own. Older files of idefics3 lack it."""
    if type == "idefics3" and reader.get("preproc_image_size", 0) == 0:
        return 0
    if type == "step3vl":
        return reader.count("preproc_image_size", STEP_LONGEST) if reader.get("preproc_image_size") else STEP_LONGEST
    return reader.count("preproc_image_size", size) if type in ("idefics3", "lightonocr") else 0


def _states_sizes(reader: Reader) -> bool:
    """Whether the file states both limits of a picture's size."""
    return bool(reader.get("image_min_pixels")) and bool(reader.get("image_max_pixels"))
