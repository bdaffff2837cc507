"""Addresses of model files."""

from pathlib import Path

import pytest

from py_engine.errors import WispError
from py_engine.files.addresses import host_of, name_of, shown_name
from tests.support.js_modules import evaluator

BAD = ["http://[/", "http://[::1/x.gguf", "http://a\u2100b/x.gguf", "https://]x[/y"]


@pytest.mark.parametrize("url", BAD)
def test_an_address_that_is_none_is_a_clean_error(url: str) -> None:
    for part in (name_of, host_of):
        with pytest.raises(WispError, match="is not an address") as caught:
            part(url)
        assert (caught.value.code, caught.value.param) == ("invalid_value", "model")
    assert shown_name(url) == url


def test_the_name_is_the_last_part_of_the_path() -> None:
    assert name_of("https://x.org/a/b%20c.gguf?download=1") == "b c.gguf"
    assert name_of("https://x.org/") == "https://x.org/"
    assert host_of("http://127.0.0.1:8000/m.gguf") == "127.0.0.1:8000"


def test_the_page_takes_the_address_of_a_files_page_on_the_hub(tmp_path: Path) -> None:
    evaluate = evaluator(tmp_path, ["app/ui/address.js", "app/sdk/address.js"])
    page = "https://huggingface.co/maker/model-GGUF/blob/main/sub/m-Q4_0.gguf?x=1"
    assert evaluate("m.fileOf(a[0])", page) == page.replace("/blob/", "/resolve/")
    for host in ("https://www.huggingface.co", "https://hf.co"):
        there = page.replace("https://huggingface.co", host)
        assert evaluate("m.fileOf(a[0])", there) == there.replace("/blob/", "/resolve/")
    for other in ("https://host/maker/model/blob/main/m.gguf", page.replace("/blob/", "/resolve/")):
        assert evaluate("m.fileOf(a[0])", other) == other
    typed = ["example.org/m.gguf", "huggingface.co/maker/M", "maker/m.gguf", "maker/Model-1.5", "/m.gguf"]
    assert evaluate("a.map(m.completed)", *typed) == [f"https://{text}" for text in typed[:2]] + typed[2:]
    assert evaluate("a.map(m.typedRepository)", *typed) == [None, None, None, "maker/Model-1.5", None]
    assert evaluate("m.nameOf(a[0])", "https://host/a%20b-00002-of-00003.gguf?x=1") == "a b"


def test_a_repository_of_the_hub_is_told_from_a_file_of_one(tmp_path: Path) -> None:
    evaluate = evaluator(tmp_path, ["app/sdk/address.js"])
    hub = "https://huggingface.co"
    repositories = ["maker/M-1.5-GGUF", f"{hub}/maker/M-1.5-GGUF", f"{hub}/maker/M-1.5-GGUF/tree/main?x=1"]
    repositories += ["https://hf.co/maker/M-1.5-GGUF/"]
    assert evaluate("a.map(m.repositoryOf)", *repositories) == ["maker/M-1.5-GGUF"] * 4
    others = ["mini-q4_0", "models/m.gguf", "models/model", "/maker/M-GGUF", "https://host/maker/M-GGUF"]
    others += [f"{hub}/maker/M-GGUF/resolve/main/m.gguf", f"{hub}/m.gguf"]
    others += [f"{hub}/{kind}/M-GGUF" for kind in ("collections", "datasets", "docs", "papers", "spaces")]
    assert evaluate("a.map(m.repositoryOf)", *others) == [None] * len(others)


def test_a_set_of_stored_files_is_one_model(tmp_path: Path) -> None:
    evaluate = evaluator(tmp_path, ["app/ui/stored_models.js"])
    files = [
        {"id": name, "url": f"https://host/{name}.gguf", "complete": complete}
        for name, complete in (("a-00002-of-00002", True), ("b", True), ("a-00001-of-00002", True), ("c", False),
                               ("d-00001-of-00002", True), ("d-00002-of-00002", False),
                               ("e-00001-of-00002", True), ("a-00001-of-00003", True))
    ]  # fmt: skip
    found = evaluate("m.storedModels(a[0])", files)
    assert found == [
        {"id": "a", "url": "https://host/a-00002-of-00002.gguf"}, {"id": "b", "url": "https://host/b.gguf"}
    ]  # fmt: skip
