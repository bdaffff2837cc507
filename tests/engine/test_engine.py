"""An engine across requests: its caches, and its behaviour when the device fails."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.support.engine_driver import run

MODEL = "/repo/static/models/wisp-mini-q4_0.gguf"
TINY = "/repo/tests/golden/llama/llama.Q4_0.gguf"  # its kernels are compiled for other tests, too


@pytest.mark.lavapipe
def test_requests_do_not_change_each_others_answers(engine_pages: Callable[[str | None], Page]) -> None:
    """Equal seeds give equal text, an abort leaves no trace, and only new tokens are computed."""
    out = run(
        engine_pages("lavapipe"),
        TINY,
        "engines.requests_in_a_row",
        backend="webgpu",
    )
    assert out["again"] == out["first"]
    assert out["sampled"][0] == out["sampled"][1]
    assert out["sampled"][0] != out["other"]
    assert 3 <= out["taken"] < 100
    assert out["last"]["prompt_tokens"] == 52
    assert out["last"]["cached_tokens"] == 50, "only the two new tokens are computed"
    assert out["longer"] == 4


def test_a_stop_token_ends_the_answer(engine_pages: Callable[[str | None], Page]) -> None:
    out = run(
        engine_pages("swiftshader"),
        MODEL,
        "engines.stop_at_the_fifth_token",
        backend="cpu",
    )
    whole, stopped = out
    assert stopped == whole[: whole.index(whole[4]) + 1]


@pytest.mark.lavapipe
def test_a_device_that_is_too_small_or_lost_is_an_error_of_its_own(engine_pages: Callable[[str | None], Page]) -> None:
    """Each failure has an error code of its own; the model loaded before still answers."""
    out = run(
        engine_pages("lavapipe"),
        TINY,
        "engines.small_device_then_lost_device",
        {"url": MODEL},
        backend="webgpu",
    )
    assert out == [["model_too_large", "device_lost"], 4]


@pytest.mark.lavapipe
def test_only_what_may_come_from_a_loss_is_told_as_one(engine_pages: Callable[[str | None], Page]) -> None:
    out = run(engine_pages("lavapipe"), TINY, "engines.codes_of_causes", backend="webgpu")
    assert out == [
        ["ValueError", "invalid_value", "internal_error"],
        ["device_lost", "invalid_value", "device_lost"],
    ]


@pytest.mark.lavapipe
def test_a_device_that_is_replaced_while_kernels_compile_is_lost(
    engine_pages: Callable[[str | None], Page],
) -> None:
    """Another request has noticed the loss: this one goes on with the new device, too."""
    out = run(engine_pages("lavapipe"), TINY, "engines.replaced_while_it_compiles", backend="webgpu")
    assert out == ["device_lost"]


@pytest.mark.lavapipe
def test_a_list_that_could_not_be_recorded_is_recorded_once(engine_pages: Callable[[str | None], Page]) -> None:
    """A list that is recorded twice would compute each token twice. Without lists, the device counts as lost."""
    out = run(engine_pages("lavapipe"), TINY, "engines.failed_recordings", backend="webgpu")
    assert out["codes"] == ["out_of_memory", "device_lost", "device_lost"]
    assert len(out["counts"]) == 4
    assert all(recorded == planned > 0 for recorded, planned in out["counts"].values())


@pytest.mark.lavapipe
@pytest.mark.parametrize("stage", ["upload", "compile"])
def test_a_device_lost_in_a_load_is_told_as_lost(engine_pages: Callable[[str | None], Page], stage: str) -> None:
    out = run(
        engine_pages("lavapipe"), TINY, "engines.lose_device_in_load", {"url": TINY, "stage": stage}, backend="webgpu"
    )
    assert out == ["device_lost"]


@pytest.mark.lavapipe
def test_the_device_gets_the_pipelines_of_uploads_first(engine_pages: Callable[[str | None], Page]) -> None:
    """The weights wait for them, while the others are compiled."""
    out = run(engine_pages("lavapipe"), TINY, "engines.requested_pipelines", {"url": TINY}, backend="webgpu")
    assert out[:2] == ["checksum", "repack"]
    assert not {"checksum", "repack", "repack_pad"} & set(out[2:])
    assert len(out) > 10


@pytest.mark.parametrize("backend", ["webgpu", "cpu"])
def test_profile_compares_every_dispatch_with_the_device(
    engine_pages: Callable[[str | None], Page], backend: str
) -> None:
    """The profile of a token and of a batch: time, bytes, and the lower bound of the time."""
    out = run(
        engine_pages("lavapipe" if backend == "webgpu" else None),
        TINY,
        "engines.profile",
        backend=backend,
        context_length=256,
    )
    assert len(out["decode"]) == out["count"] + 1
    for entries in (out["decode"], out["prefill"]):
        assert all(e["ns"] > 0 and e["bytes"] > 0 and e["floor_ns"] > 0 for e in entries)
        assert entries[-1]["bytes"] == sum(e["bytes"] for e in entries[:-1])
    sizes, times = zip(*out["rates"], strict=True)
    assert list(sizes) == sorted(sizes)
    assert max(sizes) >= 1 << 20
    assert min(times) > 0
    assert set(out["multiply_rates"]) == ({"bytes", "floats"} if backend == "cpu" else set())
    assert all(rate > 0 for rate in out["multiply_rates"].values())
