"""Whether drafts pay: the account of the time that they gain or lose."""

import random

import pytest

from py_engine.generate.draft_model import FRESH, REGAIN, TRIAL, TRIAL_DRAFT, DraftAccount


def test_drafts_that_are_rejected_cost_little_of_the_time_and_a_trial() -> None:
    """Steps with drafts take two plain steps and yield one token."""
    account, time, tokens = DraftAccount(4, 0.2), 0.0, 0
    for _ in range(5000):
        k = account.choose(1.0, lambda _: 2.0)
        if k and not account.on:
            account.start()
        if k:
            account.record(k, 1, 1, 1.0, lambda _: 2.0)
        else:
            account.plain(1)
        time, tokens = time + (2.0 if k else 1.0), tokens + 1
    assert tokens < time < (1 + 2 * REGAIN) * tokens + 2 * TRIAL
    assert time > tokens + 2 * TRIAL, "it is tried again"


def test_drafts_that_are_never_right_cost_less_than_a_hundredth() -> None:
    """Of four answers of 256 tokens after a load, with a draft model of a seventh of the model's size."""
    account, time = DraftAccount(7, 0.15), 0.0

    def step(k: int) -> float:
        return 1.25 + 0.15 * k

    for _ in range(1024):
        k = account.choose(1.0, step)
        if k and not account.on:
            account.start()
            account.charge(1.5)  # it reads the prompt
            time += 1.5
        if k:
            account.record(k, 1, 1, 1.0, step)
        else:
            account.plain(1)
        time += step(k) if k else 1.0
    assert 1024 / time > 0.99


def test_trials_become_rarer_while_they_fail() -> None:
    account, waits = DraftAccount(4, 0.2), []
    for right in (False, False, False, True, False, False):
        plain = 0
        while not account.choose(1.0, lambda _: 2.0):
            account.plain(1)
            plain += 1
        waits.append(plain)
        account.start()
        for _ in range(20 * right):
            account.record(4, 1, 5, 1.0, lambda _: 2.0)
        while account.on:
            account.record(4, 1, 1, 1.0, lambda _: 2.0)
    assert waits == [0, *(pytest.approx(waits[1] * times, rel=0.25) for times in (1, 2, 4, 1, 2))]


def test_drafts_that_are_accepted_go_on_and_grow() -> None:
    account = DraftAccount(7, 0.1)
    lengths = []
    for _ in range(50):
        k = account.choose(1.0, lambda k: 1.2 + 0.1 * k)
        if not account.on:
            account.start()
        account.record(k, 1, k + 1, 1.0, lambda k: 1.2 + 0.1 * k)
        lengths.append(k)
    assert account.on
    assert lengths[0] == TRIAL_DRAFT < lengths[1], "what may be lost is little until something is gained"
    assert lengths[-1] == 7


def test_plain_steps_are_timed_again_after_many_with_drafts() -> None:
    account = DraftAccount(2, 0.1)
    account.start()
    for _ in range(FRESH + 1):
        assert account.choose(1.0, lambda _: 1.2)
        account.record(2, 1, 3, 1.0, lambda _: 1.2)
    assert not account.choose(1.0, lambda _: 1.2)
    account.wait = FRESH / 50
    assert account.choose(1.0, lambda _: 1.2), "where that takes long, it is seldom done"
    account.wait = 0.0
    account.plain(1)
    assert account.choose(1.0, lambda _: 1.2)


def test_the_length_suits_a_draft_model_that_is_slower_than_its_size_tells() -> None:
    """Long drafts would lose time, short ones gain: a token of a draft takes 0.4 steps, and 70 of 100 are accepted."""
    account, dice = DraftAccount(7, 0.05), random.Random(1)
    measured: dict[int, float] = {}
    time = tokens = 0.0
    for _ in range(2000):
        k = account.choose(1.0, lambda k: measured.get(k, 0.0))
        if not k:
            account.plain(1)
            time, tokens = time + 1, tokens + 1
            continue
        if not account.on:
            account.start()
        accepted = next((i for i in range(k) if dice.random() > 0.7), k)
        measured[k] = 1.0 + 0.4 * k
        account.record(k, 1, accepted + 1, 1.0, lambda k: measured.get(k, 0.0))
        time, tokens = time + measured[k], tokens + accepted + 1
    assert account.on
    assert tokens > 1.15 * time, "1.22 with drafts of two tokens"


def test_a_dear_prompt_of_the_draft_model_delays_the_next_trial() -> None:
    waits = []
    for prompt_steps in (0.0, 5.0):
        account = DraftAccount(4, 0.2)
        account.charge(prompt_steps)
        account.start()
        while account.on:
            account.record(1, 1, 1, 1.0, lambda _: 2.0)
        tokens = 0
        while not account.choose(1.0, lambda _: 2.0):
            account.plain(1)
            tokens += 1
        waits.append(tokens)
    assert waits[1] - waits[0] == pytest.approx(2 * 5 / REGAIN, abs=2), "the failed trial halves what is regained"


def test_the_results_of_several_sequences_count_as_those_of_their_steps() -> None:
    alone, beside = DraftAccount(4, 0.2), DraftAccount(4, 0.2)
    alone.record(2, 3, 5, 1.0, lambda _: 2.0)
    for _ in range(4):
        beside.record(2, 3, 5, 1.0, lambda _: 2.0, 1 / 4)
    assert beside.balance == pytest.approx(alone.balance)
    beside.start()
    assert beside.choose(1.0, lambda _: 1.1, most=1) == 1


def test_no_drafts_before_a_plain_step_was_timed() -> None:
    assert DraftAccount(4, 0.2).choose(0.0, lambda _: 0.0) == 0
    assert DraftAccount(4, 0.2).choose(1.0, lambda _: 0.0) > 0


def test_drafts_of_short_steps_may_lose_waits_for_the_host() -> None:
    """Steps of a tenth of a millisecond: the wait for a result takes as long as 20 of them, and so does the end."""
    account, time, tokens = DraftAccount(4, 0.2), 0.0, 0
    account.wait = 20.0
    assert account.affords(4, 1.0, lambda _: 2.0) == 42
    trials = 0
    for _ in range(40_000):
        before = account.on
        k = account.choose(1.0, lambda _: 2.0)
        if k and not before:
            account.start()
            account.waited()
            time, trials = time + account.wait, trials + 1
        if k:
            account.record(k, 1, 1, 1.0, lambda _: 2.0)
        else:
            account.plain(1)
        time, tokens = time + (2.0 if k else 1.0) + account.wait * (before and not account.on), tokens + 1
    assert trials > 2
    assert time < (1 + 1.2 * REGAIN) * tokens + 100


def test_the_end_of_drafts_is_charged_once() -> None:
    """Results of other sequences, and of steps that were in flight, follow it."""
    account = DraftAccount(2, 0.1)
    account.wait = 20.0
    account.start()
    while account.on:
        account.record(2, 8, 8, 1.0, lambda _: 2.0, 1 / 4)
    ended = account.balance
    account.record(2, 1, 1, 1.0, lambda _: 2.0, 1 / 4)
    assert account.balance == ended - 1 / 4
