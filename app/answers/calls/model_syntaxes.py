"""The call syntaxes of all models. `app/answers/recognition.py` finds a model's syntax by its chat template."""

from dataclasses import replace

from app.answers.calls.element_arguments import MARK, ElementArguments
from app.answers.calls.gemma_arguments import GemmaArguments
from app.answers.calls.json_arguments import JSON
from app.answers.calls.python_arguments import PythonArguments
from app.answers.calls.syntax import CallIds, CallSyntax, Place, Reply
from app.answers.calls.tagged_arguments import TaggedArguments

# Hermes, Qwen 2.5 and 3, Granite 4; and models whose templates describe no tools
HERMES = CallSyntax(
    "hermes", JSON, "<tool_call>", head='\n{"name": "%s", "arguments": ', tail="}\n</tool_call>", between="\n"
)
# Llama 3
LLAMA = CallSyntax(
    "llama",
    JSON,
    '{"name": "',
    head='%s", "parameters": ',
    tail="}",
    joint='; {"name": "',
    place=Place.START,
    reply=Reply(("<|python_tag|>",)),
)
_NINE = CallIds(length=9)
MISTRAL = CallSyntax(
    "mistral",
    JSON,
    "[TOOL_CALLS]",
    head='{"name": "%s", "arguments": ',
    tail="}",
    opening="[",
    joint=", ",
    closing="]",
    ids=_NINE,
)
# [TOOL_CALLS]time[ARGS]{}
MISTRAL_ARGS = CallSyntax("mistral-args", JSON, "[TOOL_CALLS]", head="%s[ARGS]", joint="[TOOL_CALLS]", ids=_NINE)
# [TOOL_CALLS]time[CALL_ID]a1b2c3d4e[ARGS]{}
MISTRAL_IDS = CallSyntax(
    "mistral-ids", JSON, "[TOOL_CALLS]", head="%s[CALL_ID]%i[ARGS]", joint="[TOOL_CALLS]", ids=_NINE
)
FUNCTIONARY = CallSyntax("functionary", JSON, ">>>", head="%s\n", joint=">>>", reply=Reply((">>>all\n",)))
# Functionary 3.1: <function=time>{}</function>
FUNCTION_TAG = CallSyntax("function-tag", JSON, "<function=", head="%s>", tail="</function>", between="")
_CALLS, _CALL = "<\uff5ctool▁calls▁begin\uff5c>", "<\uff5ctool▁call▁begin\uff5c>"
_ARGUMENTS, _CALL_END, _CALLS_END = (
    "<\uff5ctool▁sep\uff5c>",
    "<\uff5ctool▁call▁end\uff5c>",
    "<\uff5ctool▁calls▁end\uff5c>",
)
DEEPSEEK = CallSyntax(
    "deepseek",
    JSON,
    _CALLS,
    head=f"{_CALL}function{_ARGUMENTS}%s\n```json\n",
    tail=f"\n```{_CALL_END}",
    joint="\n",
    closing=_CALLS_END,
)
DEEPSEEK_31 = CallSyntax(
    "deepseek-3.1", JSON, _CALLS, head=f"{_CALL}%s{_ARGUMENTS}", tail=_CALL_END, joint="", closing=_CALLS_END
)
GRANITE = CallSyntax(
    "granite",
    JSON,
    "<|tool_call|>",
    head='{"name": "%s", "arguments": ',
    tail="}",
    opening="[",
    joint=", ",
    closing="]",
)
COMMAND = CallSyntax(
    "command-r",
    JSON,
    "<|START_ACTION|>",
    head='{"tool_call_id": "%d", "tool_name": "%s", "parameters": ',
    tail="}",
    opening="[\n    ",
    joint=",\n    ",
    closing="\n]<|END_ACTION|>",
    reply=Reply(("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"), always=True),
)
LFM2 = CallSyntax(
    "lfm2",
    PythonArguments(),
    "<|tool_call_start|>",
    head="%s(",
    tail=")",
    opening="[",
    joint=", ",
    closing="]<|tool_call_end|>",
)
GEMMA = CallSyntax("gemma", GemmaArguments(), "<|tool_call>", head="call:%s", tail="<tool_call|>")
APRIEL = CallSyntax(
    "apriel",
    JSON,
    "<tool_calls>",
    head='{"name": "%s", "arguments": ',
    tail="}",
    opening="[",
    joint=", ",
    closing="]</tool_calls>",
    reply=Reply(("[END FINAL RESPONSE]",), always=True),
)
NEMOTRON_2 = CallSyntax(
    "nemotron-2",
    JSON,
    "<TOOLCALL>",
    head='{"name": "%s", "arguments": ',
    tail="}",
    opening="[",
    joint=", ",
    closing="]</TOOLCALL>",
)
APERTUS = CallSyntax(
    "apertus", JSON, "<|tools_prefix|>", head='{"%s": ', tail="}", opening="[", joint=", ", closing="]<|tools_suffix|>"
)
QWEN_XML = CallSyntax(
    "qwen-xml",
    TaggedArguments("<parameter=%s>\n", "\n</parameter>\n"),
    "<tool_call>",
    head="\n<function=%s>\n",
    tail="</function>\n</tool_call>",
    between="\n",
)
SEED = CallSyntax(
    "seed",
    TaggedArguments("<parameter=%s>", "</parameter>\n"),
    "<seed:tool_call>",
    head="\n<function=%s>\n",
    tail="</function>\n</seed:tool_call>",
    between="\n",
)
GLM = CallSyntax(
    "glm",
    TaggedArguments("<arg_key>%s</arg_key>\n<arg_value>", "</arg_value>\n"),
    "<tool_call>",
    head="%s\n",
    tail="</tool_call>",
    between="\n",
)
LING = replace(GLM, name="ling", place=Place.THOUGHT)
GLM_4_7 = CallSyntax(
    "glm-4.7",
    TaggedArguments("<arg_key>%s</arg_key><arg_value>", "</arg_value>"),
    "<tool_call>",
    head="%s",
    tail="</tool_call>",
    between="",
)
MINICPM = CallSyntax(
    "minicpm",
    TaggedArguments('<param name="%s">', "</param>", sections=True),
    '<function name="',
    head='%s">',
    tail="</function>",
    between="\n",
)
KIMI = CallSyntax(
    "kimi",
    JSON,
    "<|tool_calls_section_begin|>",
    head="<|tool_call_begin|>functions.%s:%d<|tool_call_argument_begin|>",
    tail="<|tool_call_end|>",
    joint="",
    closing="<|tool_calls_section_end|>",
    ids=CallIds(made="functions.%s:%d"),
    place=Place.THOUGHT,
)


