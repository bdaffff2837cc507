"""h = x A^T, the first step of what adapters add, in the dispatch that multiplies or rounds the same x."""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.plan.plan import Buffer, Op, Weight


@dataclass(frozen=True)
class LowRankInput:
    """h (n, columns) = x A^T, or of the norm of x, by further workgroups: wgsl/lib/low_rank_input.wgsl."""

    weight: Weight
    h: Buffer
    lanes: int  # threads that share a row

    def params(self, workgroups: int) -> dict[str, int | float | str]:
        """The #params of lib/low_rank_input.wgsl. `workgroups`: that compute it."""
        return {
            "BESIDE": workgroups, "QUANT_A": self.weight.layout.fragment, "A_ROWS": self.weight.rows,
            "A_LANES": self.lanes, "H_STRIDE": self.h.shape[-1],
        }  # fmt: skip

    def bindings(self) -> dict[str, Buffer | Weight]:
        """What it reads and writes besides x."""
        return {"lora_a": self.weight, "h": self.h}

    def workgroups(self, threads: int) -> int:
        """Workgroups of `threads` threads that compute one token's h."""
        return -(-self.weight.rows * self.lanes // threads)

    def beside(self, rounding: Op) -> Op:
        """A rounding of x (rounded_rows.py) that also computes h."""
        workgroups, tokens, slots = rounding.grid
        assert isinstance(workgroups, int)
        first = self.workgroups(int(rounding.params["WG"]))
        return replace(
            rounding,
            params=rounding.params | self.params(first),
            bindings=rounding.bindings | self.bindings(),
            grid=(workgroups + first, tokens, slots),
        )
