"""Expansion of shaders, its cache, and the structs whose fields replay.js names."""

import pytest

from py_engine.plan import kernels
from py_engine.plan.kernels import Device


def test_equal_numbers_of_two_types_make_two_shaders() -> None:
    whole = kernels.expand("repack_pad", {"ELEM": 2, "COLS": 40}, Device())
    assert "const ELEM: u32 = 2;" in whole.code
    assert "const ELEM: f32 = 2.0;" in kernels.expand("repack_pad", {"ELEM": 2.0, "COLS": 40}, Device()).code
    assert kernels.expand("repack_pad", {"COLS": 40, "ELEM": 2}, Device(max_binding=1)) == whole


def test_devices_that_differ_make_two_shaders() -> None:
    params = {"COLS": 64, "WG": 64, "MEAN": 0, "BIAS": 0, "ADD": 0, "Y16": 0}
    labels = {kernels.expand("norm", params, Device(subgroup=size)).label for size in (0, 4, 32)}
    assert len(labels) == 3


def test_replay_names_fields_of_the_structs() -> None:
    assert {"pos", "n", "resampled", "seq"} == kernels.struct_fields("lib/state.wgsl", "State").keys()
    assert {"end", "length", "newest", "count"} == kernels.struct_fields("lib/drafting.wgsl", "Drafting").keys()


@pytest.mark.parametrize("params", [{"ELEM": 2}, {"ELEM": 2, "COLS": 40, "MORE": 1}])
def test_params_that_are_missing_or_unknown_are_refused_each_time(params: dict[str, int]) -> None:
    for _ in range(2):
        with pytest.raises(KeyError):
            kernels.expand("repack_pad", params, Device())
