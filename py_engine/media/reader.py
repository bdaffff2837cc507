"""Reads the metadata of one encoder of a projector, and checks each value."""

from __future__ import annotations

import re
from typing import Any

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.media.kinds import GROUPED, OMNI, OUTPUTS, WITHOUT_BLOCKS, YI_OUTPUT


class Reader:
    """Reads the metadata of one encoder."""

    def __init__(self, header: Header, modality: str = "") -> None:
        self.header = header
        self.modality = modality

    def of(self, modality: str) -> Reader:
        return Reader(self.header, modality)

    def has(self, modality: str) -> bool:
        return self.header.get(f"clip.has_{modality}_encoder") is True

    def get(self, key: str, default: Any = None) -> Any:
        return self.header.get(f"clip.{self.modality}.{key}", default)

    def count(self, key: str, default: int | None = None, most: int = (1 << 31) - 1) -> int:
        """Read a positive whole number, at most `most`. Required if there is no default."""
        value = self.get(key, default)
        if value is None:
            raise WispError(f"The projector lacks the metadata key clip.{self.modality}.{key}.", "missing_metadata")
        if type(value) is not int or not 0 < value <= most:
            limit = f", at most {most}" if most < (1 << 31) - 1 else ""
            raise self._bad(key, value, "a positive whole number" + limit)
        return value

    def numbers(self, key: str, length: int, least: float) -> tuple[float, ...]:
        """Read `length` numbers that are not below `least`."""
        value = self.get(key)
        if not isinstance(value, list) or len(value) < length:
            raise self._bad(key, value, f"a list of {length} numbers")
        if not all(type(n) in (int, float) and least <= n < 1e6 for n in value[:length]):
            raise self._bad(key, value, f"a list of {length} numbers, at least {least}")
        return tuple(float(n) for n in value[:length])

    def encoder(self, type: str) -> dict[str, Any]:
        """The fields of Encoder."""
        eps = self.get("attention.layer_norm_epsilon")
        if not isinstance(eps, float) or not 0 <= eps < 1:
            raise self._bad("attention.layer_norm_epsilon", eps, "a small number")
        n_embd, n_head, n_layer, n_ff = self.count("embedding_length"), 1, 0, 0
        if type not in WITHOUT_BLOCKS:
            n_head, n_layer = self.count("attention.head_count"), self.count("block_count")
            n_ff = self.count("feed_forward_length")
        if n_embd % n_head:
            raise self._bad("attention.head_count", n_head, f"a divisor of the width {n_embd}")
        return {
            "type": type, "n_embd": n_embd, "n_ff": n_ff, "n_layer": n_layer, "n_head": n_head, "eps": eps,
            "n_embd_inp": self.width(type),
            "n_head_kv": self.key_heads(n_head) if type in GROUPED else n_head,
        }  # fmt: skip

    def key_heads(self, n_head: int) -> int:
        """Heads of keys and values, each of several heads of queries."""
        found = self.count("attention.head_count_kv")
        if n_head % found:
            raise self._bad("attention.head_count_kv", found, f"a divisor of {n_head} heads")
        return found

    def name(self) -> object:
        """What the file calls the type of the encoder's projector."""
        name = self.header.get("clip.projector_type") or self.get("projector_type")
        return OMNI.get(str(name), {}).get(self.modality, name)

    def type(self, known: tuple[str, ...]) -> str:
        """The type of the encoder's projector."""
        name = self.name()
        if name not in known:
            what = "images" if self.modality == "vision" else "sound"
            raise WispError(
                f"Projectors of the type {str(name)[:60]!r} are not supported. Supported for {what}: "
                f"{', '.join(known)}.",
                "unsupported_projector",
            )
        return str(name)

    def width(self, type: str) -> int:
        """The width of the embeddings, deepstack included."""
        tensor, dimension = OUTPUTS[type]
        if type == "mlp" and YI_OUTPUT in self.header.tensors:
            tensor = YI_OUTPUT
        info = self.header.tensors.get(tensor)
        if info is None:
            raise WispError(f"The projector lacks the tensor {tensor}, which its type {type} needs.", "missing_tensor")
        if dimension >= len(info.shape):
            raise WispError(f"The projector's tensor {tensor} has the shape {info.shape}.", "bad_tensor_shape")
        return info.shape[dimension] * (1 + len(self.deepstack()))

    def deepstack(self) -> list[int]:
        """The blocks whose outputs are added to early layers of the text model."""
        return deepstack_blocks(self.header)

    def _bad(self, key: str, value: object, what: str) -> WispError:
        return WispError(
            f"clip.{self.modality}.{key} is {value!r:.100} in the projector's metadata; it must be {what}.",
            "corrupt_header",
        )

    def bad_value(self, key: str, what: str) -> WispError:
        return self._bad(key, self.get(key), what)


def deepstack_blocks(header: Header) -> list[int]:
    """The blocks with deepstack tensors, in order. As in llama.cpp, the metadata about them is not read."""
    names = (re.fullmatch(r"v\.deepstack\.(\d{1,4})\.fc1\.weight", name) for name in header.tensors)
    count = header.arch("vision.block_count", 0)
    return sorted(int(name[1]) for name in names if name and isinstance(count, int) and int(name[1]) < count)
