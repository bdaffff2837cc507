"""Qwen2-VL's encoder of pictures in float64, by the model's own definition: two frames, each with its own kernel.

Source of the order of patches and of the rotation: transformers' Qwen2VLImageProcessor and Qwen2VisionTransformer.
"""

from typing import Any

import numpy as np

from tests.support.media import VISION, golden, header_of

Array = np.ndarray[Any, np.dtype[np.float64]]
THETA = 10000.0  # of the rotation
KERNELS = "v.patch_embd.weight", "v.patch_embd.weight.1"  # of the frames' patches
TYPES = {"F16": "<f2", "F32": "<f4"}


class Reference:
    """The encoder of the golden qwen2vl."""

    def __init__(self) -> None:
        self.vision = golden("qwen2vl").projector.need_vision()
        path = VISION / golden("qwen2vl").about["mmproj"]
        self._header, self._data = header_of(path), path.read_bytes()

    def encode(self, first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> Array:
        """The embeddings of two frames, uint8 (height, width, 3) each, resized: (n_tokens, width)."""
        height, width = (side // self.vision.patch_size for side in first.shape[:2])
        kernels = [self._weight(name).reshape(self.vision.n_embd, -1).T for name in KERNELS]
        x = self._patches(first) @ kernels[0] + self._patches(second) @ kernels[1]
        row_and_column = np.moveaxis(np.indices((height, width)), 0, -1).astype(np.float64)
        turns = self._turns(_by_squares(row_and_column))
        for block in range(self.vision.n_layer):
            x = self._block(x, f"v.blk.{block}.", turns)
        x = self._normed(x, "v.post_ln").reshape(len(x) // 4, -1)
        return self._projected(_gelu(self._projected(x, "mm.0")), "mm.2")

    def _patches(self, frame: np.ndarray[Any, Any]) -> Array:
        """The patches of a frame, in squares of 2 x 2: (n, 3 * side^2), colour by colour."""
        side, mean, deviation = self.vision.patch_size, np.array(self.vision.mean), np.array(self.vision.std)
        height, width = frame.shape[0] // side, frame.shape[1] // side
        values = (frame / 255.0 - mean) / deviation
        return _by_squares(
            values.reshape(height, side, width, side, 3).transpose(0, 2, 4, 1, 3).reshape(height, width, -1)
        )

    def _turns(self, places: Array) -> Array:
        """The angle of each pair of a head's values, (n, 1, head / 2): the first half by row, the second by column."""
        size = self.vision.n_embd // self.vision.n_head
        speeds = THETA ** (-np.arange(size // 4) * 4 / size)
        return np.concatenate([places[:, :1] * speeds, places[:, 1:] * speeds], axis=1)[:, None]

    def _block(self, x: Array, name: str, turns: Array) -> Array:
        n = len(x)
        normed = self._normed(x, name + "ln1")
        if name + "attn_qkv.weight" in self._header.tensors:
            parts = np.split(self._projected(normed, name + "attn_qkv"), 3, axis=-1)
        else:
            parts = [self._projected(normed, f"{name}attn_{part}") for part in "qkv"]
        q, k, v = (part.reshape(n, self.vision.n_head, -1) for part in parts)
        scores = np.einsum("nhd,mhd->hnm", _rotated(q, turns), _rotated(k, turns)) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        x = x + self._projected(np.einsum("hnm,mhd->nhd", weights, v).reshape(n, -1), name + "attn_out")
        hidden = self._projected(self._normed(x, name + "ln2"), name + "ffn_up")
        return x + self._projected(hidden / (1 + np.exp(-1.702 * hidden)), name + "ffn_down")

    def _normed(self, x: Array, name: str) -> Array:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.vision.eps)
        return x * self._weight(name + ".weight") + self._weight(name + ".bias")

    def _projected(self, x: Array, name: str) -> Array:
        return x @ self._weight(name + ".weight").T + self._weight(name + ".bias")

    def _weight(self, name: str) -> Array:
        info = self._header.tensors[name]
        begin = self._header.data_offset + info.offset
        values = np.frombuffer(self._data[begin : begin + info.nbytes], TYPES[info.type.name])
        return values.reshape(info.shape[::-1]).astype(np.float64)


def _by_squares(grid: Array) -> Array:
    """A grid (height, width, values) as rows: four of a square follow each other."""
    height, width, _ = grid.shape
    return grid.reshape(height // 2, 2, width // 2, 2, -1).transpose(0, 2, 1, 3, 4).reshape(height * width, -1)


def _rotated(x: Array, turns: Array) -> Array:
    """Pairs (i, i + half) of a head's values, turned."""
    half = x.shape[-1] // 2
    a, b, cosine, sine = x[..., :half], x[..., half:], np.cos(turns), np.sin(turns)
    return np.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=-1)


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
