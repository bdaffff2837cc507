"""A model's file is compared with the SHA-256 that the caller or its host states."""

import itertools
from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.support.faulty_server import FaultyServer, File
from tests.support.model_case import Case, sha

OTHER = "ab" * 32
numbers = itertools.count()


@pytest.fixture
def host(engine_page: Page, bad_server: FaultyServer, model: bytes) -> Callable[..., Case]:
    """host(**beside) -> a model below /resolve/, and files beside it: {"sha256": text, "raw": text}."""

    def make(*, linked: str = "", **beside: str) -> Case:
        case = Case(engine_page, bad_server, File(model, linked=linked))
        repository = f"org/model-{next(numbers)}"
        bad_server.files[f"{repository}/resolve/main/m.gguf"] = case.file
        case.url = bad_server.url(f"{repository}/resolve/main/m.gguf")
        if "sha256" in beside:
            bad_server.files[f"{repository}/resolve/main/m.gguf.sha256"] = File(beside["sha256"].encode())
        if "raw" in beside:
            bad_server.files[f"{repository}/raw/main/m.gguf"] = File(beside["raw"].encode())
        return case

    return make


def pointer(digest: str) -> str:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 3000000\n"


@pytest.mark.parametrize("way", ["linked", "raw", "sha256", "expected"])
@pytest.mark.parametrize("same", [True, False], ids=["same", "other"])
def test_stated_hashes(host: Callable[..., Case], model: bytes, way: str, same: bool) -> None:
    digest = sha(model) if same else OTHER
    texts = {"linked": f'"{digest}"', "raw": pointer(digest), "sha256": f"{digest.upper()}  m.gguf\n"}
    c = host(**({way: texts[way]} if way in texts else {}))
    expected = {"expected": digest} if way == "expected" else {}
    got = c.load(**expected)
    if same:
        assert (got["sha256"], got["stats"]["verified"]) == (digest, 1)
        c.file.requests.clear()
        again = c.load(**expected)
        assert (again["sha256"], again["stats"]["verified"], c.file.requests) == (digest, 1, [])
        assert c.load(expected=OTHER)["error"]["code"] == "hash_mismatch"
    else:
        assert got["error"]["code"] == "hash_mismatch"
        assert OTHER in got["error"]["message"]
        assert sha(model) in got["error"]["message"]
        assert c.cached() == []


def test_nothing_stated_is_not_verified(host: Callable[..., Case], model: bytes) -> None:
    """Pages that a host sends in place of a missing file are no hashes."""
    c = host(linked='"1234"', raw="<!doctype html>" + OTHER, sha256=f"<p>{OTHER}</p>")
    got = c.load()
    assert (got["sha256"], got["stats"]["verified"]) == (sha(model), 0)
    assert c.load(expected=sha(model))["stats"]["verified"] == 1  # from the cache


def test_a_download_that_goes_on_is_verified_as_a_whole(host: Callable[..., Case], model: bytes) -> None:
    c = host(sha256=OTHER)
    assert "error" not in c.load(stop_after=3)
    assert c.load()["error"]["code"] == "hash_mismatch"
    good = host(sha256=sha(model))
    good.load(stop_after=3)
    assert good.load()["stats"]["verified"] == 1
