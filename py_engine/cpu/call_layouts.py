"""The CPU engine's calls: a struct of 32-bit words for each op. tools/wasm.py makes calls.h of them.

A field is an address, a size or a parameter; one that ends with ":f" is a float. The first word of a call is the op's
number. Addresses count words of 4 bytes: so 32 bits reach 16 GiB, the most that a 64-bit module's memory can have. Most
ops begin with these fields:

    state, per_token          the State (wgsl/lib/state.wgsl), and whether every token has its own
    records                   index of the first token's record in the tables, of a batch with media; 0: it has none
    segments                  index of a packed batch's first segment in the tables; 0: not packed
    table, pages, page        of a cache: where its block tables begin, their length, positions of a page (0: no pages)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from py_engine.files.tensor_types import BLOCK_SIZES
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import shared_constants
from py_engine.plan.pages import RECORD_WORDS, TABLES
from py_engine.plan.panels import FORMATS, ROUNDED_GROUP_BYTES
from py_engine.plan.sampling import FIELDS as SAMPLING
from py_engine.plan.states import MAX_TAPS

WORD = 4  # bytes that an address counts as one
_CACHE = "state per_token segments table pages page"
_KEYS = "key_table step key_width"
_SAMPLED = "state per_token rows rows_most vocab logits stride best"

FIELDS: dict[str, list[str]] = {
    name: fields.split()
    for name, fields in {
        "embed": "state per_token segments kind tokens tokens_stride w type row0 rows cols scale:f media_row media"
        " media_stride x x_stride",
        "switch_adapters": "state per_token segments adapters tokens tokens_stride control others:f embedded chosen"
        " weights",
        "add_media": "state per_token tokens tokens_stride first cols media media_stride x x_stride",
        "prepare": "state last repeat exact x x_stride cols norm eps:f to to_stride",
        "product": "state last exact x x_row w type rows cols row0 factor:f bias scales scale_row_1 scale_row_2"
        " y y_stride",
        "expert_product": "state exact x x_row w type rows cols experts stack used chosen tiles tile_count slots"
        " per_slot row0 bias scales y y_stride",
        "add_low_rank": "state per_token last entries count scales adapters w type cols h h_stride first rows y"
        " y_stride",
        "add_expert_low_rank": "state per_token index adapter ratio:f first scales adapters w type rows cols experts"
        " used chosen weights factors h h_stride y y_stride",
        "add_direction": "state per_token scales adapters adapter direction cols streams x x_stride",
        "norm": "state cols groups width mean add eps:f x x_stride norm bias y y_stride",
        "normalize": "state cols y y_stride",
        "activate": "state repeat activation limit:f up_limit:f gated cols factors x x_stride y y_stride",
        "xielu": "state cols alpha_n:f alpha_p:f beta:f eps:f x x_stride y y_stride",
        "scale_queries": "state per_token segments cols scale:f length first y y_stride",
        "clamp": "state cols limits x x_stride y y_stride",
        "gate": "state activation cols span x x_stride x_first up up_stride first y y_stride",
        "add_scaled": "state scale:f stride x gate gate_stride y",
        "scale_by": "state stride x factor",
        "soft_cap": "state stride y scale:f cap:f",
        "altup_predict": "state count scale:f router router_stride factors cols x y",
        "altup_correct": "state count scale:f router router_stride factors cols x y weights scaled",
        "laurel": "state cols eps:f norms attended low x stride",
        "copy_columns": "state cols parts add scale:f x x_stride x_first x_step like like_stride y y_stride y_first"
        " y_step",
        "merge_streams": "state count cols part parts factor:f eps:f products products_stride terms streams"
        " streams_stride y stride",
        "spread_streams": "state count cols part parts factor:f eps:f products products_stride terms streams"
        " streams_stride x stride",
        "remix_streams": "state count cols rounds eps:f products products_stride terms streams streams_stride x stride",
        "norm_streams": "state count cols scale:f eps:f norm x x_stride y y_stride",
        "mix_streams": "state count cols x x_stride gates gates_stride y y_stride",
        "embed_ngrams": "state per_token segments heads per_length longest end picture tokens tokens_stride hashes w"
        " type row0 rows cols x x_stride",
        "gate_ngrams": "state count cols eps:f norms key key_stride value value_stride streams streams_stride y"
        " y_stride",
        "attend_streams": "state count cols eps:f scores stored stored_stride x y stride",
        "sparse_gate": "state activation cols deviations:f x x_stride y y_stride",
        "pool": "state segments kind stride x y",
        "pick_rows": "state per_token rows stride x y",
        "mtp_input": "state per_token segments source residual cols ring_rows eps:f e hidden x x_stride norm ring y"
        " y_stride",
        "store_hidden": "state per_token cols ring_rows eps:f x x_stride norm ring",
        "map_logits": "state cols rows token_rows x x_stride y y_stride",
        "shortconv": f"{_CACHE} cols size halves cache weights x x_stride y y_stride",
        "shortconv_all": "state segments cols size weights x x_stride y y_stride",
        "ssm_window": f"{_CACHE} channels taps first windows x x_stride",
        "ssm_conv": f"{_CACHE} tile channels taps apart first weights w type bias windows x x_stride y y_stride",
        "ssm_scan": f"{_CACHE} rule tiled per_key heads groups rows cols rates matrices x x_stride values k k_stride"
        " keys q q_stride queries gates g_stride dt beta eps:f bound:f y y_stride",
        "token_shift": f"{_CACHE} cols parts first rows window writes factors windows changes changes_stride x x_stride"
        " y0 y1 y2 y_stride",
        "wkv7_inputs": "state cols heads is_first factors first_values first_stride x stride decay rate key value"
        " removed",
        "wkv_scan": f"{_CACHE} rule heads groups size bonus matrices x stride decay receptance key value removed added"
        " y y_stride",
        "wkv_output": "state cols heads norm bonus kind eps:f factors x x_stride rows row_stride receptance key value"
        " gate gate_stride y y_stride",
        "gated_norm": "state cols groups norms gate_first sigmoid eps:f norm x x_stride z z_stride first y y_stride",
        "rope": f"{_CACHE} staged halves q_rows kv_rows head_dim rope_dim neox turns mrope records shifts"
        " anchor scale:f freqs k v x x_stride y y_stride after per_head",
        "latent_append": f"{_CACHE} halves heads nope rope rank neox eps:f scale:f freqs norm q q_stride kv kv_stride k"
        " y y_stride",
        "index_append": f"{_CACHE} heads size rope first row raw neox eps:f scale:f freqs norm x x_stride k y y_stride",
        "index_join": f"{_CACHE} size pool row gate_bias k",
        "index_join_raw": f"{_CACHE} size pool rope first row neox eps:f scale:f freqs norm k",
        "index_scores": f"{_CACHE} {_KEYS} heads size pool row weighted first tokens width scale:f q q_stride x"
        " x_stride x_first k scores",
        "index_choose": "state per_token segments top_k pool first tokens width scores heap mask",
        "window_append": f"{_CACHE} halves heads size rope keyed columns eps:f scale:f freqs norm x x_stride x_first k"
        " inputs y y_stride",
        "compress": f"{_CACHE} halves size rope ratio overlaps {_KEYS} eps:f scale:f freqs norm w type inputs c",
        "compressed_attention": f"{_CACHE} halves heads size rope window ratio {_KEYS} scale:f freqs"
        " sinks mask mask_words q q_stride k c y y_stride",
        "head_products": "state transposed heads w type rows cols w_first w_head x x_stride x_first x_head y y_stride"
        " y_first y_head",
        "head_norm": "state q_rows kv_rows head_dim across_heads per_head alone mean norm_values eps:f norm bias x"
        " x_stride",
        "kv_quantize": "state per_token table pages page cols k_new v_new k v",
        "attention": "state segments records table pages page kind head_dim group kv_heads window chunked size causal"
        " soft_cap:f scale:f sinks slopes relative relative_type heads buckets mask mask_words q q_stride k v y"
        " y_stride",
        "attention_decode": "state per_token table pages page kind head_dim group kv_heads window chunked part shifts"
        " anchor from mutual size split soft_cap:f scale:f slopes relative relative_type heads buckets mask mask_words"
        " q q_stride k v parts",
        "attention_combine": "state per_token head_dim heads window chunked part shifts anchor from mutual size split"
        " sinks parts y y_stride",
        "route": "state per_token experts used normalised gating groups groups_used sharing scale:f logits stride bias"
        " factors table table_stride table_rows tokens tokens_stride chosen weights",
        "group_experts": "state experts used size chosen slots tiles tile_count",
        "weighted_sum": "state used cols x x_stride weights y stride",
        "sample_best": _SAMPLED,
        "sample_shape": f"{_SAMPLED} shaped sampling tokens tokens_stride rules rules_words bit_words masked",
        "sample_draw": "state rows rows_most vocab logits stride best drawn sampling",
        "sample": "state per_token rows rows_most best drawn sampling chosen tokens tokens_stride",
        "advance": "state chosen tokens tokens_stride drafting drafts min_match",
        "draft_rows": "state drafting",
        "draft_states": "state drafting stage anchor drafts mask tokens tokens_stride",
        "logprobs": "state rows_most vocab logits stride sampling tokens tokens_stride logprobs",
        "patches": "state side pixels places values y y_stride",
        "gather": "state w type plain_stride row0 rows cols taps taps_stride tap0 count add first y y_stride",
        "nearest_code": "state w type codes row0 cols tap taps taps_stride x x_stride",
        "unfold": "state cols taps count x x_stride y y_stride",
        "shift_scale": "state cols factor shift x x_stride",
        "matmul_transposed": "state w type rows cols x x_stride y y_stride",
        "depthwise": "state w type channels taps count terms terms_count x stride y",
        "subsample": "state w type channels bins length biases x x_stride y y_stride part_stride",
        "relative_attention": "state heads head_dim window soft_cap:f q_scale:f k_scale:f factor x x_stride relative"
        " relative_stride y y_stride",
        "relative_attention_all": "state heads head_dim block scale:f biases x x_stride relative relative_stride y"
        " y_stride",
        "softmax": "state cols x x_stride y y_stride",
        "column_norms": "state cols x x_stride y",
        "grid_heads": "state heads head_dim side scale:f x x_stride columns lines table_stride cells y y_stride k v",
        "response_norm": "state cols least:f x x_stride lengths terms y y_stride",
        "read": "x bytes y",
        "multiply": "floats times x y",
    }.items()
}
NUMBERS = {name: i for i, name in enumerate(FIELDS)}
LAYOUTS = {name: struct.Struct("<I" + "".join("f" if f.endswith(":f") else "I" for f in fields))
           for name, fields in FIELDS.items()}  # fmt: skip
NAMES = {name: [f.removesuffix(":f") for f in fields] for name, fields in FIELDS.items()}

# The numbers of the values that parameters have by name.
STAGES = {"begin": 0, "pairs": 1, "newest": 2, "end": 3, "block": 4, "masked": 5}  # of draft_states
HIDDEN_STATES = {"batch": 0, "ring": 1, "own": 2}
RESIDUALS = {"none": 0, "raw": 1, "normed": 2}  # of mtp_input
KV_KINDS = {"f32": 0, "f16": 1, "q8_0": 2}
EMBED_ROWS = {"token": 0, "position": 1, "first": 2}
MEDIA_ROWS = {"none": 0, "given": 1, "first": 2, "scaled": 3}
ACTIVATIONS = {"silu": 0, "gelu": 1, "tanh": 2, "relu2": 3, "swiglu_oai": 4, "relu": 5, "sigmoid": 6,
               "gelu_erf": 7, "gelu_quick": 8, "hard_sigmoid": 9, "hard_swish": 10,
               "clamped_silu": 11, "softplus": 12, "softplus2": 13, "situ": 14}  # fmt: skip
GATINGS = {"softmax": 0, "sigmoid": 1, "sqrt_softplus": 2}  # of route
RULES = {"ssd": 0, "delta": 1, "s6": 2}
WKV_RULES = {"wkv6": 0, "gla": 1, "wkv7": 2}
GATES = {"none": 0, "linear": 1, "silu": 2, "sigmoid": 3}  # of wkv_output
PARTS = {0: 0, "encoder": 1, "decoder": 2}  # of a cache (plan/encoder_decoder.py)
POOLINGS = {"mean": 0, "cls": 1, "last": 2, "spread": 3}


def pack(name: str, values: Mapping[str, int | float]) -> bytes:
    """A call's bytes. KeyError if a field is missing or unknown."""
    if unknown := set(values) ^ set(NAMES[name]):
        raise KeyError(f"{name}: {sorted(unknown)}")
    return LAYOUTS[name].pack(NUMBERS[name], *(values[field] for field in NAMES[name]))


