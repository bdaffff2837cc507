"""Other settings of a preset for campaign.py: sizes that fit together, lists for each layer, scales and switches."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.golden.make.presets import Settings

Random = np.random.Generator

# Single numbers and switches, where the preset has them
VALUES: dict[str, list[Any]] = {
    "n_embd": [32, 36, 48, 64, 72, 96, 100, 128, 160],
    "n_layer": [1, 2, 3, 4, 5],
    "head_dim": [8, 10, 12, 16, 20, 24, 32, 36, 48, 64, 80, 128],
    "n_ff": [20, 33, 48, 64, 96, 160],
    "n_ff_dense": [33, 40, 100],
    "n_ff_shexp": [20, 36, 48],
    "n_ff_chunk": [16, 40],
    "n_ff_expert": [24, 56],
    "vocab": [301, 304, 320, 517],
    "eps": [1e-6, 1e-5, 1e-3],
    "rope_base": [100.0, 10000.0, 500000.0, 1e7],
    "rope_base_swa": [50.0, 10000.0],
    "window": [1, 3, 7, 16, 33, 100],
    "n_expert": [2, 3, 5, 8, 12, 33],
    "n_shared": [1, 2, 3],
    "lead": [0, 1, 2],
    "weights_norm": [True, False],
    "weights_scale": [0.4, 1.0, 2.2],
    "gating": [1, 2],
    "tied": [True, False],
    "parallel": [True, False],
    "attn_cap": [2.0, 20.0],
    "final_cap": [4.0, 25.0],
    "logit_scale": [0.4, 1.6],
    "residual_scale": [0.3, 0.9],
    "embedding_scale": [2.0, 5.0],
    "attn_scale": [0.08, 0.3],
    "attn_out_scale": [0.5],
    "clamp_kqv": [0.8, 3.0],
    "alibi": [2.0, 8.0],
    "value_scale": [0.4],
    "group_scale": [0.3],
    "d_conv": [2, 3, 4, 5],
    "d_state": [8, 12, 16, 20, 32],
    "ssm_heads": [2, 3, 4, 6, 8],
    "l_cache": [2, 3, 4, 5],
    "kv_rank": [20, 28, 36, 48, 64, 100],
    "q_rank": [20, 28, 44, 100],
    "nope": [8, 12, 20, 32, 48],
    "v_dim": [8, 12, 16, 24, 32, 48],
    "kda_dim": [8, 16, 20, 24, 32, 40],
    "kda_bound": [-5.0, -1.5],
    "head_size": [32, 64],
    "mix_rank": [8, 12, 32],
    "decay_rank": [8, 20, 32],
    "buckets": [4, 8, 32],
    "start": [0, 9],
    "pl": [8, 12, 32],
    "n_out": [24, 64],
    "dense": [36, 160],
    "ff_key": [40, 104],
    "lora_rank": [4, 12],
    "gain": [2.0, 5.0],
    "loops": [1, 2, 3],
    "skip_norm": [True, False],
    "routed": [20, 44],
    "rescale": [1, 2],
    "attention_every": [2, 3],
    "norm_groups": [1, 2],
    "rope": ["yarn", "linear", "llama3"],
}
SHAPED = 0.5  # odds of another value of each
WHOLE = 0.8  # odds of heads that are as wide as a row together, which some architectures need
# of rotations with other frequencies, where the preset has none
SCALED, SCALINGS = 0.15, [("yarn", 4.0), ("linear", 2.5), ("llama3", 8.0)]
SINGLE = 0.1  # odds of a rotation of one pair
LISTS = ("pattern", "rope_pattern", "clamp_exp", "clamp_shexp", "head_arr", "ff_arr", "kv_arr", "ratios", "sharing")


def drawn(used: Settings, random: Random) -> Settings:
    """Other settings for a preset whose settings are `used`. Those that depend on others fit them."""
    out = {name: values[int(random.integers(len(values)))] for name, values in VALUES.items() if name in used}
    out = {name: value for name, value in out.items() if random.random() < SHAPED}
    made = used | out
    for fit in FITS:
        made |= fit(made, used, random)
    return {name: value for name, value in made.items() if name not in used or used[name] != value}


def _heads(made: Settings, used: Settings, random: Random) -> Settings:
    if "head_size" in used:  # RWKV: heads divide the width
        return {"n_embd": made["head_size"] * int(random.integers(1, 4))}
    if used["n_head"] == used["n_kv"] and random.random() < SHAPED:
        heads = int(random.choice([1, 2, 3, 4, 5, 6, 8]))
        return {"n_kv": heads, "n_head": heads}
    if used["n_head"] * used["head_dim"] == used["n_embd"] and random.random() < WHOLE:
        return {"n_embd": made["n_head"] * made["head_dim"]}
    if random.random() < SHAPED:
        kv = int(random.choice([1, 2, 3, 4]))
        return {"n_kv": kv, "n_head": kv * int(random.choice([1, 2, 3, 4]))}
    return {}


def _rotation(made: Settings, used: Settings, random: Random) -> Settings:
    out: Settings = {}
    size = made["head_dim"]
    if used.get("rope_dim") and "kv_rank" not in used:
        out["rope_dim"] = 2 if random.random() < SINGLE else 4 * int(random.integers(1, size // 4 + 1))
    elif used.get("rope_dim"):
        out["rope_dim"] = int(random.choice([4, 8, 12, 16]))
    if "rope_dim_swa" in used:
        out["rope_dim_swa"] = 4 * int(random.integers(1, size // 4 + 1))
    if "sections" in used:
        pairs: int = (out.get("rope_dim") or used.get("rope_dim") or size) // 2
        count = 4 if used["sections"][3] else 3
        cuts = sorted(int(cut) for cut in random.integers(0, pairs + 1, count - 1))
        sections = [b - a for a, b in zip([0, *cuts], [*cuts, pairs], strict=True)]
        out["sections"] = sections + [0] * (4 - count)
    if "rope" not in used and random.random() < SCALED:
        out["rope"], out["rope_factor"] = SCALINGS[int(random.integers(len(SCALINGS)))]
    return out


def _widths(made: Settings, used: Settings, random: Random) -> Settings:
    """The width of networks that the metadata name, as a multiple of what the tensors have."""
    if "ff_key" not in used or used["ff_key"] % used["n_ff"]:
        return {}
    return {"ff_key": used["ff_key"] // used["n_ff"] * made["n_ff"]}


def _experts(made: Settings, used: Settings, random: Random) -> Settings:
    if not used.get("n_expert"):
        return {}
    out: Settings = {}
    if groups := used.get("groups"):
        out["n_expert"] = groups * int(random.choice([2, 3, 4]))
        out["groups_used"] = int(random.integers(1, groups + 1))
    if "experts_per_group" in used:
        out["n_expert"] = used["experts_per_group"] * int(random.choice([2, 3, 4]))
    most: int = (made | out)["n_expert"]
    out["n_used"] = int(random.integers(1, min(most, 6) + 1))
    if used.get("n_ff_dense") == used["n_ff"]:
        out["n_ff_dense"] = made["n_ff"]
    if used.get("n_ff_shexp") == used["n_ff"] * used.get("n_shared", 1):
        out["n_ff_shexp"] = made["n_ff"] * made.get("n_shared", 1)
    return out


def _recurrent(made: Settings, used: Settings, random: Random) -> Settings:
    if "d_inner" not in used:
        return {}
    out: Settings = {}
    heads = made["ssm_heads"]
    divisors = [count for count in range(1, heads + 1) if heads % count == 0]
    if used["ssm_groups"]:
        out["ssm_groups"] = int(random.choice(divisors))
    if used["d_inner"] == used["ssm_heads"] * used["d_state"]:
        out["d_inner"] = heads * made["d_state"]
    elif used["d_inner"] == 2 * used["n_embd"]:
        out["d_inner"] = 2 * made["n_embd"]
    else:
        out["d_inner"] = heads * int(random.choice([8, 12, 16, 24, 32]))
    return out


def _streams(made: Settings, used: Settings, random: Random) -> Settings:
    """Residual streams, indices and n-grams."""
    out: Settings = {}
    if used["arch"] == "qwen4exp":
        out["streams"] = (int(random.choice([2, 3, 4, 5])), int(random.choice([4, 8, 12, 20])))
        top_k = 4 * int(random.choice([1, 2, 5, 13, 24, 64]))  # the ratios below divide it
        if made["sections"] != used["sections"]:  # which may leave pairs out: then Wisp's contexts are as short
            top_k = 256
        out["index"] = (int(random.choice([1, 2, 3])), int(random.choice([12, 20, 32])), top_k)
    elif "streams" in used:
        out["streams"] = (int(random.choice([2, 3, 4])), *used["streams"][1:])
    if "mixed" in used:
        out["mixed"] = (4, int(random.choice([1, 2, 3, 5])), float(random.choice([1e-6, 1e-3, 0.05])))
        out["pooled"] = int(random.choice([2, 4, 8]))
    if "ngrams" in used:
        longest, per_length = int(random.choice([2, 3, 4])), int(random.choice([1, 2, 3]))
        count = (longest - 1) * per_length
        out["n_embd"] = 4 * count * int(random.integers(1, 4))
        end, picture = int(random.integers(0, 300)), used["ngrams"][5]
        out["ngrams"] = (0, longest, per_length, int(random.choice([2, 3, 4])), end, picture)
    return out


def _lists(made: Settings, used: Settings, random: Random) -> Settings:
    """Values for each layer."""
    if not any(isinstance(used.get(name), list) for name in LISTS) and "layers" not in used:
        return {}
    out: Settings = {"n_layer": used["n_layer"] if used["arch"] == "deci" else made["n_layer"]}
    layers = out["n_layer"]
    for name in ("pattern", "rope_pattern"):
        if isinstance(used.get(name), list):
            out[name] = [bool(random.random() < SHAPED) for _ in range(layers)]
    for name in ("clamp_exp", "clamp_shexp"):
        if isinstance(used.get(name), list):
            out[name] = [float(random.choice([0.0, 0.3, 0.6])) for _ in range(layers)]
    if isinstance(used.get("ratios"), list):
        ratio = int(random.choice([2, 4]))  # the same in all layers that have one
        out["ratios"] = [ratio * int(random.random() < SHAPED) for _ in range(layers)]
    if "sharing" in used:
        out["sharing"] = [1, *(int(random.random() < SHAPED) for _ in range(layers - 1))]
    if "head_arr" in used and used["arch"] != "deci":
        kv = [made["n_kv"]] * layers
        if "kv_arr" in used:
            kv = out["kv_arr"] = [int(random.choice([1, 2, 3])) for _ in range(layers)]
        out["head_arr"] = [n * int(random.choice([1, 2, 3])) for n in kv]
    if "ff_arr" in used and used["arch"] != "deci":
        out["ff_arr"] = [int(random.choice([40, 64, 100])) for _ in range(layers)]
    if "layers" in used:
        kinds = "".join(str(random.choice(list("M*-"))) for _ in range(layers))
        out["layers"] = kinds if "M" in kinds else "M" + kinds[1:]
    return out


def _compressed(made: Settings, used: Settings, random: Random) -> Settings:
    """DeepSeek V4's heads, of one key, and the ratios of its layers."""
    if used["arch"] != "deepseek4":
        return {}
    groups, heads = int(random.choice([1, 2, 3, 4])), int(random.choice([1, 2, 3]))
    size = int(random.choice([8, 12, 20, 36, 64, 100, 128]))
    out: Settings = {"n_kv": 1, "n_head": groups * heads, "head_dim": size, "gating": 4}
    out["rope_dim"] = 4 * int(random.integers(1, min(size, 64) // 4 + 1))
    out["out"] = (groups, int(random.choice([4, 12, 36])))
    out["ratios"] = [int(random.choice([0, 4, 4, 128])) for _ in range(made["n_layer"])]
    out["hash_layers"] = int(random.integers(0, made["n_layer"] + 1))
    out["small_terms"] = bool(random.random() < SHAPED)
    out["compress_base"] = float(random.choice([100.0, 160000.0]))
    return out


INDEXED = (
    "deepseek32",
    "deepseek4",
    "dots3note",
    "glm-dsa",
    "glm5-next",
    "hy_v4",
)  # architectures whose index is computed


def drawn_index(made: Settings, used: Settings, random: Random) -> Settings:
    """An index that chooses fewer positions than most prompts have. Its heads are as wide as llama.cpp allows."""
    if used["arch"] not in INDEXED or "index" not in used:
        return {}
    top_k = int(random.choice([1, 2, 3, 5, 8, 13, 24, 40, 100, 256])) * int(made.get("pooled", 1))
    out: Settings = {"index": (int(random.choice([1, 2, 3, 4, 8, 16])), int(random.choice([64, 128])), top_k)}
    if used["arch"] in ("glm-dsa", "hy_v4") and random.random() < SHAPED:
        out["sharing"] = [1, *(int(random.random() < SHAPED) for _ in range(made["n_layer"] - 1))]
    return out


Fit = Callable[[Settings, Settings, Random], Settings]
FITS: tuple[Fit, ...] = (_heads, _rotation, _widths, _experts, _recurrent, _streams, _lists, _compressed, drawn_index)
