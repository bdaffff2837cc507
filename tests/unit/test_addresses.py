"""Addresses of model files."""

import pytest

from py_engine.errors import WispError
from py_engine.files.addresses import host_of, name_of, shown_name

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
