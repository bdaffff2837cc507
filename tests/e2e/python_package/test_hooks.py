"""Python of the caller's in an answer's way: logits processors, samplers, rules to stop, tokenizers and templates."""

from tests.support.bare_pyodide import Python


def test_a_logits_processor_forbids_a_letter(python: Python) -> None:
    text = python.example("without_e")
    assert len(text) > 20
    assert "e" not in text.lower()


def test_a_processor_for_the_gpu_has_an_equivalent_on_the_cpu(python: Python) -> None:
    """Without one, it is an error; so is a table that no vocabulary has."""
    text = python.example("WgslProcessor")
    assert len(text) > 20
    assert "e" not in text.lower()
    codes = python.run(
        """
from shared import engine
from wisp import WgslProcessor, WispError
result = []
async def refused(source, values=None, **more):
    try:
        await engine.chat("Hi", logits_processor=WgslProcessor(source, values, **more)).text()
    except WispError as error:
        result.append([error.code, error.param, error.message])
await refused("fn process(token: u32, logit: f32) -> f32 { return logit; }")
await refused("fn process(token: u32, logit: f32) -> f32 { return logit; }", table=[0.0] * 100000)
await refused("fn process(token: u32, logit: f32) -> f32 { return logit; }", table="abc")"""
    )
    assert {param for _, param, _ in codes} == {"logits_processor"}
    assert [code for code, _, _ in codes] == ["unsupported_parameter", "invalid_value", "invalid_value"]
    assert "Python" in codes[0][2]


def test_a_logits_processor_within_a_grammar(python: Python) -> None:
    """The processor prefers what the grammar forbids, and then one of the texts that it allows."""
    text, steps = python.run(
        """
from shared import engine
lengths = []
def prefer(ids, logits):
    lengths.append(len(ids))
    for text, more in (("Berlin", 50), ("Rome", 30)):
        logits[engine.tokenize(text)[0]] = 30 + more
text = await engine.chat("Which city?", regex="Paris|Rome", logits_processor=prefer, temperature=0).text()
result = [text, [b - a for a, b in zip(lengths, lengths[1:])]]"""
    )
    assert text == "Rome"
    assert set(steps) <= {1}


def test_a_logits_processor_that_changes_nothing_changes_nothing(python: Python) -> None:
    plain, processed = python.run(
        """
from shared import engine
ask = lambda **more: engine.chat("Tell me about the sea.", seed=5, temperature=0.8, max_tokens=24, **more).text()
result = [await ask(), await ask(logits_processor=lambda ids, logits: logits.astype("float64"))]"""
    )
    assert len(plain) > 10
    assert plain == processed


def test_a_custom_sampler(python: Python) -> None:
    assert len(python.example("top_n_sigma")) > 5


def test_a_stopping_rule_and_a_callback(python: Python) -> None:
    assert python.example("stop_when").split() == ["8", "stop"]


def test_the_tokenizer_and_the_template_can_be_replaced(python: Python) -> None:
    assert python.example("unicodedata") == "user: Hello\nassistant:\n"
