"""What drafts.texts of tests/support/page must have found, where some drafts are right."""

from typing import Any


def check(found: dict[str, Any], most_steps: int) -> None:
    """The same texts, some drafts accepted and others rejected, fewer steps, and no kernel wrong or unproven."""
    for name, one in found["texts"].items():
        assert one["drafted"] == one["plain"], name
        assert 0 < one["accepted"] < one["tokens"], name
        assert one["steps"] < most_steps, name
    assert not found["proof"]["wrong"], found["proof"]
    assert not found["proof"]["skipped"], found["proof"]
