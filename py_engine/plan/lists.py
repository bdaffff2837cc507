"""The names of a plan's lists of ops. planner.py says what each list computes."""

PREFILL = "prefill"
MEDIA = "media"  # PREFILL where tokens belong to pictures or sounds (media.py)
PACKED = "packed"  # PREFILL for several sequences at once (packing.py)
PACKED_LAST = "packed_last"
LAST_LOGITS = "last_logits"
ALL_LOGITS = "all_logits"
DECODE = "decode"
SMALL_BATCH = "small_batch"
SMALL_BATCH_LAST_LOGITS = "small_batch_last_logits"
SMALL_BATCH_LOGITS = "small_batch_logits"
GREEDY = "greedy"
DRAW = "draw"
SAMPLE = "sample"
SHAPED_GREEDY = "shaped_greedy"
SHAPED_DRAW = "shaped_draw"
SHAPED_SAMPLE = "shaped_sample"
MASKED_GREEDY = "masked_greedy"
MASKED_DRAW = "masked_draw"
MASKED_SAMPLE = "masked_sample"
LOGPROBS = "logprobs"
EMBED = "embed"
TOKEN_ROWS = "token_rows"
NORMALIZE = "normalize"  # scales pooled embeddings to length 1
ADAPTED = ".adapted"
SHORT = "short_"
MEDIUM = "medium_"
LONG = "long_"
SPLIT_ATTENTION = "split_"
OF_PROMPTS = (PREFILL, MEDIA, PACKED, PACKED_LAST, LAST_LOGITS, ALL_LOGITS, EMBED, TOKEN_ROWS, NORMALIZE)
SIZES = (SPLIT_ATTENTION, SHORT, MEDIUM, LONG)  # of batches (batch_sizes.py), in the order in which a name has them
DRAFT_BEGIN = "draft_begin"  # before the draft model's first step of a round (draft_states.wgsl)
DRAFT_NEWEST = "draft_newest"  # after that step's layers, of several sequences
DRAFT_END = "draft_end"  # after its last one


MTP = "mtp"  # the MTP layer on the newest token: logits of the token after the next one
MTP_NEXT = "mtp_next"  # the same on a token that it has drafted
# a DFlash model's layers on a draft block: the newest token of each sequence, and masked ones after it
DRAFT_BLOCK = "draft_block"
DRAFT_BLOCK_MASKED = "draft_block_masked"  # after it: the masked tokens are left
DRAFT_BLOCK_LOGITS = "draft_block_logits"  # after it: the logits of the tokens that they stand for


def begin_block(tokens: int) -> str:
    """The list before DRAFT_BLOCK, with so many masked tokens of each sequence."""
    return f"draft_block_begin_{tokens}"


def each(sampler: str) -> str:
    """The list that does for every sequence of a small batch what `sampler` does for one."""
    return f"{sampler}_each"


def verify(sampler: str) -> str:
    """The list that verifies a draft by the tokens that `sampler` samples."""
    return f"{sampler}_verify"


def adapted(name: str) -> str:
    """The list that computes what `name` does, with what adapters add. A plan has it where the two differ."""
    return name + ADAPTED


def plain(name: str) -> str:
    """The list without adapters."""
    return name.removesuffix(ADAPTED)


def short(name: str) -> str:
    """The list that does what `name` does, for batches of few tokens (batch_sizes.py)."""
    return SHORT + name


def medium(name: str) -> str:
    """The list that does what `name` does, for batches of more tokens than short() and fewer than usual."""
    return MEDIUM + name


def long(name: str) -> str:
    """The list that does what `name` does, for batches of more tokens (batch_sizes.py)."""
    return LONG + name


def split_attention(name: str) -> str:
    """The list `name` of prompts, maybe a short() or medium() one, with attention for long contexts."""
    return SPLIT_ATTENTION + name


def unsized(name: str) -> str:
    """The list that does what `name` does, for batches of usual size."""
    for prefix in SIZES:
        name = name.removeprefix(prefix)
    return name


def pool(pooling: str) -> str:
    """The list that pools each sequence of a packed batch after EMBED. `pooling`: "mean", "cls", "last" or "rank"."""
    return f"pool.{pooling}"


def of_prompts(name: str) -> bool:
    """Whether a list reads prompts, or follows one that does. The other lists may run between slices."""
    return plain(unsized(name)) in OF_PROMPTS or name.startswith("pool.")


DECODE_STEP = (DECODE, GREEDY)  # one token of one sequence
BATCH_FORWARD = (SMALL_BATCH, SMALL_BATCH_LOGITS)  # the logits of every token of a small batch
BATCH_STEP = (*BATCH_FORWARD, each(GREEDY))  # one token of each of several sequences
PREFILL_END = (PREFILL, LAST_LOGITS)  # the last batch of a prompt
MEDIA_END = (MEDIA, LAST_LOGITS)  # the same with media
SMALL_BATCH_END = (SMALL_BATCH, SMALL_BATCH_LAST_LOGITS)  # the last batch of a prompt, if it is small


def forced_tokens(tokens: int, *, logits: bool) -> tuple[str, ...]:
    """The lists that read some tokens, which round like decoded ones. `logits`: and compute those after the last."""
    if tokens == 1:
        return (DECODE,)
    return SMALL_BATCH_END if logits else (SMALL_BATCH,)
