"""What the person at the terminal is asked before a tool of `build.py chat --tools` runs, and by MCP servers."""

import io

import pytest

from tools.person import Person


class Terminal(io.StringIO):
    """A terminal at which somebody types these lines."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("".join(f"{line}\n" for line in lines)))


def test_each_call_is_shown_and_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    typed(monkeypatch, "y", "", "n", "a")
    person = Person()
    assert [person.allow("pay", {"euros": 3}) for _ in range(5)] == [True, False, False, True, True]
    shown = capsys.readouterr()
    assert shown.err.count('pay {"euros": 3}') == 5
    assert shown.err.count("Run it?") == 4
    assert not shown.out
    assert not person.allow("sell", {})


def test_without_a_terminal_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert not Person().allow("pay", {})
    assert Person(allow_all=True).allow("pay", {})
    assert Person().answer({"server": "Shop", "message": "Where?", "schema": {"required": ["x"]}}) is None


def test_escape_sequences_of_a_tool_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Person().show("\x1b[2Jdone")
    assert "\x1b" not in capsys.readouterr().err


def test_questions_of_a_server_are_answered_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {
        "properties": {
            "size": {"type": "integer", "title": "Size"},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "gift": {"type": "boolean"},
            "note": {"type": "string"},
        },
        "required": ["size"],
    }
    question = {"server": "Shop", "message": "Which one?", "schema": schema}
    typed(monkeypatch, "7", "red", "yes", "")
    assert Person().answer(question) == {"size": 7, "colour": "red", "gift": True}
    typed(monkeypatch, "", "red", "", "")
    assert Person().answer(question) is None, "what is required is missing"
    typed(monkeypatch, "y")
    assert Person().answer({"server": "Shop", "message": "Pay", "url": "https://example.org/pay"}) is True
