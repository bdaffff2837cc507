"""What a model has done for all its requests: counters that only grow, so that two readings give a rate."""

from dataclasses import dataclass


@dataclass
class Totals:
    """Counts since the model was loaded."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompts' tokens
    completion_tokens: int = 0
    prompt_ms: float = 0.0  # of all requests, which may have run side by side
    decode_ms: float = 0.0
    draft_steps: int = 0  # steps that verified drafts, of each sequence
    draft_tokens: int = 0  # that those steps yielded: one each, and the accepted ones
    model_drafted: int = 0  # tokens that a draft model or an MTP layer drafted
    model_accepted: int = 0  # of them
    batches: int = 0  # that the model computed: parts of prompts, and steps
    batch_sequences: int = 0  # the sum of their sequences
    longest: int = 0  # tokens of the longest sequence

    def count(self, batches: int, sequences: int) -> None:
        """Count batches with so many sequences each."""
        self.batches += batches
        self.batch_sequences += batches * sequences

    def count_drafts(self, steps: int, tokens: int, n_model_draft: int) -> None:
        """Count a sequence's steps with drafts, and the tokens that they yielded.

        `n_model_draft`: tokens of each draft, if a draft model or an MTP layer made it; 0: prompt lookup did.
        """
        self.draft_steps += steps
        self.draft_tokens += tokens
        if n_model_draft:
            self.model_drafted += n_model_draft * steps
            self.model_accepted += tokens - steps
