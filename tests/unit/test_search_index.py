"""Segments of the search index: numbers as short as their chats allow; those of earlier versions are read."""

import pytest

from tests.support.js_modules import Evaluate, evaluator

SEGMENT = """(() => {
  const chats = Array.from({ length: a[0] }, (_, i) => ({ id: `c${i}`, text: i % 2 ? "odd number" : "even number" }));
  const segment = m.segmentOf(chats);
  const opened = new m.Opened(segment);
  const [odd, all] = [opened.search(["od"]), opened.search(["num"])];
  return { bytes: segment.postings.BYTES_PER_ELEMENT, odd: odd.length, last: all.at(-1) };
})()"""
MERGED = """(() => {
  const [old, late] = [["a", "red fox"], ["b", "grey fox"]].map(([id, text]) => m.segmentOf([{ id, text }]));
  old.postings = Uint32Array.from(old.postings);
  const opened = [old, late].map((segment) => new m.Opened(segment));
  const one = new m.Opened(m.merged(opened, () => true));
  return [opened[0].search(["fox"]), one.search(["fox"]), one.search(["red"]), one.segment.postings.BYTES_PER_ELEMENT];
})()"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("search"), ["app/ui/chats/search/segment.js"])


@pytest.mark.parametrize(("chats", "size"), [(5, 2), (65536, 2), (65537, 4)])
def test_numbers_are_as_short_as_they_can_be(evaluate: Evaluate, chats: int, size: int) -> None:
    found = evaluate(SEGMENT, chats)
    assert found == {"bytes": size, "odd": chats // 2, "last": f"c{chats - 1}"}


def test_segments_of_earlier_versions_are_read_and_merged(evaluate: Evaluate) -> None:
    assert evaluate(MERGED) == [["a"], ["a", "b"], ["a"], 2]


def test_a_word_is_found_with_ss_for_a_sharp_s(evaluate: Evaluate) -> None:
    search = """(() => {
      const chats = [{ id: "a", text: "Große Straße" }, { id: "b", text: "Strasse" }];
      const opened = new m.Opened(m.segmentOf(chats));
      return ["Strasse", "große", "gross", "straß"].map((query) => opened.search(m.terms(query)));
    })()"""
    assert evaluate(search) == [["a", "b"], ["a"], ["a"], ["a"]]
