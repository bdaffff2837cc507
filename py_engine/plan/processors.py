"""Logits processors in WGSL: functions of a caller that change each logit on the GPU, before the sampler reads it.

A processor is the text of a function `process(token: u32, logit: f32, ...) -> f32`. Its other parameters are values of
each request, by their names. wgsl/process_logits.wgsl has what the function may call. Its dispatch runs in front of the
sampler's list, in the same submit: nothing is read back, and tokens are sampled ahead as without it.

Sequences that run side by side may have different processors: a dispatch changes only the rows of those that have its
own.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from py_engine.errors import WispError
from py_engine.plan import kernels
from py_engine.plan.lists import GREEDY, each
from py_engine.plan.plan import Buffer, Op, PerToken, Plan, Weight
from py_engine.plan.shared_constants import MAX_SEQUENCES

MAX_VALUES = 16  # of a processor's values
MAX_SOURCE = 1 << 16  # characters
THREADS = 256
RECORD = 2 + MAX_VALUES  # u32 of a sequence: the processor's number, the position of the answer's first token, values
CALL = f"{kernels.OWN}process"  # calls the caller's function with a request's values
PARAM = "logits_processor"  # of errors
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(r"\bfn\s+process\s*\(([^)]*)\)\s*->\s*(\w+)")
_PARAMETER = re.compile(r"(\w+)\s*:\s*(\w+)")
_READ = {"u32": "{}", "i32": "bitcast<i32>({})", "f32": "bitcast<f32>({})"}
_PACK = {"u32": "<I", "i32": "<i", "f32": "<f"}


@dataclass(frozen=True)
class Processor:
    """A checked processor with the values of a request. `table`: float32 for each token, or nothing."""

    source: str
    parameters: tuple[tuple[str, str], ...]  # (name, type) of the values, in the order of the function's parameters
    values: bytes = b""  # 4 bytes of each
    table: bytes = field(default=b"", repr=False)

    @cached_property
    def number(self) -> int:
        """What the sequences that use this function have in their record: a hash of its text; never 0."""
        about = f"{bool(self.table)} {self.source}".encode()
        return int.from_bytes(hashlib.blake2b(about, digest_size=4).digest()) | 1

    @property
    def list(self) -> str:
        """The list that runs it on one row of logits; each(list) on those of a small batch."""
        return f"process.{self.number:08x}"

    @property
    def code(self) -> str:
        """The function, and the one that calls it."""
        read = [_READ[kind].format(f"{kernels.OWN}value({i}u)") for i, (_, kind) in enumerate(self.parameters)]
        arguments = ", ".join(["token", "logit", *read])
        return f"{self.source}\nfn {CALL}(token: u32, logit: f32) -> f32 {{\n  return process({arguments});\n}}"

    def record(self, answer: int) -> bytes:
        """A sequence's record. `answer`: the position of the answer's first token."""
        return (struct.pack("<II", self.number, answer) + self.values).ljust(4 * RECORD, b"\0")

    def with_values(self, values: Mapping[str, float], table: bytes = b"") -> Processor:
        """The same function with the values of a request. WispError for values that do not fit its parameters."""
        names = [name for name, _ in self.parameters]
        if unknown := next((name for name in values if name not in names), None):
            raise refused(f"process() has no parameter {unknown!r}; its values are: {', '.join(names) or 'none'}.")
        packed = b""
        for name, kind in self.parameters:
            if name not in values:
                raise refused(f"process() has a parameter {name!r}, for which no value is given.")
            given = values[name]
            try:
                if kind != "f32" and int(given) != given:
                    raise ValueError
                packed += struct.pack(_PACK[kind], float(given) if kind == "f32" else int(given))
            except (struct.error, TypeError, ValueError, OverflowError):
                raise refused(f"The value of {name!r} is no {kind}: {given!r}.") from None
        return replace(self, values=packed, table=table)


def processor(source: str) -> Processor:
    """Check the form of a processor's text. WispError; the compiler's errors come when a device compiles it."""
    if not isinstance(source, str) or len(source) > MAX_SOURCE:
        raise refused(f"A processor's WGSL must be a text of at most {MAX_SOURCE} characters.")
    # Anywhere, comments included: what is a comment depends on how WGSL ends lines and nests comments.
    if "@" in source:
        raise refused("A processor's WGSL may have no @: no attributes such as @group, @bind or @compute.")
    if kernels.OWN in source:
        raise refused(f"Names that begin with {kernels.OWN} are Wisp's own; rename those of the processor's WGSL.")
    found = _FUNCTION.search(_COMMENT.sub("", source))
    if found is None or found[2] != "f32":
        raise refused("The WGSL has no function `fn process(token: u32, logit: f32) -> f32`, with or without values.")
    parameters = _PARAMETER.findall(found[1])
    if len(parameters) != len([part for part in found[1].split(",") if part.strip()]):
        raise refused("Each parameter of process() must be `name: type`.")
    if [kind for _, kind in parameters[:2]] != ["u32", "f32"]:
        raise refused("The first two parameters of process() must be the token, u32, and its logit, f32.")
    for name, kind in parameters[2:]:
        if kind not in _READ:
            raise refused(f"The parameter {name!r} of process() is of type {kind}; values are u32, i32 or f32.")
    if len(parameters) - 2 > MAX_VALUES:
        raise refused(f"process() has {len(parameters) - 2} values; at most {MAX_VALUES} are allowed.")
    return Processor(source, tuple(parameters[2:]))


def refused(message: str) -> WispError:
    """The error for a processor that cannot be used."""
    return WispError(message, "invalid_value", param=PARAM)


def needs_gpu() -> WispError:
    """The error of a device that compiles no WGSL."""
    return WispError(
        "This model runs on the CPU, which has no WGSL. Give the processor an equivalent in Python, or load the model "
        'with backend "webgpu".',
        "unsupported_parameter",
        param=PARAM,
    )


def record_buffer() -> Buffer:
    """The records of all sequences."""
    return Buffer("processors", (MAX_SEQUENCES, RECORD), "u32", "state")


def table_buffer(vocab: int) -> Buffer:
    """The tables of all sequences."""
    return Buffer("processor_tables", (MAX_SEQUENCES, vocab), "f32", "state")


def process_op(plan: Plan, used: Processor, logits: Buffer, many: bool = False) -> Op:
    """The dispatch that runs a processor. `many`: on the logits of a small batch, else on one row."""
    bindings: dict[str, Buffer | Weight] = {name: plan.buffers[name] for name in ("state", "tokens")}
    bindings |= {"processors": record_buffer(), "logits": logits}
    bindings |= {"tables": table_buffer(plan.n_vocab)} if used.table else {}
    return Op(
        "process_logits",
        {
            "STATE_PER_TOKEN": int(many),
            "TOKENS": plan.n_ctx + 1,
            "NUMBER": used.number,
            "RECORD": RECORD,
            "TABLE": int(bool(used.table)),
            "WG": THREADS,
            "PROCESS": used.code,
        },
        {"vocab": plan.n_vocab, "stride": logits.shape[-1]},
        bindings,
        (-(-plan.n_vocab // THREADS), PerToken() if many else 1, 1),
    )


def lists_of(plan: Plan, used: Processor) -> dict[str, list[Op]]:
    """The lists that run a processor on the logits that the samplers read."""
    found = {}
    for name, sampler in ((used.list, GREEDY), (each(used.list), each(GREEDY))):
        logits = plan.lists[sampler][0].bindings["logits"]
        assert isinstance(logits, Buffer)
        found[name] = [process_op(plan, used, logits, sampler != GREEDY)]
    return found