def _dsml(name: str, block: str) -> CallSyntax:
    """Calls in DeepSeek's markup language."""
    dsml = "\uff5cDSML\uff5c"
    return CallSyntax(
        name,
        TaggedArguments(
            f'<{dsml}parameter name="%s" string="%t">',
            f"</{dsml}parameter>\n",
            kinds=(("string", "true"), ("", "false")),
        ),
        f"<{dsml}{block}>",
        opening="\n",
        head=f'<{dsml}invoke name="%s">\n',
        tail=f"</{dsml}invoke>\n",
        joint="",
        closing=f"</{dsml}{block}>",
        token=dsml,
        place=Place.THOUGHT,
        ids=CallIds(in_results=block != "tool_calls"),
    )


DEEPSEEK_32 = _dsml("deepseek-3.2", "function_calls")
DEEPSEEK_4 = _dsml("deepseek-4", "tool_calls")
MINIMAX_2 = CallSyntax(
    "minimax-m2",
    TaggedArguments('<parameter name="%s">', "</parameter>\n"),
    "<minimax:tool_call>",
    opening="\n",
    head='<invoke name="%s">\n',
    tail="</invoke>\n",
    joint="",
    closing="</minimax:tool_call>",
)
MINIMAX_3 = CallSyntax(
    "minimax-m3",
    ElementArguments(f"{MARK}<%s>", f"{MARK}</%s>", nests=True),
    f"{MARK}<tool_call>",
    opening="\n",
    head=f'{MARK}<invoke name="%s">',
    tail=f"{MARK}</invoke>\n",
    joint="",
    closing=f"{MARK}</tool_call>",
    token=MARK,
)


