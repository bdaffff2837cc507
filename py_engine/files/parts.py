"""A model's files: one, or a set named -00001-of-00003.gguf, each with a tensor table of its own; its adapters, and its
draft model's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from py_engine.errors import WispError
from py_engine.files.adapter_header import check_model, is_adapter, prefixed
from py_engine.files.convolutions import flattened
from py_engine.files.draft_header import prefixed as prefixed_draft
from py_engine.files.draft_header import reads_states
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.records import plan_records

if TYPE_CHECKING:
    from py_engine.files.source import Source


@dataclass(frozen=True)
class Parts:
    """The sources of a model's files and their headers, in order. `header`: the first file's metadata and all tensors.

    The offsets in `header.tensors` count from the file that holds the tensor. LoRA adapters and control vectors come
    after the model's own files; the names of their tensors have prefixes (adapter_header.py). The files of a draft
    model come last; their tensors have a prefix, too (draft_header.py).
    """

    sources: list[Source]
    headers: list[Header]
    header: Header
    count: int  # of the model's own files
    draft: Header | None = None  # of the draft model: its metadata and all its tensors, by the names in the file
    adapters: list[Header] = field(default_factory=list)

    @classmethod
    def of(cls, source: Source | list[Source], header: Header | list[Header], draft_files: int = 0) -> Parts:
        """Create from one source and header, or lists of them. The last `draft_files` are a draft model's.

        WispError truncated_file or corrupt_header.
        """
        sources = source if isinstance(source, list) else [source]
        headers = [flattened(one) for one in (header if isinstance(header, list) else [header])]
        if not draft_files:
            return cls._of(sources, headers)
        own = cls._of(sources[:-draft_files], headers[:-draft_files])
        draft = cls._of(sources[-draft_files:], headers[-draft_files:])
        files = [prefixed_draft(one) for one in draft.headers]
        tensors = {name: info for one in files for name, info in one.tensors.items()}
        return replace(
            own,
            sources=sources,
            headers=[*own.headers, *files],
            header=replace(own.header, tensors=own.header.tensors | tensors),
            draft=draft.header,
        )

    @classmethod
    def _of(cls, sources: list[Source], headers: list[Header]) -> Parts:
        """The files of one model and its adapters."""
        expected = _number(headers[0], "split.count", 0) or 1
        check_model(headers[0])
        for number, one in enumerate(headers[expected:]):
            if is_adapter(one):
                headers[expected + number] = prefixed(one, number)
        if expected != sum(not is_adapter(one) for one in headers):
            raise WispError(
                f"This model has {expected} files, but {len(headers)} were given. Load all of them together, in order.",
                "truncated_file",
            )
        tensors: dict[str, TensorInfo] = {}
        for number, one in enumerate(headers):
            if number < expected and (found := _number(one, "split.no", number)) != number:
                raise WispError(
                    f"File {number + 1} of the set is number {found + 1}. Load the files in order.",
                    "corrupt_header",
                )
            if duplicates := tensors.keys() & one.tensors.keys():
                raise WispError(f"Tensor {min(duplicates)} is in two of the files.", "corrupt_header")
            tensors |= one.tensors
        return cls(sources, headers, replace(headers[0], tensors=tensors), expected, adapters=headers[expected:])

    @property
    def _own(self) -> list[Source]:
        """The files of the model and its adapters."""
        return self.sources[: self.count + len(self.adapters)]

    @property
    def size(self) -> int:
        """Bytes of all the files."""
        return sum(source.size for source in self.sources)

    @property
    def local(self) -> bool:
        """Whether all of the files are on this machine: nothing will be downloaded."""
        return all(source.local for source in self.sources)

    def prefetch(self) -> None:
        """Start to download the first file."""
        self.sources[0].prefetch(plan_records(self.headers[0], self.sources[0].size))

    async def content(self) -> str | None:
        """A text that differs where the bytes of what fills the model's caches do; None: not known.

        These are the model, its adapters, and a draft model that has keys and values of the model's hidden states.
        """
        reads = self.draft is not None and reads_states(self.draft)
        parts = [await source.content() for source in (self.sources if reads else self._own)]
        return " ".join(part for part in parts if part) if all(parts) else None

    async def read(self, tensor: str) -> bytes:
        """Read one small tensor."""
        for source, header in zip(self.sources, self.headers, strict=True):
            if info := header.tensors.get(tensor):
                return await source.read(header.data_offset + info.offset, info.nbytes)
        raise KeyError(tensor)


def _number(header: Header, key: str, default: int) -> int:
    """Read a number of a set of files."""
    value = header.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 16:
        raise WispError(f"{key} is {value!r:.100} in the file's metadata; it must be a whole number.", "corrupt_header")
    return value
