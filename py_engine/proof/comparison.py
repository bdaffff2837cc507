"""Compares what a device computed with numpy's result, up to rounding.

Every value counts: a single wrong one is a fault. What numpy leaves untouched must be untouched on the device, too.
"""

from __future__ import annotations

import numpy as np

from py_engine.cpu.attention import cache_views
from py_engine.cpu.call import Array
from py_engine.cpu.sampling import filtered, is_greedy, settings_of
from py_engine.plan.cache import GROUP
from py_engine.plan.plan import Op
from py_engine.proof.case import PASSED_ON, REMOVED, Case, rms

# The largest error of a value, relative to the root mean square of the values, where a kernel
F32 = 3e-4  # computes in f32
STORED_F16 = 4e-3  # stores f16
DOT8 = 1e-2  # multiplies x rounded to int8: a value may be rounded the other way
F16 = 2e-2  # computes in f16
STORED_Q8_0 = 4e-2  # stores int8 with f32 scales
F16_STEP = 2.0**-10  # relative distance of two neighbouring f16

PAIRS = {"best": (0, 1), "drawn": (0, 1), "logprobs": (1, 0)}  # u32 pairs: places of (a float's bits, an id)
PADDING = {"embed", "norm"}  # kernels that also write their rows' padding


def fault(case: Case, got: dict[str, Array]) -> str | None:
    """What is wrong with the buffers `got` after a case; None if nothing is."""
    for name, (op, binding) in case.written().items():
        if binding == "bounds" and (why := _filter_difference(case, got)):
            return f"sample_bounds: {why}"
        if binding in PASSED_ON:
            continue
        want = case.want[name]
        if why := _difference(case, op, binding, got[name].reshape(want.shape), want):
            return f"{op.kernel}: {why}"
    return None


def _limit(op: Op, binding: str) -> float:
    params = op.params
    if op.kernel.startswith(("matmul", "attention")) and (params.get("HALVES") or params.get("Y16")):
        return F16
    if params.get("DOT8") or params.get("INT8") or op.kernel == "quantize_rows":
        return DOT8
    return STORED_F16 if _stores_f16(op, binding) else F32


def _stores_f16(op: Op, binding: str) -> bool:
    """Whether an op rounds what it writes to f16."""
    if op.kernel == "latent_expansion" or op.params.get("CACHED"):
        return True
    return (binding.endswith("cache") and op.params.get("KV") == "f16") or bool(op.params.get("Y16"))


def _difference(case: Case, op: Op, binding: str, got: Array, want: Array) -> str | None:
    if binding == "slots":
        return None if _same_slots(case, op, got, want) else "slots in another order"
    if binding in PAIRS:
        return _pairs_difference(got, want, *PAIRS[binding])
    if binding == "xq":
        levels = np.abs(got.view(np.int8).astype(np.int16) - want.view(np.int8))
        return None if levels.max(initial=0) <= 1 and (levels > 0).mean() < 0.01 else "other rounded values"
    if want.dtype == np.uint32:
        if binding in ("k_cache", "v_cache"):
            got, want = (_cached_values(op, values) for values in (got, want))
            return _float_difference(op, got, want, rms(want), STORED_Q8_0)
        return None if np.array_equal(got, want) else "other integers"
    size = case.sizes[op.bindings[binding].name]
    return _float_difference(op, got, want, size, _limit(op, binding), F16_STEP * _stores_f16(op, binding))


def _float_difference(op: Op, got: Array, want: Array, size: float, limit: float, step: float = 0.0) -> str | None:
    """Compare values where their bits differ: most of a cache is as it was."""
    differ = np.flatnonzero(_bits(got) != _bits(want))
    others, wanted = got.reshape(-1)[differ], want.reshape(-1)[differ]
    touched = ~np.isnan(wanted)
    if (~touched & ~np.isnan(others)).any():
        written = ~np.isnan(want)
        if op.kernel not in PADDING or not _is_padding(~written & ~np.isnan(got), written):
            return "values where none belong"
    return _error(others[touched], wanted[touched], size, limit, step)


def _bits(values: Array) -> Array:
    flat: Array = np.ascontiguousarray(values).reshape(-1)
    return flat.view(np.uint16 if values.dtype == np.float16 else np.uint32)