def _hunyuan(name: str, mark: str) -> CallSyntax:
    """Calls of Hunyuan 3, each of whose tags ends with a mark."""
    return CallSyntax(
        name,
        TaggedArguments(f"<arg_key{mark}>%s</arg_key{mark}>\n<arg_value{mark}>", f"</arg_value{mark}>\n"),
        f"<tool_calls{mark}>",
        opening="\n",
        head=f"<tool_call{mark}>%s<tool_sep{mark}>\n",
        tail=f"</tool_call{mark}>\n",
        joint="",
        closing=f"</tool_calls{mark}>",
    )


HUNYUAN_OPEN = _hunyuan("hunyuan-open", ":opensource")
HUNYUAN = _hunyuan("hunyuan", "")
GIGACHAT_3 = CallSyntax(
    "gigachat-3",
    JSON,
    "<|message_sep|>\n\nfunction call<|role_sep|>\n",
    head='{"name": "%s", "arguments": ',
    tail="}",
    single=True,
    reply=Reply(("<|message_sep|>\n\n",)),
)
SOLAR = CallSyntax(
    "solar",
    JSON,
    "<|tool_calls|>",
    head="<|tool_call:begin|>%i<|tool_call:name|>%s<|tool_call:args|>",
    tail="<|tool_call:end|>",
    joint="",
    ids=CallIds(rule="[a-z0-9]{10}"),
    reply=Reply(
        ("<|content|>", "<|end|>", "<|begin|>assistant"),
        always=True,
        around=("<|content|>", "<|end|>"),
        resumed="<|begin|>assistant",
    ),
)
_KIMI_REPLY = "<|open|>response<|sep|>", "<|close|>response<|sep|>"
KIMI_3 = CallSyntax(
    "kimi-k3",
    TaggedArguments(
        '<|open|>argument key="%s" type="%t"<|sep|>',
        "<|close|>argument<|sep|>",
        kinds=(("integer", "number"),),
        around_json=('<|open|>json type="object"<|sep|>', "<|close|>json<|sep|>"),
    ),
    "<|open|>tools<|sep|>",
    head='<|open|>call tool="%s" index="%d"<|sep|>',
    tail="<|close|>call<|sep|>",
    joint="",
    closing="<|close|>tools<|sep|>",
    reply=Reply(
        (*_KIMI_REPLY, "<|close|>message<|sep|>", "<|end_of_msg|>"), always=True, around=_KIMI_REPLY, first=True
    ),
)
HORIZON = CallSyntax(
    "k2-horizon",
    TaggedArguments("<ifm|arg_key>%s</ifm|arg_key>\n<ifm|arg_value>", "</ifm|arg_value>\n"),
    "<ifm|tool_calls>",
    opening="\n",
    head="<ifm|tool_call>%s\n",
    tail="</ifm|tool_call>\n",
    joint="",
    closing="</ifm|tool_calls>",
)
MUSE = CallSyntax(
    "muse",
    TaggedArguments('<atem:parameter name="%s">', "</atem:parameter>\n"),
    "<atem:function_calls>",
    opening="\n",
    head='<atem:invoke name="%s">\n',
    tail="</atem:invoke>\n",
    joint="",
    closing="</atem:function_calls>",
)
GIGACHAT = CallSyntax("gigachat", JSON, "<|function_call|>", head='{"name": "%s", "arguments": ', tail="}", single=True)
HARMONY = CallSyntax("harmony", JSON, " to=functions.", head="%s<|channel|>commentary json<|message|>")
