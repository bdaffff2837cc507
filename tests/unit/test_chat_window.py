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


def test_as_many_turns_as_fit_stay(js: Evaluate) -> None:
    code = "m.turnsToDrop(a[0].length, 0, a[1], async (d) => a[0].slice(d).reduce((x, y) => x + y, 0))"
    for sizes, dropped in (([50] * 6, 0), ([50] * 7, 3), ([400, 10, 10], 1), ([10, 10, 400], 2), ([400], 0), ([9], 0)):
        assert js(code, sizes, {"most": 300, "target": 200}) == dropped, sizes


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        ((512, None, False), {"most": 384, "target": 256, "last": 448}),
        ((512, 2, False), {"most": 510, "target": 340, "last": 510}),
        ((512, 9999, True), {"most": 256, "target": 170, "last": 448}),
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