def _pairs_difference(got: Array, want: Array, value: int, token: int) -> str | None:
    numbers, others = (np.ascontiguousarray(pairs[..., value]).view(np.float32) for pairs in (want, got))
    valid = np.isfinite(numbers)
    if (got[..., token] != want[..., token])[valid].any():
        return "another token"
    if (others[~valid] > REMOVED).any():
        return "a token that a filter removes"
    return _error(others[valid], numbers[valid], rms(numbers[valid]), F32)


def _filter_difference(case: Case, got: dict[str, Array]) -> str | None:
    """Whether other tokens pass the filters' bounds than numpy's."""
    op = next(op for op in case.ops if op.kernel == "sample_draw")
    names = {name: b.name for name, b in op.bindings.items()}
    bounds = got[names["bounds"]].reshape(-1, 4)
    logits = case.want.get(names["logits"], case.data[names["logits"]]).reshape(-1, int(op.consts["stride"]))
    for m, (wanted, seq, at, _) in enumerate(got[names["rows"]].reshape(-1, 4)[: len(logits)]):
        parameters = settings_of(case.data[names["sampling"]][seq]) if wanted == 1 else None
        if parameters is None or is_greedy(parameters):
            continue
        row = logits[m, : int(op.consts["vocab"])]
        keys = keys_of(row)
        passed = (keys >= bounds[m, 0]) & (keys <= bounds[m, 1])
        if not np.array_equal(passed, filtered(row, parameters, int(at) + int(parameters["shifted"]))):
            return "other tokens pass the filters"
    return None


def keys_of(values: Array) -> Array:
    """Integers in the order of float32 values, as key_of of wgsl/lib/sampling.wgsl."""
    bits = values.view(np.uint32)
    found: Array = np.where(bits >> 31 == 1, ~bits, bits | np.uint32(0x80000000))
    return found


def _error(got: Array, want: Array, size: float, limit: float, step: float = 0.0) -> str | None:
    """Describe the largest error, if it exceeds `limit` times `size`, the right values' root mean square; else None.

    `step`: relative error of each value that counts as none, because it was rounded the other way.
    """
    if not want.size:
        return None
    got, want = got.astype(np.float32), want.astype(np.float32)
    error = float((np.abs(got - want) - step * np.abs(want)).max()) / size
    return None if error <= limit else f"off by {error:.2g} of its values' size"


def _cached_values(op: Op, cache: Array) -> Array:
    """The values of a q8_0 cache; NaN where its scales are."""
    cols = cache.shape[1] * 4 * GROUP // (GROUP + 4)
    values, scales = cache_views(cache, int(op.params["PAGE"]), cols)
    found: Array = values.reshape(*scales.shape, GROUP) * (scales / np.float32(127))[..., None]
    return found


def _is_padding(outside: Array, touched: Array) -> bool:
    """Whether nothing but the ends of groups of 32 is written in addition. Each part of a row may have such an end."""
    cols: Array = np.logical_or.reduce(touched, axis=0)
    groups = np.pad(cols, (0, -len(cols) % GROUP)).reshape(-1, GROUP)
    before_end = np.logical_or.accumulate(groups[:, ::-1], axis=1)[:, ::-1]  # a column of the same group follows
    ends = (groups.any(axis=1, keepdims=True) & ~before_end).reshape(-1)[: len(cols)]
    return not (outside & ~(touched.any(axis=1, keepdims=True) & ends)).any()


def _same_slots(case: Case, op: Op, got: Array, want: Array) -> bool:
    """Whether the slots equal numpy's in any order within an expert."""
    chosen = next(case.data[b.name] for name, b in op.bindings.items() if name == "chosen").reshape(-1)
    count = case.batch.n * int(op.params["USED"])
    used, unused = got.reshape(-1)[:count], got.reshape(-1)[count:]
    if (used >= count).any() or not np.array_equal(unused, want.reshape(-1)[count:]):
        return False
    in_order = bool((np.diff(chosen[used].astype(np.int64)) >= 0).all())
    return in_order and np.array_equal(used[np.lexsort((used, chosen[used]))], want.reshape(-1)[:count])
