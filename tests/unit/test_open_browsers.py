"""The browsers that a run keeps open."""

from typing import Any, cast

import pytest

from tests.support import browser as browsers


class Started:
    """A browser that is only said to be open."""

    def __init__(self, adapter: str | None) -> None:
        self.adapter, self.open = adapter, True

    def is_connected(self) -> bool:
        return self.open

    def close(self) -> None:
        self.open = False


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    """The browsers that have been started."""
    found: list[Started] = []

    def launch(_: object, adapter: str | None) -> Started:
        found.append(Started(adapter))
        return found[-1]

    monkeypatch.setattr(browsers, "launch", launch)
    return found


def test_those_that_were_asked_for_last_stay_open(started: list[Started]) -> None:
    get = browsers.Browsers(cast("Any", None))
    first = get("swiftshader")
    for adapter in ("lavapipe", None, "swiftshader"):
        get(adapter)
    get.close(get.MOST)
    assert {one.adapter: one.open for one in started} == {"swiftshader": True, "lavapipe": False, None: True}
    assert get("swiftshader") is first
    get("lavapipe")
    assert [one.adapter for one in started] == ["swiftshader", "lavapipe", None, "lavapipe"]
    get.close()
    assert not any(one.open for one in started)


def test_one_that_has_crashed_is_started_again(started: list[Started]) -> None:
    get = browsers.Browsers(cast("Any", None))
    crashed = get("cpu")
    started[0].close()
    assert get("cpu") is not crashed
    assert len(started) == 2
