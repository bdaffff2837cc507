"""The modules of architectures: mypy compares each with its protocol, and the tables name all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import (
    afmoe,
    apertus,
    arctic,
    bailing3,
    bert,
    bitnet,
    bloom,
    chameleon,
    cogvlm,
    cohere,
    cohere2moe,
    deci,
    deepseek2,
    deepseek4,
    deepseek_ocr,
    dots3,
    eurobert,
    exaone,
    falcon,
    falcon_h1,
    families,
    gemma,
    gemma3n,
    gemma4,
    glm4,
    glm5_next,
    glm_dsa,
    gpt2,
    gpt_oss,
    granite,
    granite_switch,
    grok,
    grovemoe,
    hrm_text,
    hy_v4,
    jamba,
    k2_horizon,
    kimi_k3,
    kimi_linear,
    laguna,
    lfm2,
    llama,
    llama4,
    llama_embed,
    mamba,
    maple,
    mimo2,
    minicpm3,
    minimax01,
    minimax_m3,
    modern_bert,
    muse_glimmer,
    nanbeige,
    nemotron_h,
    olmo,
    olmo2,
    openelm,
    phi3,
    plamo,
    plamo2,
    qwen,
    qwen4,
    qwen35,
    rwkv,
    smallthinker,
    smollm3,
    spark2_5,
    stablelm,
    step35,
    t5,
    talkie,
)

if TYPE_CHECKING:
    from py_engine.models.architecture import Architecture, Decoder

DECODERS: Sequence[Decoder[Any]] = (
    afmoe,
    apertus,
    arctic,
    bailing3,
    bitnet,
    bloom,
    chameleon,
    cogvlm,
    cohere,
    cohere2moe,
    deci,
    deepseek2,
    deepseek4,
    deepseek_ocr,
    dots3,
    exaone,
    falcon,
    falcon_h1,
    gemma,
    gemma3n,
    gemma4,
    glm4,
    glm5_next,
    glm_dsa,
    gpt2,
    gpt_oss,
    granite,
    granite_switch,
    grok,
    grovemoe,
    hrm_text,
    hy_v4,
    jamba,
    k2_horizon,
    kimi_k3,
    kimi_linear,
    laguna,
    lfm2,
    llama,
    llama4,
    mamba,
    maple,
    mimo2,
    minicpm3,
    minimax01,
    minimax_m3,
    muse_glimmer,
    nanbeige,
    nemotron_h,
    olmo,
    olmo2,
    openelm,
    phi3,
    plamo,
    plamo2,
    qwen,
    qwen35,
    qwen4,
    rwkv,
    smallthinker,
    smollm3,
    spark2_5,
    stablelm,
    step35,
    t5,
    talkie,
)
ENCODERS: Sequence[Architecture[Any]] = (bert, eurobert, gemma4, llama_embed, modern_bert, t5)


def header(architecture: str) -> Header:
    return Header(3, {"general.architecture": architecture}, {}, 32, 0, None)


@pytest.mark.parametrize(("table", "modules"), [(families.DECODERS, DECODERS), (families.ENCODERS, ENCODERS)])
def test_tables_name_the_modules_that_mypy_has_checked(table: dict[str, str], modules: Sequence[Any]) -> None:
    assert set(table.values()) == {module.__name__.rpartition(".")[2] for module in modules}


def test_each_architecture_has_its_module() -> None:
    for name, module in families.FAMILIES.items():
        found: Any = families.family(header(name))
        assert found.__name__ == f"py_engine.models.{module}"
    assert families.decoder(header("llama")) is llama
    with pytest.raises(WispError, match="is an encoder"):
        families.decoder(header("bert"))


def test_registered_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "_registered", {})
    families.register_architecture("mine", llama)
    assert families.family(header("mine")) is families.decoder(header("mine")) is llama
    families.register_architecture("encodes", bert)
    assert families.family(header("encodes")) is bert
    with pytest.raises(WispError, match="is an encoder"):
        families.decoder(header("encodes"))
    families.register_architecture("gpt2", llama)
    assert families.family(header("gpt2")) is llama, "a caller's module comes before the engine's"
    with pytest.raises(WispError, match=r"Supported: .*, mine, encodes"):
        families.family(header("unheard-of"))
