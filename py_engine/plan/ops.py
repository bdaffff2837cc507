"""The vocabulary that models/*.py are written in, and its lowering to dispatches.

A model's layer is one sequence of calls (embed, qkv, attention, linear, gated, head). `Ops` with batch 1 lowers them
to the fused dispatches of decoding, six a layer; with a larger batch to the tiled ones of prefill; `each` to the fused
ones for MAX_SMALL_BATCH tokens at most, which have a State each, so that they may be of several sequences. Shapes
here are (tokens, columns); a row of an activation is padded to whole groups of 32.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan import quants, tiles
from py_engine.plan.cache import GROUP as CACHE_GROUP
from py_engine.plan.cache import Cache
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Buffer, Op, PerToken, Plan, Weight
from py_engine.plan.rope import Rope
from py_engine.plan.shared import MAX_SMALL_BATCH, THREADS

QUANTIZERS = 256  # threads of quantize_rows.wgsl
EMBED_THREADS = 32  # threads of a workgroup of embed.wgsl
SOFT_CAP_THREADS = 256  # threads of a workgroup of soft_cap.wgsl


def pad(cols: int) -> int:
    """Columns of an activation row: whole groups."""
    return quants.groups(cols) * quants.GROUP


@dataclass(frozen=True)
class HeadNorm:
    """A norm of queries and of keys: of each head, or, `wide`, of all of them at once.

    `weight` and `bias`: a query head's and a key head's end to end, or all queries' and all keys'. `mean`: the layer
    norm, not the RMS norm. `values`: each value head is normalised, too, without weights.
    """

    weight: Weight
    bias: Weight | None = None
    wide: bool = False
    mean: bool = False
    values: bool = False


class Ops:
    """Appends ops to `plan.lists[name]` for batches of at most `batch` tokens."""

    def __init__(self, plan: Plan, name: str, batch: int, device: Device, state_per_token: bool = False) -> None:
        self.plan, self.batch, self.device = plan, batch, device
        self.name, self.state_params = name, {"STATE_PER_TOKEN": int(state_per_token)}
        self.small = batch == 1 or state_per_token
        self.ops: list[Op] = plan.lists.setdefault(name, [])
        self.state = (
            self.buffer("states", (MAX_SMALL_BATCH, 4), "u32", "state")
            if state_per_token
            else self.buffer("state", (4,), "u32", "state")
        )
        self.tokens = self.buffer("tokens", (MAX_SMALL_BATCH, plan.n_ctx + 1), "u32", "state")
        self.logits: Buffer | None = None
        self._fresh: Cache | None = None  # whose newest keys and values are still in f32

    # -- buffers ------------------------------------------------------------------------------------------------------

    def buffer(self, name: str, shape: tuple[int, ...], dtype: str = "f32", pool: str = "activations") -> Buffer:
        """The plan's buffer of that name, made when it is new."""
        b = Buffer(name, shape, dtype, pool)
        known = self.plan.buffers.setdefault(name, b)
        if known != b:
            raise ValueError(f"buffer {name} is {known.shape} {known.dtype}, not {shape} {dtype}")
        return known

    def rows(self, name: str, cols: int) -> Buffer:
        """An activation (batch, cols padded), private to this list: of the layers where theirs are as wide."""
        shape, known = (self.batch, pad(cols)), self.plan.buffers.get(f"{self.name}.{name}")
        apart = known is not None and known.shape != shape
        return self.buffer(f"{self.name}.{name}" + (f".{cols}" if apart else ""), shape)

    def add(self, kernel: str, params: dict, consts: dict, bindings: dict, *grid: int | PerToken) -> None:
        """Append one dispatch."""
        x, y, z = (*grid, 1, 1)[:3]
        self.ops.append(Op(kernel, params, consts, bindings, (x, y, z)))

    # -- ops ----------------------------------------------------------------------------------------------------------

    def embed(self, table: Weight, scale: float = 1.0, row: str = "token", name: str = "x") -> Buffer:
        """x (n, cols), or the buffer of that name: the rows of the batch's tokens. `row` "position" adds those of their
        positions to x, "first" the table's first row.
        """
        x = self.rows(name, table.cols)
        for row0, part in table.split(self.device.max_binding):
            self.add(
                "embed",
                {
                    "QUANT": part.layout.fragment,
                    "COLS": table.cols,
                    "ROW": row,
                    "TOKENS": self.tokens.shape[1],
                    "WG": EMBED_THREADS,
                }
                | self.state_params,
                {"row0": row0, "rows": part.rows, "scale": scale},
                {"state": self.state, "tokens": self.tokens, "w": part, "x": x},
                -(-quants.groups(table.cols) // EMBED_THREADS),
                PerToken(),
            )
        return x

    def rms_norm(self, name: str, x: Buffer, norm: Weight, eps: float) -> Buffer:
        """x / rms(x) * norm, row by row."""
        return self._norm(x, norm, None, self.rows(name, norm.cols), eps, mean=False, add=False)

    def layer_norm(self, name: str, x: Buffer, norm: Weight, bias: Weight | None, eps: float) -> Buffer:
        """(x - mean(x)) / deviation(x) * norm + bias, for every row of x."""
        y = self.buffer(f"{self.name}.{name}", x.shape)
        return self._norm(x, norm, bias, y, eps, mean=True, add=False)

    def add_norm(self, x: Buffer, norm: Weight, add_to: Buffer, eps: float) -> None:
        """add_to += x / rms(x) * norm."""
        self._norm(x, norm, None, add_to, eps, mean=False, add=True)

    def _norm(
        self, x: Buffer, norm: Weight, bias: Weight | None, y: Buffer, eps: float, *, mean: bool, add: bool
    ) -> Buffer:
        self.add(
            "norm",
            {"COLS": norm.cols, "WG": 64, "MEAN": int(mean), "BIAS": int(bias is not None), "ADD": int(add)},
            {"eps": eps},
            {"x": x, "norm": norm, "y": y} | ({"bias": bias} if bias else {}),
            PerToken(),
        )
        return y

    def add_scaled(self, x: Buffer, scale: float, add_to: Buffer, gate: Buffer | None = None) -> None:
        """add_to += scale * x; with a gate, a number for each token: * sigmoid(gate)."""
        self.add(
            "add_scaled",
            {"VECS": x.shape[1] // 4, "GATED": int(gate is not None)},
            {"scale": scale},
            {"state": self.state, "x": x, "y": add_to} | ({"gate": gate} if gate else {}),
            -(-x.shape[1] // (4 * THREADS)),
            PerToken(),
        )

    def qkv(
        self, x: Buffer, norm: Weight | None, stack: list[Weight], bias: Weight | None, cache: Cache,
        heads: tuple[int, int, int], rope: Rope, eps: float, qk_norm: HeadNorm | None = None,
    ) -> Buffer:  # fmt: skip
        """Norm (RMS), stacked q, k and v rows, rotation, append to the cache; gives the queries (n, stride).

        `heads` is (n_head, n_head_kv, head_dim). The stride is that of the stacked rows where they are not fused.
        `qk_norm`: another norm before the rotation.
        """
        n_head, n_head_kv, head_dim = heads
        if sum(w.rows for w in stack) == n_head * head_dim:  # queries alone: the cache is another layer's
            n_head_kv = 0
        params = {
            "HEAD_DIM": head_dim, "ROPE_DIM": rope.dim, "NEOX": int(rope.neox), "KV": cache.kind, "RING": cache.ring,
            "KV_ROWS": cache.rows,
        }  # fmt: skip
        consts = {"q_rows": n_head * head_dim, "kv_rows": n_head_kv * head_dim, "rope_scale": rope.scale}
        stores = {"rope_freqs": rope.freqs} | cache.written
        if self._fuses(stack) and qk_norm is None:
            y = self.rows("q", n_head * head_dim)
            self._matvec(x, stack[0], bias, y, "qkv", norm, eps, params, consts, stores)
            self.quantize_cache(cache, n_head_kv * head_dim)
            return y
        rows = self.normed_stack("qkv", x, norm, stack, bias, eps)
        if qk_norm is not None:
            y = self.rows("q", n_head * head_dim)
            threads = 16
            while 4 * threads < head_dim:
                threads *= 2
            self.add(
                "norm_rope_append",
                params
                | self.state_params
                | {
                    "WG": threads,
                    "NORM_ALL": int(qk_norm.wide),
                    "PER_HEAD": int(qk_norm.weight.cols > 2 * head_dim),
                    "MEAN": int(qk_norm.mean),
                    "NORM_VALUES": int(qk_norm.values),
                    "BIAS": int(qk_norm.bias is not None),
                },
                consts | {"x_stride": rows.shape[1], "y_stride": y.shape[1], "eps": eps},
                {"state": self.state, "x": rows, "norm": qk_norm.weight, "y": y}
                | stores
                | ({"bias": qk_norm.bias} if qk_norm.bias else {}),
                n_head + 2 * n_head_kv,
                PerToken(),
            )
            self.quantize_cache(cache, n_head_kv * head_dim)
            return y
        self.add(
            "rope_append",
            params | self.state_params,
            consts | {"y_stride": rows.shape[1]},
            {"state": self.state, "y": rows} | stores,
            -(-sum(w.rows for w in stack) // (4 * THREADS)),
            PerToken(),
        )
        self.quantize_cache(cache, n_head_kv * head_dim)
        return rows

    def quantize_cache(self, cache: Cache, cols: int) -> None:
        """Bring what was staged for a q8_0 cache into it."""
        if cache.staged is None or not cols:
            return
        if self.batch == 1:  # attention_combine.wgsl does it on the way
            self._fresh = cache
            return
        self.add(
            "kv_quantize",
            {"COLS": cols, "KV_ROWS": cache.rows, "RING": cache.ring} | self.state_params,
            {"groups": cols // CACHE_GROUP},
            {"state": self.state} | cache.fresh | cache.read,
            -(-2 * cols // CACHE_GROUP // THREADS),
            PerToken(),
        )

    def attention(
        self, q: Buffer, cache: Cache, heads: tuple[int, int, int], scale: float, window: int = 0,
        soft_cap: float = 0.0, sinks: Weight | None = None, causal: bool = True, slopes: Buffer | None = None,
    ) -> Buffer:  # fmt: skip
        """Attention over the cache: (n, n_head * head_dim).

        `window`: a token sees itself and the window - 1 before it; `soft_cap`: scores are cap * tanh(score / cap);
        `sinks`: a score more for each head, which takes its share and has no value. Not `causal`: the batch is the
        whole sequence, a token sees all of it, or half a window to either side. `slopes` (heads): scores fall with
        the distance.
        """
        sunk = {"SINKS": int(sinks is not None)}
        sink_bound = {"sinks": sinks} if sinks else {}
        n_head, n_head_kv, head_dim = heads
        group = n_head // n_head_kv
        y = self.rows("attn", n_head * head_dim)
        kind: dict[str, int | float | str] = {
            "HEAD_DIM": head_dim, "G": group, "WINDOW": window, "SOFT_CAP": float(soft_cap), **cache.layout,
        }  # fmt: skip
        bound = {"state": self.state, "q": q} | cache.read
        if not self.small:
            kernel, tile = tiles.attention(self.device, self.batch, head_dim, group, causal and slopes is None)
            encoder = {"CAUSAL": int(causal), "ALIBI": int(slopes is not None)} if kernel == "attention" else {}
            self.add(
                kernel,
                kind | tile | sunk | encoder,
                {"scale": scale, "q_stride": q.shape[1], "n_head_kv": n_head_kv},
                bound | {"y": y} | sink_bound | ({"slopes": slopes} if slopes else {}),
                n_head_kv,
                PerToken(tile["TQ"]),
            )
            return y
        positions, parts_each, split = tiles.attention_decode(self.device, self.plan.n_ctx, head_dim, group)
        assert self._fresh in (None, cache), "a token's keys and values wait for the attention over their own cache"
        fresh, self._fresh = self._fresh is not None, None
        groups = 2 * n_head_kv * head_dim // CACHE_GROUP
        lanes = 2 if self.device.software else max(1, min(16, 1024 // head_dim))
        parts = self.buffer(f"{self.name}.parts.{head_dim}", (self.batch, n_head, split, head_dim + 4))
        self.add(
            "attention_decode",
            kind
            | {"TS": positions, "SPLIT": split, "PARTS": parts_each, "FRESH": int(fresh)}
            | tiles.attention_loads(cache.kind, head_dim, positions, parts_each)
            | self.state_params,
            {"scale": scale, "n_head_kv": n_head_kv, "q_stride": q.shape[1]},
            bound | {"parts": parts} | (cache.fresh if fresh else {}),
            n_head_kv,
            split,
            PerToken(),
        )
        self.add(
            "attention_combine",
            {"HEAD_DIM": head_dim, "TS": positions, "SPLIT": split, "WINDOW": window}
            | {"LANES": lanes, "FRESH": int(fresh)}
            | ({"COLS": n_head_kv * head_dim, "KV_ROWS": cache.rows, "RING": cache.ring} if fresh else {})
            | self.state_params
            | sunk,
            {"n_head": n_head, "y_stride": y.shape[1]},
            {"state": self.state, "parts": parts, "y": y} | sink_bound | (cache.fresh | cache.read if fresh else {}),
            n_head + (-(-groups // (lanes * head_dim // 4)) if fresh else 0),
            1,
            PerToken(),
        )
        return y

    def linear(self, x: Buffer, weight: Weight, bias: Weight | None, add_to: Buffer) -> None:
        """add_to += x W^T + bias."""
        self._product(x, weight, bias, add_to, "add")

    def project(self, name: str, x: Buffer, weight: Weight, bias: Weight | None) -> Buffer:
        """x W^T + bias."""
        y = self.rows(name, weight.rows)
        self._product(x, weight, bias, y, "store")
        return y

    def gated(
        self, x: Buffer, norm: Weight | None, stack: list[Weight], bias: Weight | None, eps: float,
        activation: str = "silu",
    ) -> Buffer:  # fmt: skip
        """activation(gate) * up of the normalised (RMS) x; `stack` is the gate's rows on the up's."""
        y = self.rows("hidden", sum(w.rows for w in stack) // 2)
        if self._fuses(stack):
            self._matvec(x, stack[0], bias, y, "gated", norm, eps, {"ACTIVATION": activation})
            return y
        both = self.normed_stack("gate_up", x, norm, stack, bias, eps)
        return self.activate(both, y, sum(w.rows for w in stack) // 2, activation, gated=True)

    def activated(
        self, x: Buffer, norm: Weight | None, weight: Weight, bias: Weight | None, eps: float, activation: str
    ) -> Buffer:
        """activation(up) of the normalised (RMS) x."""
        y = self.rows("hidden", weight.rows)
        return self.activate(
            self.normed_stack("up", x, norm, [weight], bias, eps), y, weight.rows, activation, gated=False
        )

    def activate(self, x: Buffer, y: Buffer, cols: int, activation: str, *, gated: bool, repeat: int = 1) -> Buffer:
        """y = activation(x) of `repeat` rows a token; gated: activation(gate) * up of stacked rows."""
        self.add(
            "activate",
            {"COLS": cols, "ACTIVATION": activation, "GATED": int(gated)},
            {"x_stride": x.shape[1], "y_stride": y.shape[1]},
            {"state": self.state, "x": x, "y": y},
            -(-cols // THREADS),
            PerToken(),
            repeat,
        )
        return y

    def head(
        self, x: Buffer, norm: Weight | None, weight: Weight, eps: float, every: bool = False,
        bias: Weight | None = None,
    ) -> Buffer:  # fmt: skip
        """Logits of the batch's last token (vocab,), or of every token (n, vocab padded)."""
        if self.state_params["STATE_PER_TOKEN"]:
            return self._stacked("logits", x, [weight], bias, norm, eps)
        if every:
            logits = self.rows("logits", weight.rows)
            normed = self.rms_norm("normed", x, norm, eps) if norm else x
            self._product(normed, weight, bias, logits, "store")
            return logits
        logits = self.buffer("logits", (weight.rows,))
        for first, part in weight.split(self.device.max_binding):
            self._matvec(x, part, bias, logits, "store", norm, eps, row0=first)
        return logits

    def soft_cap(self, logits: Buffer, scale: float, cap: float) -> None:
        """logits *= scale; then, with a cap, cap * tanh(logits / cap)."""
        cols = logits.shape[-1]
        self.add(
            "soft_cap",
            {"COLS": cols, "CAP": float(cap), "WG": SOFT_CAP_THREADS},
            {"scale": scale},
            {"y": logits},
            -(-cols // SOFT_CAP_THREADS),
            PerToken() if len(logits.shape) > 1 else 1,
        )

    # -- matrices -----------------------------------------------------------------------------------------------------

    def _fuses(self, stack: list[Weight]) -> bool:
        """Few tokens, and all the rows in one binding."""
        return self.small and len(stack) == 1 and len(stack[0].split(self.device.max_binding)) == 1

    def normed_stack(
        self, name: str, x: Buffer, norm: Weight | None, stack: list[Weight], bias: Weight | None, eps: float
    ) -> Buffer:
        """The stacked rows of the normalised x: (n, rows padded)."""
        if norm and self._fuses(stack):
            y = self.rows(name, stack[0].rows)
            self._matvec(x, stack[0], bias, y, "store", norm, eps)
            return y
        return self._stacked(name, self.rms_norm("normed", x, norm, eps) if norm else x, stack, bias)

    def _stacked(
        self, name: str, x: Buffer, stack: list[Weight], bias: Weight | None, norm: Weight | None = None,
        eps: float = 0.0,
    ) -> Buffer:  # fmt: skip
        y = self.rows(name, sum(w.rows for w in stack))
        row0 = 0
        for weight in stack:
            self._product(x, weight, bias, y, "store", row0, norm, eps)
            row0 += weight.rows
        return y

    def _product(
        self, x: Buffer, weight: Weight, bias: Weight | None, y: Buffer, epilogue: str, row0: int = 0,
        norm: Weight | None = None, eps: float = 0.0,
    ) -> None:  # fmt: skip
        """y[:, row0:] = or += x W^T + bias[row0:], in as many parts as the binding limit asks for. A norm of x is for
        few tokens alone.
        """
        for first, part in weight.split(self.device.max_binding):
            if self.small:
                self._matvec(x, part, bias, y, epilogue, norm, eps, row0=row0 + first)
            else:
                self._matmul(x, part, bias, y, epilogue, row0 + first)

    def _matvec(
        self, x: Buffer, weight: Weight, bias: Weight | None, y: Buffer, epilogue: str, norm: Weight | None = None,
        eps: float = 0.0, params: dict | None = None, consts: dict | None = None, bindings: dict | None = None,
        row0: int = 0,
    ) -> None:  # fmt: skip
        vectors: dict[str, Buffer | Weight] = {"x": x}
        if self.batch > 1:
            dot8 = self.device.dot8 and weight.layout.dot8
            kernel, kind = "matvec_small_batch", {"BATCH": self.batch, "DOT8": int(dot8)}
            tile = tiles.matvec_small_batch(self.device, weight, dot8)
            if dot8:
                vectors, norm = self._quantized(x, weight.cols, norm, eps), None
        else:
            dot8 = tiles.dot8(self.device, weight)
            kernel, kind = "matvec", {"DOT8": int(dot8), "LAST": int(x.shape[0] > 1)}
            kind |= {"GROUPS_PER_THREAD": weight.layout.groups_per_thread} if dot8 else {}
            tile = tiles.matvec(self.device, weight, dot8)
        count = -(-weight.rows // (tile["TR"] * tile["R"]))
        self.add(
            kernel,
            {"QUANT": weight.layout.fragment, "COLS": weight.cols, "NORM": int(norm is not None),
             "BIAS": int(bias is not None), "EPILOGUE": epilogue} | kind | tile | self.state_params | (params or {}),
            {"rows": weight.rows, "row0": row0, "y_stride": y.shape[-1]} | ({"eps": eps} if norm else {})
            | (consts or {}),
            {"state": self.state, "w": weight, "y": y} | vectors | ({"norm": norm} if norm else {})
            | ({"bias": bias} if bias else {}) | (bindings or {}),
            *((count,) if count <= 65535 else (65535, -(-count // 65535))),
        )  # fmt: skip

    def _quantized(self, x: Buffer, cols: int, norm: Weight | None, eps: float) -> dict[str, Buffer | Weight]:
        """x, normalised, as bytes: what matvec_small_batch.wgsl binds."""
        groups = quants.groups(cols)
        to: dict[str, Buffer | Weight] = {
            "xq": self.buffer(f"{self.name}.bytes.{cols}", (self.batch, groups, 8), "u32"),
            "xq_scale": self.buffer(f"{self.name}.scales.{cols}", (self.batch, groups, 2)),
        }
        self.add(
            "quantize_rows",
            {"COLS": cols, "NORM": int(norm is not None), "WG": QUANTIZERS},
            {"eps": eps},
            {"state": self.state, "x": x} | to | ({"norm": norm} if norm else {}),
            -(-groups * (4 if self.device.subgroup >= 4 else 1) // QUANTIZERS),
            PerToken(),
        )
        return to

    def _matmul(self, x: Buffer, weight: Weight, bias: Weight | None, y: Buffer, epilogue: str, row0: int) -> None:
        kernel, tile = tiles.matmul(self.device, self.batch, weight.rows)
        self.add(
            kernel,
            {"QUANT": weight.layout.fragment, "COLS": weight.cols, "BIAS": int(bias is not None), "EPILOGUE": epilogue}
            | tile,
            {"rows": weight.rows, "row0": row0, "y_stride": y.shape[1]},
            {"state": self.state, "x": x, "w": weight, "y": y} | ({"bias": bias} if bias else {}),
            -(-weight.rows // tile["TN"]),
            PerToken(tile["TM"]),
        )
