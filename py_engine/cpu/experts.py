"""Mixtures of experts with numpy, as the kernels of wgsl/ of the same names compute them."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Call
from py_engine.cpu.numerics import gated, limits_of, normed, round_to_bytes
from py_engine.cpu.products import stored_rows


def route(c: Call) -> None:
    used = c.params["USED"]
    logits = c["logits"][: c.n, : c.params["EXPERTS"]]
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    all_weights = 1 / (1 + np.exp(-logits)) if c.params["GATING"] == "sigmoid" else e / e.sum(axis=1, keepdims=True)
    if c.params["GATING"] == "sqrt_softplus":
        all_weights = np.sqrt(np.logaddexp(np.float32(0), logits))
    groups = c.params.get("GROUPS", 0)
    order = all_weights + c["bias"][0] if c.params["BIASED"] else all_weights if groups else logits
    if groups:
        grouped = order.reshape(c.n, groups, -1)
        sums = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
        ranks = np.argsort(np.argsort(-sums, axis=1, kind="stable"), axis=1)
        order = np.where(ranks[:, :, None] < c.params["GROUPS_USED"], grouped, -np.inf).reshape(order.shape)
    chosen = np.argsort(-order, axis=1, kind="stable")[:, :used] // (c.params.get("SHARING", 0) or 1)
    if rows := c.consts.get("rows", 0):
        tokens = np.minimum(c["tokens"][c.sequences, c.positions], rows - 1)
        table = np.ascontiguousarray(c["table"][tokens, :used]).view(np.uint32)
        chosen = np.minimum(table, c.params["EXPERTS"] - 1).astype(np.int64)
    weights = np.take_along_axis(all_weights, chosen, 1)
    if c.params["NORMALISED"]:
        weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), np.float32(6.1035e-5))
    if c.params.get("FACTORS", 0):
        weights = weights * c["factors"][0][chosen]
    c["chosen"][: c.n], c["weights"][: c.n] = chosen, weights * np.float32(c.consts["scale"])


def group_experts(c: Call) -> None:
    size = c.params["TM"]
    chosen = c["chosen"][: c.n].reshape(-1)
    c["slots"].reshape(-1)[: chosen.size] = np.argsort(chosen, kind="stable")
    counts = np.bincount(chosen, minlength=c.params["EXPERTS"])
    tiles, first = [], 0
    for expert, count in enumerate(counts):
        tiles += [(expert, first + at, min(size, count - at), 0) for at in range(0, count, size)]
        first += count
    c["tiles"][:] = 0
    c["tiles"][: len(tiles)] = tiles


def weighted_sum(c: Call) -> None:
    x, weights = c["x"], c["weights"][: c.n, :, None]
    c["y"][: c.n] += (weights * x[: c.n * weights.shape[1]].reshape(c.n, weights.shape[1], -1)).sum(axis=1)


def experts(c: Call) -> None:
    """The chosen experts' rows of every matrix of the stack, each token's in turn; of a sum, times their weights."""
    cols, rows, stack, used = (c.params[name] for name in ("COLS", "ROWS", "STACK", "USED"))
    if c.params.get("ROUNDED_BEFORE"):
        x = stored_rows(c, c.n * (used if c.params["SUM"] else 1))
        x = x * c["x_scale"][: c.n, None] if c.params["SCALED"] else x
    else:
        x = c["x"][: c.n * (used if c.params["SUM"] else 1), :cols]
        if c.params["NORM"]:
            x = normed(x, c["norm"][0], c.consts["eps"])
        if c.params["SUM"]:
            x = x * c["weights"][: c.n].reshape(-1, 1)
        if c.params["DOT8"]:
            x = round_to_bytes(x)
    w = c["w"].reshape(stack, -1, rows, cols)
    for m in range(c.n):
        outputs = []
        for k, expert in enumerate(c["chosen"][m].astype(np.int64)):
            y = (w[:, expert] @ x[m * used + k if c.params["SUM"] else m]).reshape(-1)
            if c.params.get("SCALES"):
                y = y * np.repeat(c["scales"].reshape(stack, -1)[:, expert], rows)
            if c.params["BIAS"]:
                bias = c["bias"].reshape(stack, -1, rows)[:, expert].reshape(-1)
                y = y + (c["weights"][m, k] * bias if c.params["SUM"] else bias)
            outputs.append(y)
        at = slice(c.consts["row0"], c.consts["row0"] + stack * rows)
        match c.params["EPILOGUE"]:
            case "add":
                c["y"][m, at] += np.sum(outputs, axis=0)
            case "store":
                c["y"][m * used : (m + 1) * used, at] = outputs
            case "gated":
                gate, up = np.array(outputs).reshape(used, 2, rows).swapaxes(0, 1)
                act, limits = c.params["ACTIVATION"], limits_of(c.params)
                c["y"][m * used : (m + 1) * used, :rows] = gated(act, gate, up, *limits)
