"""Answers with tool calls in every syntax, and the dialects that read and write them."""

import functools
import random
from typing import Any

from app.answers.dialect import Dialect
from app.answers.parsing import Parser
from app.answers.recognition import dialect_of
from app.openai.answers import Message
from app.openai.formats import Format
from app.openai.requests import chat_request
from app.openai.tools import Tools
from py_engine.text.chat_template import ChatTemplate

HI = [{"role": "user", "content": "Hi"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}},
              "required": ["city"], "additionalProperties": False}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
    {
        "type": "function",
        "function": {"name": "get.time", "parameters": {"type": "object", "additionalProperties": False}},
    },
]
PARIS, ROME = '{"city": "Paris {\\"x\\"}", "n": 2}', '{"city": "Rome"}'
LOOP = "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
T = "\uff5ctool▁"
D = "\uff5cDSML\uff5c"
M = "]<]minimax[>["


def tagged(call: str, argument: str, between: str) -> str:
    """Both calls, with arguments between tags. `call`: of ARGUMENTS, which are each `argument` of KEY and VALUE."""
    city, n, rome = (
        argument.replace("KEY", key).replace("VALUE", value)
        for key, value in (("city", 'Paris {"x"}'), ("n", "2"), ("city", "Rome"))
    )
    return call.replace("ARGUMENTS", city + n) + between + call.replace("ARGUMENTS", rome)


def dsml(block: str) -> str:
    """Both calls as DeepSeek V3.2 and V4 write them."""
    calls = tagged(f'<{D}invoke name="weather">\nARGUMENTS</{D}invoke>\n',
                   f'<{D}parameter name="KEY" string="true">VALUE</{D}parameter>\n', "")  # fmt: skip
    return f"<{D}{block}>\n{calls}</{D}{block}>".replace('name="n" string="true"', 'name="n" string="false"')


def hunyuan(mark: str) -> str:
    """Both calls as Hunyuan 3 writes them, with a mark in each tag."""
    calls = tagged(
        f"<tool_call{mark}>weather<tool_sep{mark}>\nARGUMENTS</tool_call{mark}>\n",
        f"<arg_key{mark}>KEY</arg_key{mark}>\n<arg_value{mark}>VALUE</arg_value{mark}>\n", "")  # fmt: skip
    return f"<tool_calls{mark}>\n{calls}</tool_calls{mark}>"


def kimi_3() -> str:
    """Both calls as Kimi K3 writes them."""
    calls = tagged(
        '<|open|>call tool="weather" index="1"<|sep|>ARGUMENTS<|close|>call<|sep|>',
        '<|open|>argument key="KEY" type="string"<|sep|>VALUE<|close|>argument<|sep|>', "")  # fmt: skip
    calls = calls.replace('"n" type="string"', '"n" type="number"').replace('index="1"', 'index="3"', 1)
    return f"<|open|>tools<|sep|>{calls}<|close|>tools<|sep|>"