def header() -> str:
    """The text of calls.h."""
    enums = {"KV": KV_KINDS, "EMBED": EMBED_ROWS, "MEDIA": MEDIA_ROWS, "": ACTIVATIONS, "POOL": POOLINGS, "RULE": RULES}
    enums["PART"] = {str(name): value for name, value in PARTS.items() if name}
    enums["GATING"] = GATINGS
    enums |= {"WKV": WKV_RULES, "GATE": GATES, "STAGE": STAGES, "HIDDEN": HIDDEN_STATES, "RESIDUAL": RESIDUALS}
    numbers: dict[str, object] = {"TABLES": TABLES, "FORMATS": 1 + max(FORMATS), "RECORD_WORDS": RECORD_WORDS,
                                  "ROUNDED_GROUP_BYTES": ROUNDED_GROUP_BYTES}  # fmt: skip
    names = ("MOST_DISTANCE", "MAX_MATCH", "SHORT_BATCH", "MAX_LOGPROBS", "LOGPROB_ROWS", "MAX_EXPERT_GROUPS")
    numbers |= {name: getattr(shared_constants, name) for name in names}
    numbers["MAX_TAPS"] = MAX_TAPS
    numbers |= {name: f"{getattr(shared_constants, name)}f" for name in ("BANNED", "LEAST_TEMPERATURE")}
    numbers |= {"FIRST_MEDIA_ID": f"{shared_constants.FIRST_MEDIA_ID}u"}
    numbers |= {
        f"{prefix}_{name}".strip("_").upper(): value for prefix, names in enums.items() for name, value in names.items()
    }
    lines = ["// Made by tools/wasm.py from py_engine/cpu/call_layouts.py.", "#pragma once"]
    lines += [f"#define {name} {value}" for name, value in numbers.items()]
    lines.append(f"enum {{ {', '.join(f'{type.name} = {type.value}' for type in FORMATS)} }};")
    lines.append(_struct("Sampling", [f"{name}:f" if kind == "f32" else name for name, kind in SAMPLING.items()]))
    lines += [_struct(f"{name}_call", ["op", *fields]) for name, fields in FIELDS.items()]
    lines.append("#define OPS(DO) " + " ".join(f"DO({name})" for name in FIELDS))
    kinds = {(f.kind, f.scales, int(f.minimum)): None for f in FORMATS.values() if f.kind != "FLOATS"}
    lines.append("#define EACH_KIND(DO) " + " ".join(f"DO({', '.join(map(str, kind))})" for kind in kinds))
    lines.append("#define FORMAT_TABLE " + ", ".join(_format(type) for type in FORMATS))
    return "\n".join(lines) + "\n"


def _struct(name: str, fields: list[str]) -> str:
    body = "".join(f" {'f32' if f.endswith(':f') else 'u32'} {f.removesuffix(':f')};" for f in fields)
    return f"typedef struct {{{body} }} {name};"


def _format(type: Q) -> str:
    f, (block, size) = FORMATS[type], BLOCK_SIZES[type]
    numbers = [f.kind, f.scales, int(f.minimum), f.offset, f.values, f.unit_bytes(type), block, size]
    return f"[{type.name}] = {{{', '.join(map(str, numbers))}, {{{', '.join(map(str, f.table or (0,)))}}}}}"
