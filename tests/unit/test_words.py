"""The code uses the glossary's words."""

from tools import words


def test_no_name_comment_or_docstring_uses_a_word_that_the_glossary_rules_out() -> None:
    assert words.search() == []


def test_the_search_finds_names_and_prose(tmp_path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "a.py").write_text('def free_seat(guesses):\n    """Where it is gone."""\n')
    (folder / "b.js").write_text("// believes it\nconst keptRows = 1;\n")
    assert [found[:2] for found in words.search(tmp_path)] == [
        ("app/a.py", 1), ("app/a.py", 1), ("app/a.py", 2), ("app/b.js", 2), ("app/b.js", 1)
    ]  # fmt: skip
