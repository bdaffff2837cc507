"""What a module of models/ must define. families.py lists the modules; mypy checks each against this protocol."""

from __future__ import annotations

from typing import Protocol, TypeVar

from py_engine.files.gguf_header import Header
from py_engine.models import config
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

C = TypeVar("C", bound=config.Config)
C_co = TypeVar("C_co", bound=config.Config, covariant=True)


class ConfigType(Protocol[C_co]):
    """The module's Config class."""

    def from_gguf(self, header: Header) -> C_co:
        """Read and check the metadata. WispError missing_metadata, corrupt_header or unsupported_architecture."""


class Architecture(Protocol[C]):
    """A family of architectures. Encoders define only this."""

    @property
    def NEOX(self) -> bool:
        """The pairs that RoPE rotates: (i, i + n/2) if true, (2i, 2i + 1) if false."""

    @property
    def Config(self) -> ConfigType[C]:
        """The class of the hyperparameters."""

    def build(self, cfg: C, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
        """Append the layers; return the last hidden state (n, n_embd)."""


class Decoder(Architecture[C], Protocol[C]):
    """A family that generates text."""

    def output(self, cfg: C, w: Weights, ops: Ops, x: Buffer, all_tokens: bool = False) -> Buffer:
        """Append the head; return the logits of the last token (vocab,), or of all tokens (n, padded vocab)."""
