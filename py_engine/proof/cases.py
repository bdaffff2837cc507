"""The cases of a plan: every distinct pipeline once, on little random data.

A case is one op, or ops that only make sense together: the two of decode attention, and a sampler's list. What an op
reads that must fit together (an expert's tiles, rounded rows) is computed by numpy first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import prod

import numpy as np

from py_engine.cpu.call import Array
from py_engine.cpu.executor import DTYPES, Cpu
from py_engine.plan import kernels
from py_engine.plan.cache import GROUP
from py_engine.plan.decode_attention import MERGED_SPLITS
from py_engine.plan.kernels import Device, Shader
from py_engine.plan.low_rank import SCALES
from py_engine.plan.op_list import pad
from py_engine.plan.plan import MATRICES, Buffer, Op, Plan, Weight
from py_engine.proof import sampler_data
from py_engine.proof.batches import READ_PAGES, Batch, batches_of
from py_engine.proof.case import Case
from py_engine.proof.meaningful_data import WITH_MEANING
from py_engine.proof.random_data import RandomData, Values, poison
from py_engine.proof.reduction import ATTENTIONS, PRODUCTS, Reduced, heads_of, reduced, tokens_of
from py_engine.proof.variants import SAMPLER_KERNELS

DERIVED = {"xq", "xq_scale", "x_scale", "chosen", "weights", "slots", "tiles"}  # bindings that numpy computes first
ROUTERS = {"route", "switch_adapters"}
PRODUCERS = {"quantize_rows", "group_experts"} | ROUTERS  # of DERIVED
ADDING = {  # to y or x, or that compute in place
    "add_media", "add_scaled", "soft_cap", "rope_append", "scale_by", "shift_scale", "pool", "normalize",
    "weighted_sum", "add_low_rank", "add_expert_low_rank", "add_direction", "altup_predict", "altup_correct", "laurel",
    "gate_ngrams", "index_append", "remix_streams", "scale_queries", "spread_streams", "window_append", "wkv7_inputs",
}  # fmt: skip
# their buffers may have several rows per token
OF_EXPERTS = {"experts", "group_experts", "activate", "weighted_sum", "expert_low_rank", "add_expert_low_rank"}
EXPERTS = 2  # of a mixture that a case uses
FOR_HALVES = 2**-7  # factor of inputs of products that are stored as f16, which ends at 65,504
JOINING = ("attention_combine", "attention_merge")  # kernels that join the splits of the attention before them
# Factor of keys in the newest pages, for attention in splits: the largest score is then in the last split.
# Attention of many tokens weighs in f16, and errs more where a few scores have all the weight.
LOUDER = 2.0
SMALL = 0.01  # factor of inputs that are normalised: large ones would hide a wrong eps


def cases(
    plan: Plan, device: Device, lists: Iterable[str], known: Callable[[Shader], bool], seed: int = 1
) -> Iterator[Case]:
    """A case for every pipeline of the lists that is not known. Some pipelines are in several cases."""
    maker, done = _Maker(plan, device, seed), set[str]()
    for name in lists:
        ops = plan.lists[name]
        for first, chain in _chains(ops):
            shaders = [maker.shader(op) for op in chain]
            new = {s.label for s in shaders if s.label not in done and not known(s)}
            if not new:
                continue
            done |= new
            yield from maker.cases(ops[:first], chain)


def _chains(ops: list[Op]) -> Iterator[tuple[int, list[Op]]]:
    """(index of the first op, ops that run together)."""
    if ops and ops[0].kernel.startswith(SAMPLER_KERNELS):
        yield 0, ops
        return
    for i, op in enumerate(ops):
        if op.kernel in JOINING:
            continue
        splits = op.kernel.startswith("attention") and op.params.get("SPLIT")
        joining = [next(op for op in ops[i:] if op.kernel in JOINING)] if splits else []
        yield i, [op, *joining]


class _Maker:
    """Makes the cases of one plan and seed."""

    def __init__(self, plan: Plan, device: Device, seed: int) -> None:
        self.plan, self.device, self.random = plan, device, RandomData(plan, seed)
        self._caches: dict[tuple[str, str, int, int, float], Array] = {}  # that cases share

    def shader(self, op: Op) -> Shader:
        return kernels.expand(op.kernel, op.params, self.device)

    def cases(self, before: list[Op], chain: list[Op]) -> Iterator[Case]:
        if chain[0].kernel.startswith(SAMPLER_KERNELS):
            for part in sampler_data.parts(chain, self.plan, self.random):
                case = Case(part.ops, [self.shader(op) for op in chain], part.batch, part.data)
                self._finish(case, [], {})
                yield case
            return
        capacity = _capacity(chain[0], self.plan)
        merged = next((int(op.params["MERGED"]) for op in chain if op.params.get("MERGED")), MERGED_SPLITS)
        for batch in batches_of(chain[0], self.plan, capacity, tokens_of(chain[0]), merged):
            yield self._case(before, chain, capacity, batch)

    def _case(self, before: list[Op], chain: list[Op], capacity: int, batch: Batch) -> Case:
        heads = max(heads_of(op) for op in chain if op.kernel.startswith("attention")) if _attends(chain[0]) else 1
        prelude = _producers(before, chain[0])
        parts = [reduced(op) for op in prelude]
        for op in chain:
            group = 1
            if op.kernel in JOINING:
                group = int(chain[0].params["G"]) * int(chain[0].params.get("SHARE", 1))
            parts.append(reduced(op, heads * group))
        case = Case([], [self.shader(op) for op in chain], batch)
        weights: dict[str, Values] = {}
        case.data["state"], self._pages = self.random.state(batch)
        ops = [self._filled(case, part, capacity, weights) for part in parts]
        case.ops = ops[len(prelude) :]
        self._finish(case, ops[: len(prelude)], weights)
        return case

    def _filled(self, case: Case, part: Reduced, capacity: int, weights: dict[str, Values]) -> Op:
        """Fill the buffers and weights of an op; the op with them."""
        op, bindings = part.op, dict(part.op.bindings)
        for name, bound in op.bindings.items():
            if isinstance(bound, Weight):
                small = replace(
                    bound,
                    name=f"{bound.name} {name}",
                    rows=part.rows.get(name, bound.rows),
                    cols=part.widths[name][0] if name in part.widths and name != "w" else bound.cols,
                )
                bindings[name] = small
                if name == "w" and op.params.get("EXPERTS"):
                    case.planes[small.name], weights[small.name] = self.random.experts(small, _expert_rows(op))
                    continue
                if name == "rates":  # states that grow would make rounding errors look like faults
                    case.planes[small.name], weights[small.name] = self.random.negative(small)
                    continue
                if name == "terms" and op.params.get("TERMS") == 4:  # a variance is among them
                    case.planes[small.name], weights[small.name] = self.random.positive(small)
                    continue
                case.planes[small.name], repeated = self.random.matrix(small)
                weights[small.name] = repeated if name in MATRICES else repeated[:]
            elif bound.name not in case.data:
                case.data[bound.name] = self._buffer(case, part, name, bound, capacity)
        return replace(op, bindings=bindings)

    def _buffer(self, case: Case, part: Reduced, name: str, b: Buffer, capacity: int) -> Array:
        """The data of a buffer that an op binds as `name`."""
        if b.name in self.plan.constants and name != "x":
            return self._constant(part.op, name, b)
        if name in WITH_MEANING and not (name == "index_mask" and self._written(part.op, name)):
            return WITH_MEANING[name](self.random, case.batch, part.op, b)
        # some of the scales from a position on; keys of every distance
        if b.name == SCALES or name in ("relative", "columns", "lines"):
            return self.random.shared(name, b.shape, "f32")
        if name == "w_qs":
            return self.random.shared(name, (part.rows[name], *b.shape[1:]), b.dtype)
        if b.pool == "kv":
            return self._cache(part, name, b)
        return self._activations(part, name, b, self._shape(case, part, name, b, capacity))

    def _constant(self, op: Op, name: str, b: Buffer) -> Array:
        """A constant of the plan, with zeros after it."""
        given = np.frombuffer(self.plan.constants[b.name], DTYPES[b.dtype])
        if name == "hashes":  # heads choose rows of the part of the table, and some beside it
            given = given.copy()
            given[2 * int(op.params["LONGEST"]) :].reshape(-1, 2)[:] = 0, op.consts["row0"] + op.consts["rows"] + 3
        return np.concatenate([given, np.zeros(prod(b.shape) - len(given), given.dtype)]).reshape(b.shape)

    def _shape(self, case: Case, part: Reduced, name: str, b: Buffer, capacity: int) -> tuple[int, ...]:
        """The shape of a buffer with rows for the batch's tokens, and one more."""
        op, n = part.op, case.batch.n
        if name == "tiles":
            return b.shape
        of_slots = op.kernel in OF_EXPERTS or "GROUPED" in op.params or op.params.get("SLOTS", 1) != 1
        rows = (n + 1) * (max(1, b.shape[0] // capacity) if of_slots else 1)
        if op.kernel == "norm" and b.shape[-1] == pad(int(op.params["COLS"])):  # several rows of x for one of the list
            rows *= int(op.grid[1])  # type: ignore[arg-type]
        if name == "expanded" or op.params.get("CACHED"):  # of all positions up to the batch's end
            rows = case.batch.places[-1][0] + 2
        if name == "sums":  # of each split
            rows = n * int(op.params["SPLIT"])
        rows, width = part.rows.get(name, rows), part.widths.get(name, b.shape[1:])
        return (rows, *width) if len(b.shape) > 1 or name in DERIVED else width or b.shape

    def _activations(self, part: Reduced, name: str, b: Buffer, shape: tuple[int, ...]) -> Array:
        """Random activations; poison where the op writes and does not add."""
        op = part.op
        if b.dtype == "u32" or (self._written(op, name) and not _adds(op, name)):
            return poison(shape, b.dtype)
        if name == "x" and (op.kernel in PRODUCTS or op.params.get("IN_ORDER")):
            halves = op.kernel == "matmul_matrix" and op.params["EPILOGUE"] in ("activate", "gated", "split")
            factor = (FOR_HALVES if halves else 1.0) * (SMALL if "eps" in op.consts else 1.0)
            return self.random.tokens(shape[0], shape[1], b.dtype, factor)
        if name == "parts":  # with denominators
            values = self.random.normal(shape, b.dtype)
            values[..., int(op.params["HEAD_DIM"]) + 1] = 1 + np.abs(values[..., int(op.params["HEAD_DIM"]) + 1])
            return values
        small = "eps" in op.consts and name in ("x", "added")
        return self.random.shared(name, shape, b.dtype, SMALL if small else 1.0)

    def _written(self, op: Op, name: str) -> bool:
        return self.shader(op).writes(name)

    def _cache(self, part: Reduced, name: str, b: Buffer) -> Array:
        """A cache's pages, or states: random, and NaN in the one that no block table has."""
        if len(b.shape) > 2:
            states = self.random.normal((self._pages + 1, *b.shape[1:]))
            states[-1] = np.nan
            return states
        width = part.widths.get(name, b.shape[1:])[0]
        louder = LOUDER if name == "k_cache" and part.op.kernel.startswith("attention_decode") else 1.0
        key = name, b.dtype, self._pages + 1, width, louder
        if key not in self._caches:
            self._caches[key] = self._pages_of(*key)
        return self._caches[key]

    def _pages_of(self, name: str, dtype: str, count: int, width: int, louder: float) -> Array:
        page = self.plan.page
        if dtype == "u32":
            cols = width * 4 * GROUP // (GROUP + 4)
            scales = np.abs(self.random.normal((count, page * cols // GROUP)))
            scales[-1] = np.nan
            scales[READ_PAGES:] *= np.float32(louder)
            words = self.random.levels((count, page * cols // 4))
            return np.concatenate([words, scales.view(np.uint32)], axis=1).reshape(count * page, width)
        values = self.random.normal((count * page, width), dtype)
        if louder != 1:
            values[READ_PAGES * page :] *= values.dtype.type(louder)
        values[-page:] = np.nan
        return values

    def _finish(self, case: Case, prelude: list[Op], weights: dict[str, Values]) -> None:
        """Run numpy: the prelude into the case's data, then the ops."""
        host = Cpu(_EMPTY, {})
        host.weights = weights  # type: ignore[assignment]
        host.buffers = dict(case.data)
        experts = min([EXPERTS, *(int(op.params["EXPERTS"]) for op in case.ops if "EXPERTS" in op.params)])
        for op in prelude:
            for b in op.bindings.values():
                if isinstance(b, Buffer):
                    host.buffers[b.name] = host.buffers[b.name].copy()
            host.run_op(op)
            if op.kernel in ROUTERS and any(
                "w" in product.bindings for product in case.ops
            ):  # not all experts have rows
                chosen = next(host.buffers[b.name] for name, b in op.bindings.items() if name == "chosen")
                chosen[: case.batch.n] = self.random.numbers.integers(0, experts, chosen[: case.batch.n].shape)
        for op in case.ops:
            if op.kernel == "group_experts":  # the first expert has one slot more than whole tiles
                chosen = host.buffers[op.bindings["chosen"].name]
                chosen[chosen == 0] = experts - 1
                chosen.reshape(-1)[0] = 0
            if op.kernel == "attention_decode" and op.params["FRESH"] and op.params["STATE_PER_TOKEN"]:
                for name in (op.bindings[binding].name for binding in ("k_cache", "v_cache")):
                    host.buffers[name] = host.buffers[name].copy()
                host.run_op(_kv_quantize(op))
        case.data = {name: np.ascontiguousarray(values) for name, values in host.buffers.items()}
        written = case.written()
        host.buffers = {name: values.copy() if name in written else values for name, values in case.data.items()}
        for op in case.ops:
            host.run_op(op)
        case.want = {name: host.buffers[name] for name in written}
        used = {b.name for op in case.ops for b in op.bindings.values()}
        case.data = {name: values for name, values in case.data.items() if name in used}


_EMPTY = Plan(1, 1, 1, buffers={"state": Buffer("state", (64,), "u32", "state")})


def _kv_quantize(op: Op) -> Op:
    """The op that stores a small batch's keys and values in a q8_0 cache, before its attention `op` reads them."""
    cols = int(op.consts["n_head_kv"]) * int(op.params["HEAD_DIM"])
    return replace(op, kernel="kv_quantize", params={**op.params, "COLS": cols})


def _adds(op: Op, name: str) -> bool:
    """Whether a kernel reads what it writes."""
    if op.kernel == "embed":
        return op.params["ROW"] != "token"
    if op.kernel == "mtp_input":  # with "own", x has the states before the tokens
        return name == "ring" or (name == "x" and op.params["HIDDEN"] == "own")
    adds = op.kernel in ADDING or op.params.get("EPILOGUE") in ("add", "accumulate")
    adds = adds or bool(op.params.get("ADD") or op.params.get("IN_PLACE"))
    return adds and name in (("streams",) if "streams" in op.bindings else ("x", "y"))


def _attends(op: Op) -> bool:
    return op.kernel in ATTENTIONS or op.kernel.startswith("attention_")


def _capacity(op: Op, plan: Plan) -> int:
    """Tokens that the op's list is planned for."""
    if op.params.get("STATE_PER_TOKEN"):
        return plan.max_small_batch
    for name in ("taps", "places"):
        if name in op.bindings:
            return op.bindings[name].shape[0]  # type: ignore[union-attr]
    shapes = {n: b.shape for n, b in op.bindings.items() if isinstance(b, Buffer) and b.pool == "activations"}
    if "slots" in shapes:
        return shapes["slots"][0] // int(op.params["USED"])
    if op.kernel in PRODUCTS:
        name = "parts" if op.params.get("MERGED") else "xq" if op.params.get("INT8") else "x"
        return op.bindings[name].shape[0]  # type: ignore[union-attr]
    if op.kernel == "quantize_rows":
        return shapes["x"][0] // int(op.params.get("SLOTS", 1))
    for name in ("chosen", "weights", "up", "q", "k_new"):
        if name in shapes:
            return shapes[name][0]
    if op.kernel == "activate":
        return shapes["x"][0] // (op.grid[2] if isinstance(op.grid[2], int) else 1)
    if op.kernel.startswith("index_join") or op.kernel == "compress":  # it binds no rows of the batch
        return plan.batch
    if op.kernel in ("normalize", "pick_rows"):
        return op.bindings["y"].shape[0]  # type: ignore[union-attr]
    return max((shape[0] for name, shape in shapes.items() if len(shape) > 1), default=1)


def _producers(before: list[Op], op: Op) -> list[Op]:
    """The ops before `op` that compute what it reads of DERIVED, in order."""
    found: list[Op] = []
    names = {b.name for name, b in op.bindings.items() if name in DERIVED and isinstance(b, Buffer)}
    for earlier in reversed(before):
        made = set[str]()
        if earlier.kernel in PRODUCERS:
            made = {b.name for name, b in earlier.bindings.items() if isinstance(b, Buffer) and name in DERIVED}
        if made & names:
            found.insert(0, earlier)
            names = (names - made) | {
                b.name
                for name, b in earlier.bindings.items()
                if (earlier.kernel, name) in (("group_experts", "chosen"), ("quantize_rows", "weights"))
            }
    return found


def _expert_rows(op: Op) -> list[tuple[int, int]]:
    """(first row, rows) of the first EXPERTS experts in each matrix of an op's part of the stack."""
    rows, experts, stack = (int(op.params[name]) for name in ("ROWS", "EXPERTS", "STACK"))
    weight, begin = op.bindings["w"], int(op.consts.get("first", 0))
    assert isinstance(weight, Weight)
    found = []
    for i in range(stack):
        first, end = (i * experts * rows - begin, (i * experts + min(EXPERTS, experts)) * rows - begin)
        first, end = max(0, first), min(weight.rows, end)
        if first < end:
            found.append((first, end - first))
    return found
