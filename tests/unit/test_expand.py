"""Expansion of shaders, its cache, and the structs whose fields replay.js names."""

import pytest

from py_engine.plan import kernels
from py_engine.plan.kernels import Device

TWICE = """#param SHARED
#include "my_part.wgsl"
#include "my_part.wgsl" as _2"""
PART = """#param SHARED
#param SIZE
#param NAME
@bind var<storage, read> w: array<u32>;
fn load(at: u32) -> u32 { return w[at * SIZE + SHARED]; }
#if NAME == "a"
// first
#else
// second
#endif"""


def test_equal_numbers_of_two_types_make_two_shaders() -> None:
    whole = kernels.expand("repack_pad", {"ELEM": 2, "COLS": 40}, Device())
    assert "const ELEM: u32 = 2;" in whole.code
    assert "const ELEM: f32 = 2.0;" in kernels.expand("repack_pad", {"ELEM": 2.0, "COLS": 40}, Device()).code
    assert kernels.expand("repack_pad", {"COLS": 40, "ELEM": 2}, Device(max_binding=1)) == whole


def test_comments_are_left_out_but_a_callers_text_stays_as_it_is() -> None:
    norm = kernels.expand("norm", {"COLS": 64, "WG": 64, "MEAN": 0, "BIAS": 0, "ADD": 0, "Y16": 0}, Device())
    assert "//" not in norm.code
    assert "\n\n" not in norm.code.strip()
    kernels.register("my_commented", "// why\n\nfn f() {} // what")
    assert kernels.expand("my_commented", {}, Device()).code.endswith("// why\n\nfn f() {} // what")


def test_devices_that_differ_make_two_shaders() -> None:
    params = {"COLS": 64, "WG": 64, "MEAN": 0, "BIAS": 0, "ADD": 0, "Y16": 0}
    labels = {kernels.expand("norm", params, Device(subgroup=size)).label for size in (0, 4, 32)}
    assert len(labels) == 3


def test_replay_names_fields_of_the_structs() -> None:
    assert {"pos", "n", "resampled", "seq"} == kernels.struct_fields("lib/state.wgsl", "State").keys()
    assert {"end", "length", "newest", "count"} == kernels.struct_fields("lib/drafting.wgsl", "Drafting").keys()


def test_a_file_that_is_included_once_more_has_names_and_params_of_its_own() -> None:
    kernels.register("my_part", PART)
    kernels.register("my_twice", TWICE)
    given: dict[str, int | float | str] = {"SHARED": 1, "SIZE": 2, "NAME": "a", "SIZE_2": 3, "NAME_2": "b"}
    shader = kernels.expand("my_twice", given, Device())
    assert shader.code.split("\n") == [
        "const SHARED: u32 = 1;", "const SIZE: u32 = 2;", "@group(0) @binding(0) var<storage, read> w: array<u32>;",
        "fn load(at: u32) -> u32 { return w[at * SIZE + SHARED]; }", "// first",
        "const SIZE_2: u32 = 3;", "@group(0) @binding(1) var<storage, read> w_2: array<u32>;",
        "fn load_2(at: u32) -> u32 { return w_2[at * SIZE_2 + SHARED]; }", "// second",
    ]  # fmt: skip
    assert shader.bindings == {"w": "storage, read", "w_2": "storage, read"}
    assert "SIZE=2 SIZE_2=3" in shader.label


@pytest.mark.parametrize("params", [{"ELEM": 2}, {"ELEM": 2, "COLS": 40, "MORE": 1}])
def test_params_that_are_missing_or_unknown_are_refused_each_time(params: dict[str, int]) -> None:
    for _ in range(2):
        with pytest.raises(KeyError):
            kernels.expand("repack_pad", params, Device())


def test_named_bindings_are_bound_as_read_write() -> None:
    bound = [f"@bind var<storage, read> {name}: array<u32>;" for name in ("x", "w_qs", "w_d", "xw")]
    kernels.register("my_written", "\n".join(["#param PINNED", "#if PINNED", "#read_write x w_*", "#endif", *bound]))
    pinned = kernels.expand("my_written", {"PINNED": 1}, Device())
    assert pinned.bindings == dict.fromkeys(("x", "w_qs", "w_d"), "storage, read_write") | {"xw": "storage, read"}
    assert [name for name in pinned.bindings if pinned.writes(name)] == []
    assert "#" not in pinned.code
    free = kernels.expand("my_written", {"PINNED": 0}, Device())
    assert set(free.bindings.values()) == {"storage, read"}
    assert free.label != pinned.label
