"""A model's files: mostly one, or a set named -00001-of-00003.gguf, each with a tensor table of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.records import plan_records


@dataclass(frozen=True)
class Parts:
    """Sources (shards.Source) and their headers, in order. `header` has the first's metadata and every tensor.

    The offsets of `header.tensors` count within the file that holds the tensor.
    """

    sources: list[Any]
    headers: list[Header]
    header: Header

    @classmethod
    def of(cls, source: Any, header: Any) -> Parts:
        """From one source and header, or lists of them. WispError truncated_file or corrupt_header for an odd set."""
        sources, headers = (x if isinstance(x, list) else [x] for x in (source, header))
        wanted = headers[0].get("split.count", 0) or 1
        if wanted != len(headers):
            raise WispError(
                f"This model is in {wanted} files and {len(headers)} were given. Load all of them together, in order.",
                "truncated_file",
            )
        tensors: dict[str, TensorInfo] = {}
        for number, one in enumerate(headers):
            if one.get("split.no", number) != number:
                raise WispError(
                    f"File {number + 1} of the set is number {one.get('split.no') + 1}. Load the files in order.",
                    "corrupt_header",
                )
            if twice := tensors.keys() & one.tensors.keys():
                raise WispError(f"Tensor {min(twice)} is in two of the files.", "corrupt_header")
            tensors |= one.tensors
        return cls(sources, headers, replace(headers[0], tensors=tensors))

    @property
    def size(self) -> int:
        """Bytes of all the files."""
        return sum(int(source.size) for source in self.sources)

    def begin(self) -> None:
        """Start fetching the first file, where it can be kept until its weights are asked for."""
        self.sources[0].begin(plan_records(self.headers[0], self.sources[0].size))

    async def read(self, tensor: str) -> bytes:
        """The bytes of one small tensor."""
        for source, header in zip(self.sources, self.headers, strict=True):
            if info := header.tensors.get(tensor):
                data: bytes = await source.read(header.data_offset + info.offset, info.nbytes)
                return data
        raise KeyError(tensor)
