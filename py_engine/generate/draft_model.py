"""What drafts on a runner: a draft model or what reads the model's hidden states; and whether it pays.

plan/draft.py has their lists. Each block of the KV caches knows how many of its positions the draft model has computed
(kv_cache.py). A wrong row could only have tokens rejected, so nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py_engine.generate.running_sequence import RunningSequence
from py_engine.plan.draft import DRAFT_PREFILL
from py_engine.plan.lists import begin_block
from py_engine.plan.shared_constants import MAX_STEPS, SHORT_BATCH
from py_engine.runners import Row, Runner

TRIAL = 2.0  # decode steps whose time a trial may lose, besides waits
TRIAL_DRAFT = 2  # tokens of a draft until drafts have gained time
WAITS = 2.0  # for the host, whose time a trial may lose as well
MOST = 9.5  # decode steps that the account has at most, besides WAITS
REGAIN = 0.015  # decode steps that it gains with each plain step while drafts are off
FAILURES = 4  # failed trials in a row that make the next one rarer: each halves REGAIN
SWITCH = 0.5  # decode steps that the end of drafts takes at least
VERIFYING = 1.25  # decode steps that verifying a draft is assumed to take before it was timed
ACCEPTED = 0.7  # fraction of the draft's tokens that is assumed to be accepted before any was verified
DECAY = 0.95  # of that fraction, per verified token
FRESH = 200  # steps with drafts, or the time of 100 waits if that is longer, after which plain steps are timed again
MOST_STEPS = MAX_STEPS // 4  # of a submit
AHEAD = SHORT_BATCH * MAX_STEPS  # positions that are written at most beyond the newest token


class DraftAccount:
    """The time that drafts by a model have gained or lost, in decode steps; it decides whether they go on.

    A trial begins when nothing is lost, with short drafts, and may lose TRIAL steps and WAITS. Where drafts gain, the
    account grows to MOST and WAITS: a passage with bad drafts, or the beginning of the next answer, does not end them
    at once. Once they have ended, REGAIN is the fraction of the time that later trials may lose; each failure in a row
    halves it. Where steps are short, the device waits longer for the host than they take: once the results of all
    drafts are read, and when drafts end.
    """

    def __init__(self, most: int, cost: float, *, at_once: bool = False) -> None:
        """`most`: tokens of a draft; `cost`: of a step of the draft model, in steps of the model.

        `at_once`: such a step drafts all tokens; else one.
        """
        self.most, self._cost, self._at_once = most, cost, at_once
        self.on = False
        self.balance = 0.0
        self.wait = 0.0  # decode steps that the device waits for the host after its last result
        self.accepted = ACCEPTED  # estimated fraction of the draft's tokens, each given those before it
        self._since = 0.0  # steps with drafts since a plain one
        self._latest = 0  # tokens of the latest draft that was timed
        self._debt = 0.0  # decode steps that charge() recorded, as far as no gain has paid for them
        self._failures = 0  # trials that have ended since drafts last gained

    def choose(self, plain_ms: float, drafting_ms: Callable[[int], float], most: int = SHORT_BATCH) -> int:
        """How many tokens to draft next, `most` at most; 0: none.

        `plain_ms`: a step of one token of each sequence; `drafting_ms(k)`: one with drafts of k; 0: not measured yet.
        """
        if not self.on and (self.balance < 0 or not plain_ms):
            return 0
        if self.stale:
            return 0
        longest = self.most if self.balance > 0 else min(self.most, TRIAL_DRAFT)
        return max(range(1, min(most, longest) + 1), key=lambda k: self.gain(k, plain_ms, drafting_ms))

    @property
    def stale(self) -> bool:
        """Whether plain steps are to be timed again: the device may be slower or faster now."""
        return self._since > max(FRESH, 100 * self.wait)

    def gain(self, k: int, plain_ms: float, drafting_ms: Callable[[int], float]) -> float:
        """How many times as fast drafts of k tokens are expected to be. The arguments are those of choose()."""
        tokens, steps = sum(self.accepted**i for i in range(k + 1)), self.estimate(k, plain_ms, drafting_ms)
        # A time of long ago may have had a delay. But where drafts are made at once, a longer one costs no more:
        # what was measured of it stands, because the model may really verify it more slowly.
        if k < self._latest or (k > self._latest and not self._at_once):
            steps = min(steps, self._extrapolated(k, plain_ms, drafting_ms))
        return tokens / steps

    def estimate(self, k: int, plain_ms: float, drafting_ms: Callable[[int], float]) -> float:
        """Decode steps that a step with a draft of k tokens takes: measured, or estimated from another length."""
        if plain_ms and (ms := drafting_ms(k)):
            return min(ms / plain_ms, VERIFYING + 1 + k)  # a longer time was a delay: the draft model is no slower
        return self._extrapolated(k, plain_ms, drafting_ms)

    def _extrapolated(self, k: int, plain_ms: float, drafting_ms: Callable[[int], float]) -> float:
        """Decode steps that a step with a draft of k tokens takes, estimated from the latest length."""
        step, known = self._cost, self._latest
        if plain_ms and known and (ms := drafting_ms(known)):  # small models take longer than their bytes tell
            step = max(ms / plain_ms - VERIFYING, 0.0) / self._steps(known)
        return VERIFYING + self._steps(k) * step

    def _steps(self, k: int) -> int:
        """Steps of the draft model for k tokens."""
        return 1 if self._at_once else k

    @property
    def _limit(self) -> float:
        """Decode steps that may be lost."""
        return TRIAL + WAITS * self.wait

    def affords(self, k: int, plain_ms: float, drafting_ms: Callable[[int], float]) -> int:
        """How many steps with drafts of k tokens may be under way: their loss if all of it is rejected is covered."""
        return int(max(self.balance + self._limit, 0.0) / max(self.estimate(k, plain_ms, drafting_ms) - 1, 0.05))

    def charge(self, steps: float) -> None:
        """Record what takes so many decode steps: the draft model reads a prompt. Gains pay for it first."""
        self._debt += steps

    def start(self) -> None:
        """Record that drafts begin."""
        self.on = True

    def waited(self, weight: float = 1.0) -> None:
        """Record that the device had no work before the next steps. `weight`: as of record()."""
        self.balance -= weight * self.wait

    def record(
        self, k: int, steps: int, tokens: int, plain_ms: float, drafting_ms: Callable[[int], float],
        weight: float = 1.0,
    ) -> None:  # fmt: skip
        """Record steps with drafts of k tokens, and how many tokens they yielded.

        `weight`: of this result among those of the same steps, which has one for each sequence.
        """
        took, accepted = steps * self.estimate(k, plain_ms, drafting_ms), tokens - steps
        rejected = min(steps, steps * k - accepted)
        keep = DECAY ** (accepted + rejected)
        if accepted + rejected:
            self.accepted = keep * self.accepted + (1 - keep) * accepted / (accepted + rejected)
        self._latest, self._since = k, self._since + weight * steps
        gained = weight * (tokens - took)
        paid = min(self._debt, max(gained, 0.0))
        self._debt -= paid
        self.balance = min(MOST + WAITS * self.wait, self.balance + gained - paid)
        if self.balance > MOST / 2:
            self._failures = 0
        if self.on and self.balance <= -self._limit:
            self.on = False
            self._failures = min(self._failures + 1, FAILURES)
            self.balance -= self._debt + max(SWITCH, self.wait)
            self._debt = 0.0

    def plain(self, tokens: float) -> None:
        """Record steps without drafts by the model, by their tokens of each sequence."""
        self._since = 0.0
        if not self.on:
            self.balance = min(0.0, self.balance + REGAIN / 2**self._failures * tokens)


class Drafter:
    """What drafts on one runner. `most`: tokens that it drafts at most."""

    def __init__(self, runner: Runner, most: int) -> None:
        plan = runner.plan
        assert plan.draft is not None
        self.account = DraftAccount(min(most, plan.draft.most), plan.draft.cost, at_once=plan.draft.at_once)
        self.n_ctx, self.sequences = plan.draft.n_ctx, plan.draft.sequences
        self._runner = runner
        # lists beside those of its next steps: what reads a prompt, or begins a draft of any length
        self._beside = [begin_block(k) for k in range(1, plan.draft.most + 1)] if plan.draft.at_once else []

    def choose(self, rows: Sequence[Row]) -> int:
        """How many tokens to draft of each of some sequences for the next steps.

        0: none, or the lists are being compiled.
        """
        runner, count = self._runner, len(rows)
        if count > self.sequences:
            return 0
        if self.n_ctx < runner.plan.n_ctx and any(row.position + AHEAD >= self.n_ctx for row in rows):
            return 0
        if plain_ms := runner.step_ms(count):
            self.account.wait = runner.wait_ms / plain_ms
        drafts = self.account.choose(plain_ms, self._step_ms(count), SHORT_BATCH // count - 1)
        sequences = [row.seq for row in rows]
        lists = runner.step_lists(sequences, drafting=True, n_model_draft=drafts) if drafts else []
        return drafts if drafts and runner.prepared([*self._beside, *lists], sequences) else 0

    def gain(self, count: int, drafts: int) -> float:
        """How many times as fast `count` sequences are expected to be with drafts of so many tokens."""
        return self.account.gain(drafts, self._runner.step_ms(count), self._step_ms(count))

    def steps(self, count: int, drafts: int, ms: float, in_flight: int) -> int:
        """How many steps of `count` sequences to submit now, which take about `ms`, while others are in flight.

        0: wait for their results. A time that was not measured yet is estimated: the browser reports a submit of one
        step so late that it looks many times as long as it is.
        """
        runner, plain_ms, step_ms = self._runner, self._runner.step_ms(count), self._step_ms(count)
        wanted = runner.steps_in(count, ms, drafting=True, n_model_draft=drafts)
        if runner.on_gpu and plain_ms and not step_ms(drafts):
            wanted = max(1, min(MOST_STEPS, int(ms / (plain_ms * self.account.estimate(drafts, plain_ms, step_ms)))))
        covered = self.account.affords(drafts, plain_ms, step_ms) - in_flight
        return min(wanted, max(covered, 0 if in_flight else 1))

    def _step_ms(self, count: int) -> Callable[[int], float]:
        """The time of a step of so many sequences by the tokens of a draft."""
        return lambda drafts: self._runner.step_ms(count, drafting=True, n_model_draft=drafts)

    def catch_up(self, sequence: RunningSequence, count: int, ms: float) -> bool:
        """Compute a part, of about `ms`, of what the drafter lacks of one of `count` sequences; whether that was all.

        Only a draft model lacks anything: the model's own lists compute what the others read.
        """
        return True

    def start(self, rows: Sequence[Row]) -> None:
        """Begin to draft for sequences, after catch_up()."""
        self.account.start()
        self._runner.start_drafts(rows)

    def record(self, sequence: RunningSequence, count: int, drafts: int, steps: int, tokens: int) -> None:
        """Record the result of steps with drafts for one of `count` sequences, as it is afterwards."""
        self.account.record(drafts, steps, tokens, self._runner.step_ms(count), self._step_ms(count), 1 / count)


class DraftModel(Drafter):
    """The draft model of one runner."""

    def __init__(self, runner: Runner, most: int) -> None:
        super().__init__(runner, most)
        assert runner.plan.draft is not None
        self._beside, self._cost = [DRAFT_PREFILL], runner.plan.draft.cost

    def catch_up(self, sequence: RunningSequence, count: int, ms: float) -> bool:
        """Feed the draft model what it lacks of a sequence's tokens before the newest two, which each step computes."""
        runner, batch, end = self._runner, self._runner.plan.batch, min(sequence.position - 1, len(sequence.ids))
        first = min(sequence.cache.drafted, end)
        token_ms, plain_ms = self._cost * runner.prompt_token_ms(), runner.step_ms(count)
        fed = min(end, first + max(batch, int(ms / token_ms) if token_ms else 0))
        for at in range(first, fed, batch):
            runner.feed(at, sequence.ids[at : min(at + batch, fed)], [DRAFT_PREFILL], sequence.cache.number)
        sequence.cache.record_drafted(fed)
        self.account.charge((fed - first) * token_ms / plain_ms if plain_ms else 0.0)
        return fed == end

    def record(self, sequence: RunningSequence, count: int, drafts: int, steps: int, tokens: int) -> None:
        sequence.cache.record_drafted(sequence.position - 1)
        super().record(sequence, count, drafts, steps, tokens)


def drafter_of(runner: Runner, most: int) -> Drafter | None:
    """What drafts on a runner, up to `most` tokens; None: nothing but prompt lookup."""
    if runner.plan.draft is None:
        return None
    return Drafter(runner, most) if runner.plan.draft.computed_by_model else DraftModel(runner, most)
