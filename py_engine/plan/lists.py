"""The names of a plan's lists of ops. planner.py says what each list computes."""

PREFILL = "prefill"
LAST_LOGITS = "last_logits"
ALL_LOGITS = "all_logits"
DECODE = "decode"
SMALL_BATCH = "small_batch"
SMALL_BATCH_LAST_LOGITS = "small_batch_last_logits"
SMALL_BATCH_LOGITS = "small_batch_logits"
SAMPLE_EACH = "sample_each"
VERIFY_DRAFT = "verify_draft"
SAMPLE = "sample"
RESAMPLE = "resample"
SHAPED_SAMPLE = "shaped_sample"
SHAPED_RESAMPLE = "shaped_resample"
LOGPROBS = "logprobs"
EMBED = "embed"
NORMALIZE = "normalize"  # scales the pooled embedding to length 1


def pool(pooling: str) -> str:
    """The list that pools a sequence's rows after EMBED. `pooling`: "mean", "cls", "last" or "rank"."""
    return f"pool.{pooling}"


DECODE_STEP = (DECODE, SAMPLE)  # one token of one sequence
BATCH_STEP = (SMALL_BATCH, SMALL_BATCH_LOGITS, SAMPLE_EACH)  # one token of each of several sequences
DRAFT_STEP = (SMALL_BATCH, SMALL_BATCH_LOGITS, VERIFY_DRAFT)  # a token and a draft of one sequence
PREFILL_END = (PREFILL, LAST_LOGITS)  # the last batch of a prompt
SMALL_BATCH_END = (SMALL_BATCH, SMALL_BATCH_LAST_LOGITS)  # the last batch of a prompt, if it is small
