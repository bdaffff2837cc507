"""The messages of one task of the worker reach a client together, in their order (app/outbox.js)."""

import pytest

from tests.support.js_modules import Evaluate, evaluator

POST = """(async () => {
  const posted = [];
  const outbox = new m.Outbox({ postMessage: (message) => posted.push(message) });
  outbox.several = a[0];
  for (const task of [[1, 2, 3], [4], [5, 6]]) {
    task.forEach((message) => outbox.post(message));
    await new Promise((done) => setTimeout(done));
  }
  return posted;
})()"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("outbox"), ["app/outbox.js"])


def test_a_task_has_one_message(evaluate: Evaluate) -> None:
    assert evaluate(POST, True) == [[1, 2, 3], 4, [5, 6]]


def test_a_client_that_reads_one_at_a_time(evaluate: Evaluate) -> None:
    """Such as a service worker of an earlier version."""
    assert evaluate(POST, False) == [1, 2, 3, 4, 5, 6]
