"""Prints the bench's figures as text, from a run or from the JSON files of earlier runs.

python -m bench.report FILE.json
"""

import json
import sys
from pathlib import Path
from typing import Any

TOP_KERNELS = 8  # costliest kernels of each list


def text(result: dict[str, Any]) -> str:
    """All tables."""
    parts = [_facts(result), _speeds(result), *_kernels(result), *_peers(result)]
    parts += [f"Not measured: {row['what']}: {row['why']}" for row in result["skipped"]]
    return "\n\n".join(parts)


def table(rows: list[list[str]]) -> str:
    """A table: the first row is the head; the first column is left-aligned, the others right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _facts(result: dict[str, Any]) -> str:
    adapter = result["adapter"] or {}
    gpu = " ".join(adapter.get(key) or "" for key in ("description", "vendor", "architecture")).strip()
    memory = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in result["memory"].items() if size)
    lines = [
        f"{result['model']} on {'WebGPU: ' + gpu if result['backend'] == 'webgpu' else 'the CPU'}",
        f"loaded in {result['load_ms']:.0f} ms, after {result['timings']['boot_ms']:.0f} ms of starting Python",
        *_upload(result.get("upload")),
        f"memory: {memory}",
        *result["notices"],
    ]
    if result.get("load_average") is not None:
        lines.append(f"load of the machine at the start: {result['load_average']:.1f}")
    return "\n".join(lines)


def _upload(upload: dict[str, Any] | None) -> list[str]:
    if not upload:
        return []
    rate = f"{upload['per_second'] / 1e9:.2f} GB/s"
    if upload["share"]:
        rate += f", {100 * upload['share']:.0f}% of writeBuffer's {upload['write_buffer'] / 1e9:.2f}"
    return [
        f"loaded again from the cache: {upload['bytes'] / 1e6:.0f} MB in {upload['ms']:.0f} ms ({rate}): "
        f"{upload['waited_ms']:.0f} ms waiting for records, {upload['written_ms']:.0f} handing them to the GPU, "
        f"{upload['end_ms']:.0f} waiting for the GPU; summed over parallel reads, reading {upload['read_ms']:.0f} ms, "
        f"checking on the CPU {upload['hash_ms']:.0f}"
    ]


def _speeds(result: dict[str, Any]) -> str:
    rows = [["", "tok/s", "slowest", "fastest", "runs", "dispatches", "submits a token"]]
    for row in result["prefill"]:
        rows.append([f"prefill {row['prompt']}", *_speed(row), "", ""])
    for row in result["decode"]:
        gpu = [f"{row['dispatches']}", f"{row['submits']:.2f}"] if result["backend"] == "webgpu" else ["", ""]
        rows.append([f"decode at {row['context']}", *_speed(row), *gpu])
    for row in result.get("together", []):
        rows.append([f"{row['requests']} requests at once, in sum", *_speed(row), "", ""])
    lines = [table(rows)]
    for name, what in (("sampled", "the chat page's sampling"), ("constrained", "a JSON schema")):
        if compared := result.get(name):
            lines.append(
                f"With {what}, decode at {compared['context']} runs at {compared['per_second']:.1f} tok/s, "
                f"{100 * compared['ratio']:.0f}% of the greedy speed."
            )
    return "\n".join(lines)


def _speed(row: dict[str, Any]) -> list[str]:
    return [*(f"{row[key]:.1f}" for key in ("per_second", "slowest", "fastest")), str(row["runs"])]


def _kernels(result: dict[str, Any]) -> list[str]:
    """For each step: the times and lower bounds of its kernels, and the breakdown of the step's time."""
    parts = []
    for name, times in result["kernels"].items():
        if not times:
            continue
        total = sum(time["total_us"] for time in times)
        rows = [["kernel", "times", "us each", "us", "share", "MB", "GB/s", "GFLOP/s", "floor us", "x floor"]]
        for time in times[:TOP_KERNELS]:
            us = time["us"] or float("inf")
            rows.append(
                [
                    time["kernel"],
                    str(time["count"]),
                    f"{time['us']:.1f}",
                    f"{time['total_us']:.1f}",
                    f"{100 * time['total_us'] / total:.0f}%" if total else "",
                    f"{time['bytes'] / 1e6:.3g}",
                    f"{time['bytes'] / us / 1e3:.0f}",
                    f"{time['flops'] / us / 1e3:.0f}" if time["flops"] else "",
                    f"{time['floor_us']:.1f}",
                    f"{time['us'] / time['floor_us']:.2f}" if time["floor_us"] else "",
                ]
            )
        parts.append(f"Kernels, {name}: {total:.0f} us\n{table(rows)}\n{_step(result, name)}".rstrip())
    if rates := result.get("read_rates"):
        measured = ", ".join(f"{_size(size)} {ns / 1000:.1f} us ({size / ns:.0f} GB/s)" for size, ns in rates)
        parts.append(f"One dispatch that only reads (the floor): {measured}")
    if multiplied := result.get("multiply_rates"):
        measured = ", ".join(f"{rate:.1f} of {kind}" for kind, rate in multiplied.items())
        parts.append(f"Billions of multiply-adds a second, with nothing else to do (the floor, too): {measured}")
    return parts


def _step(result: dict[str, Any], name: str) -> str:
    """Breakdown of a whole step's time."""
    step = (result.get("steps") or {}).get(name)
    if not step:
        return ""
    between = step["us"] - step["kernels_us"]
    parts = [
        f"{step['dispatches']} dispatches one after the other {step['us']:.0f} us",
        f"each by itself {step['kernels_us']:.0f} us, a difference of {between:+.0f} us",
    ]
    if step["wall_us"] is not None:
        beside = step["wall_us"] - step["us"]
        parts.append(f"by the host's clock {step['wall_us']:.0f} us, besides the kernels {beside:+.0f}")
    times = step["us"] / step["floor_us"]
    parts.append(f"floor {step['floor_us']:.0f} us for {step['bytes'] / 1e6:.4g} MB, {times:.2f} times that")
    return "Step: " + "; ".join(parts)


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _peers(result: dict[str, Any]) -> list[str]:
    """wllama's figures, and the ratio Wisp / wllama."""
    peers = result.get("peers") or []
    running = [peer for peer in peers if "error" not in peer]
    parts = []
    if running:
        rows = [["wllama on the same file", *(_name(peer) for peer in running), *["ours / it"] * len(running)]]
        for kind, key, label in (("prefill", "prompt", "prefill"), ("decode", "context", "decode at")):
            for ours in result[kind]:
                theirs = [_find(peer[kind], key, ours[key]) for peer in running]
                ratios = [f"{ours['per_second'] / speed:.2f}" if speed else "" for speed in theirs]
                speeds = [f"{speed:.1f}" if speed else "" for speed in theirs]
                rows.append([f"{label} {ours[key]}", *speeds, *ratios])
        parts.append(table(rows))
    parts += [f"wllama, {peer['backend']}: did not run: {peer['error']}" for peer in peers if "error" in peer]
    return parts


def _name(peer: dict[str, Any]) -> str:
    return f"wasm x{peer['threads']}" if peer["backend"] != "webgpu" else "webgpu"


def _find(rows: list[dict[str, Any]], key: str, value: int) -> float | None:
    return next((row["per_second"] for row in rows if row[key] == value), None)


def main(paths: list[str]) -> None:
    """Print the tables of JSON files. A file has one result, or several by name."""
    for path in paths:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        for name, result in ({"": found} if "model" in found else found).items():
            if isinstance(result, dict) and "model" in result:
                print(f"== {name or path}\n\n{text(result)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