# name -> (what its template's text has, an answer with two calls (one where only one is possible), text before a call?)
KINDS: dict[str, tuple[str, str, bool]] = {
    "hermes": ("<tool_call>", f'<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>\n'
               f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>', True),
    "llama": ('"parameters" ipython', f'{{"name": "weather", "parameters": {PARIS}}}; '
              f'{{"name": "weather", "parameters": {ROME}}}', False),
    "mistral": ("[TOOL_CALLS]", f'[TOOL_CALLS][{{"name": "weather", "arguments": {PARIS}}}, '
                f'{{"name": "weather", "arguments": {ROME}}}]', True),
    "mistral-args": ("[TOOL_CALLS][ARGS]", f"[TOOL_CALLS]weather[ARGS]{PARIS}[TOOL_CALLS]weather[ARGS]{ROME}", True),
    "mistral-ids": ("[TOOL_CALLS][CALL_ID][ARGS]", f"[TOOL_CALLS]weather[CALL_ID]aB3dE6gH9[ARGS]{PARIS}"
                    f"[TOOL_CALLS]weather[CALL_ID]000000001[ARGS]{ROME}", True),
    "functionary": (">>>all\\n", f">>>weather\n{PARIS}>>>weather\n{ROME}", True),
    "function-tag": ("<function=x></function> python_tag",
                     f"<function=weather>{PARIS}</function><function=weather>{ROME}</function>", True),
    "deepseek": (f"<{T}calls▁begin\uff5c>```json",
                 f"<{T}calls▁begin\uff5c><{T}call▁begin\uff5c>function<{T}sep\uff5c>weather\n```json\n{PARIS}\n```"
                 f"<{T}call▁end\uff5c>\n<{T}call▁begin\uff5c>function<{T}sep\uff5c>weather\n```json\n{ROME}\n```"
                 f"<{T}call▁end\uff5c><{T}calls▁end\uff5c>", True),
    "deepseek-3.1": (f"<{T}calls▁begin\uff5c>",
                     f"<{T}calls▁begin\uff5c><{T}call▁begin\uff5c>weather<{T}sep\uff5c>{PARIS}<{T}call▁end\uff5c>"
                     f"<{T}call▁begin\uff5c>weather<{T}sep\uff5c>{ROME}<{T}call▁end\uff5c><{T}calls▁end\uff5c>", True),
    "deepseek-3.2": (f"<{D}function_calls>", dsml("function_calls"), True),
    "deepseek-4": (f"<{D}tool_calls>", dsml("tool_calls"), True),
    "granite": ("<|tool_call|>", f'<|tool_call|>[{{"name": "weather", "arguments": {PARIS}}}, '
                f'{{"name": "weather", "arguments": {ROME}}}]', True),
    "command-r": ("<|START_ACTION|>", '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", '
                  f'"parameters": {PARIS}}},\n    {{"tool_call_id": "1", "tool_name": "weather", "parameters": {ROME}}}'
                  "\n]<|END_ACTION|>", True),
    "lfm2": ("<|tool_list_start|>", '<|tool_call_start|>[weather(city="Paris {\\"x\\"}", n=2), weather(city="Rome")]'
             "<|tool_call_end|>", True),
    "gemma": ("<|tool_call> call:", '<|tool_call>call:weather{city:<|"|>Paris {"x"}<|"|>,n:2}<tool_call|>'
              '<|tool_call>call:weather{city:<|"|>Rome<|"|>}<tool_call|>', True),
    "apriel": ("<tool_calls>[ <tool_call>", f'<tool_calls>[{{"name": "weather", "arguments": {PARIS}}}, '
               f'{{"name": "weather", "arguments": {ROME}}}]</tool_calls>', True),
    "nemotron-2": ("<TOOLCALL>[", f'<TOOLCALL>[{{"name": "weather", "arguments": {PARIS}}}, '
                   f'{{"name": "weather", "arguments": {ROME}}}]</TOOLCALL>', True),
    "apertus": ("<|tools_prefix|>", f'<|tools_prefix|>[{{"weather": {PARIS}}}, {{"weather": {ROME}}}]<|tools_suffix|>',
                True),
    "qwen-xml": ("<tool_call> <function= <parameter=", tagged(
        "<tool_call>\n<function=weather>\nARGUMENTS</function>\n</tool_call>",
        "<parameter=KEY>\nVALUE\n</parameter>\n", "\n"), True),
    "seed": ("<seed:tool_call> <function=", tagged(
        "<seed:tool_call>\n<function=weather>\nARGUMENTS</function>\n</seed:tool_call>",
        "<parameter=KEY>VALUE</parameter>\n", "\n"), True),
    "glm": ("<tool_call> <arg_key>", tagged(
        "<tool_call>weather\nARGUMENTS</tool_call>",
        "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n", "\n"), True),
    "ling": ("<tool_call> <arg_key> <role>ASSISTANT</role>", tagged(
        "<tool_call>weather\nARGUMENTS</tool_call>",
        "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n", "\n"), True),
    "glm-4.7": ("<tool_call> </arg_key><arg_value>", tagged(
        "<tool_call>weatherARGUMENTS</tool_call>", "<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>", ""), True),
    "minicpm": ('<function name=" <param name=" <![CDATA[', tagged(
        '<function name="weather">ARGUMENTS</function>', '<param name="KEY">VALUE</param>', "\n"), True),
    "kimi": ("<|tool_calls_section_begin|> functions.",
             f"<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{PARIS}"
             f"<|tool_call_end|><|tool_call_begin|>functions.weather:1<|tool_call_argument_begin|>{ROME}"
             "<|tool_call_end|><|tool_calls_section_end|>", True),
    "gigachat": ("<|function_call|>", f'<|function_call|>{{"name": "weather", "arguments": {PARIS}}}', True),
    "gigachat-3": ("<|message_sep|> <|role_sep|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n"
                   f'{{"name": "weather", "arguments": {PARIS}}}', True),
    "minimax-m2": ('<minimax:tool_call> <invoke name="', "<minimax:tool_call>\n" + tagged(
        '<invoke name="weather">\nARGUMENTS</invoke>\n', '<parameter name="KEY">VALUE</parameter>\n', "")
        + "</minimax:tool_call>", True),
    "minimax-m3": ('<tool_call> <invoke name=" ' + M, f"{M}<tool_call>\n" + tagged(
        f'{M}<invoke name="weather">ARGUMENTS{M}</invoke>\n', f"{M}<KEY>VALUE{M}</KEY>", "")
        + f"{M}</tool_call>", True),
    "hunyuan": ("<tool_sep{}>", hunyuan(""), True),
    "hunyuan-open": ("<tool_sep{}> :opensource", hunyuan(":opensource"), True),
    "solar": ("<|tool_calls|> <|tool_call:begin|>",
              f"<|tool_calls|><|tool_call:begin|>a0b3c4d5e6<|tool_call:name|>weather<|tool_call:args|>{PARIS}"
              f"<|tool_call:end|><|tool_call:begin|>0000000001<|tool_call:name|>weather<|tool_call:args|>{ROME}"
              "<|tool_call:end|>", True),
    "kimi-k3": ("<|open|> <|close|> <|end_of_msg|>", kimi_3(), True),
    "k2-horizon": ("<ifm|tool_calls>", "<ifm|tool_calls>\n" + tagged(
        "<ifm|tool_call>weather\nARGUMENTS</ifm|tool_call>\n",
        "<ifm|arg_key>KEY</ifm|arg_key>\n<ifm|arg_value>VALUE</ifm|arg_value>\n", "") + "</ifm|tool_calls>", True),
    "muse": ("<atem:function_calls> <|eom|>", tagged(
        ' to=weather<|message|><atem:function_calls>\n<atem:invoke name="weather">\nARGUMENTS</atem:invoke>\n'
        "</atem:function_calls>", '<atem:parameter name="KEY">VALUE</atem:parameter>\n', "<|eom|><|start|>assistant"),
        False),
    "harmony": ("<|channel|><|message|>",
                f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{PARIS}", False),
}  # fmt: skip

MESSAGES = ("harmony", "muse")  # kinds whose answers begin with a header

# Kinds whose values, or arguments, are known only when they have ended: what they give of the call that is cut off.
WHOLE = {"lfm2": '{"city": ', "gemma": ""}


def tools_of(**more: Any) -> Tools:
    return chat_request({"messages": HI, "tools": TOOLS, **more}).tools


@functools.cache
def template(kind: str) -> ChatTemplate:
    return ChatTemplate(LOOP + "{# " + KINDS[kind][0] + " #}")


def dialect(kind: str, **more: Any) -> Dialect:
    return dialect_of(template(kind), tools_of(**more))


def parsed(parser: Parser, text: str, seed: int, *, cut: bool = False) -> dict[str, Any]:
    """Parse a text that arrives in random pieces; return the message. `cut`: a limit ended it."""
    rng = random.Random(seed)
    message, at = Message(), 0
    while at < len(text):
        size = rng.choice([1, 1, 2, 3, 5, 9, 30])
        for delta in parser.push(text[at : at + size]):
            assert delta
            message.add(delta)
        at += size
    for delta in parser.finish(cut=cut):
        message.add(delta)
    return message.as_dict()


def calls_of(message: dict[str, Any]) -> list[tuple[str, str]]:
    calls = message.get("tool_calls", [])
    assert len({call["id"] for call in calls}) == len(calls)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def rules_of(dialect: Dialect, form: Format | None, prompt: str = "") -> str:
    """The grammar of an answer to a prompt."""
    complete = dialect.rules(form)
    assert complete is not None
    return complete(prompt)


TAGGED = ["qwen-xml", "seed", "glm", "glm-4.7"]  # kinds whose values stand between tags


def of_values(kind: str, parameters: dict[str, Any], *, name: str = "f", choice: str = "required") -> Dialect:
    """The dialect of a kind with one tool."""
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}}]
    return dialect_of(template(kind), chat_request({"messages": HI, "tools": tools, "tool_choice": choice}).tools)


def written(kind: str, values: dict[str, str]) -> str:
    """A call of f with these texts as values."""
    _, answer, _ = KINDS[kind]
    call = answer[: answer.index("Rome")].rpartition("weather")[2]  # from after the name to before the value
    before = answer[: answer.index("weather")] + "f" + call[: call.index("<", 2 if call[0] == ">" else 0)]
    argument = call[call.index("<", 2 if call[0] == ">" else 0) :]
    after = answer[answer.rindex("Rome") + 4 :]
    end = after[: after.index(">") + 1 + (kind != "glm-4.7")]
    return before + "".join(argument.replace("city", k) + v + end for k, v in values.items()) + after[len(end) :]
