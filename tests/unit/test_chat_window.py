"""Which turns of a chat are sent: as many as fit, the oldest left out in blocks."""

from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator

# Plays a chat: each turn adds its tokens. Lists how many turns each request left out, its tokens, and all counts.
PLAY = """(async (sizes, limits) => {
  const [sent, counts] = [[], []];
  let before = 0;
  for (let turns = 1; turns <= sizes.length; turns++) {
    const tokens = (dropped) => sizes.slice(dropped, turns).reduce((sum, size) => sum + size, 0);
    const count = async (dropped) => { counts.push(tokens(dropped)); return tokens(dropped); };
    before = await m.turnsToDrop(turns, before, limits, count);
    sent.push([before, tokens(before)]);
  }
  return { sent, counts };
})(a[0], a[1])"""


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("js"), ["app/ui/chats/window.js", "app/ui/chats/turns.js"])


def test_turns_are_dropped_in_blocks(js: Evaluate) -> None:
    limits = {"most": 300, "target": 200}
    played = js(PLAY, [30] * 100, limits)
    assert all(tokens <= 300 for _, tokens in played["sent"])
    drops = [after - before for (before, _), (after, _) in zip(played["sent"], played["sent"][1:], strict=False)]
    assert set(drops) == {0, 5}  # 330 tokens are too many; 180 are left
    assert drops.count(5) <= 100 * 30 / 100
    assert max(played["counts"]) <= 330  # a long chat is not counted from its beginning


# Counts a chat of turns of one size; lists the result and the tokens of all prompts that were counted.
DROP = """(async (turns, size, before, begin) => {
  const counts = [];
  const count = async (dropped) => { counts.push(size * (turns - dropped)); return counts.at(-1); };
  return { dropped: await m.turnsToDrop(turns, before, { most: 300, target: 200 }, count, begin), counts };
})(...a)"""


@pytest.mark.parametrize("begin", [0, 2000, 2480, 2489, 2490, 2499, 9999])
def test_a_long_chat_is_not_counted_as_a_whole(js: Evaluate, begin: int) -> None:
    """Wherever the count begins, the result is the same."""
    found = js(DROP, 2500, 30, 0, begin)
    assert found["dropped"] == 2494  # 6 turns of 30 tokens are at most 200
    assert max(found["counts"]) <= max(600, 30 * (2500 - begin))
    assert len(found["counts"]) < 12


@pytest.mark.parametrize("begin", [0, 3, 7, 9])
def test_a_chat_that_fits_is_sent_as_before(js: Evaluate, begin: int) -> None:
    assert [js(DROP, 10, 30, before, begin)["dropped"] for before in (0, 4)] == [0, 4]
    assert js(DROP, 10, 31, 1, begin)["dropped"] == 1
    assert js(DROP, 10, 31, 0, begin)["dropped"] == 4
    assert js(DROP, 10, 31, 0, 0)["counts"][0] == 310


def test_as_many_turns_as_fit_stay(js: Evaluate) -> None:
    code = "m.turnsToDrop(a[0].length, 0, a[1], async (d) => a[0].slice(d).reduce((x, y) => x + y, 0))"
    for sizes, dropped in (([50] * 6, 0), ([50] * 7, 3), ([400, 10, 10], 1), ([10, 10, 400], 2), ([400], 0), ([9], 0)):
        assert js(code, sizes, {"most": 300, "target": 200}) == dropped, sizes


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        ((512, None, False), {"most": 384, "target": 256, "last": 448, "characters": 2304}),
        ((512, 2, False), {"most": 510, "target": 340, "last": 510, "characters": 3060}),
        ((512, 9999, True), {"most": 256, "target": 170, "last": 448, "characters": 1536}),
    ],
)
def test_the_answer_and_passages_get_their_part(js: Evaluate, arguments: Any, limits: Any) -> None:
    assert js("m.limitsOf(...a[0])", arguments) == limits


def test_the_end_of_a_text_that_fits(js: Evaluate) -> None:
    text = " ".join(map(str, range(500)))
    end = js("m.fittingEnd(a[0], 40, async (text) => text.split(' ').length)", text)
    assert text.endswith(end)
    assert 35 <= len(end.split(" ")) <= 40


def test_turns_are_counted_by_their_questions(js: Evaluate) -> None:
    chat = [{"role": role, "content": content} for role, content in (
        ("assistant", "Hello."), ("user", "a"), ("assistant", "A"), ("user", "failed"), ("assistant", ""),
        ("user", "b"), ("assistant", "B"),
    )]  # fmt: skip
    assert [m["content"] for m in js("m.answered(a[0])", chat)] == ["Hello.", "a", "A", "b", "B"]
    assert [js("m.firstSent(m.answered(a[0]), a[1])", chat, n) for n in (0, 1, 2)] == [0, 3, 3]
    assert js("m.lastAnswer(a[0]).content", chat) == "B"


def test_the_turns_that_are_older_than_so_many_characters(js: Evaluate) -> None:
    step = {"content": "", "calls": [{"id": "1", "name": "f", "arguments": "{}", "text": "12"}]}
    chat: list[dict[str, Any]] = [{"role": "assistant", "content": "Hello."}]
    for question, answer in (("one", "1"), ("two", "2"), ("three", "3")):
        chat += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    older = [js("m.olderTurns(a[0], a[1])", chat, n) for n in (0, 1, 25, 26, 79, 80, 106, 131, 132, 999)]
    assert older == [3, 3, 3, 2, 2, 1, 1, 1, 0, 0]  # each message has 24 more than its text
    chat[-1] |= {"steps": [step]}  # what tools return is of the prompt, too
    assert js("m.olderTurns(a[0], 64)", chat) == 3
