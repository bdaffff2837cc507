"""How each kind of model writes tool calls, and by which texts of its chat template it is recognised."""

from dataclasses import replace

from app.answers.call_syntax import CallSyntax
from app.answers.call_texts import CallIds, Reply
from app.answers.element_calls import MARK, ElementArguments
from app.answers.gemma_calls import GemmaArguments
from app.answers.python_calls import PythonArguments
from app.answers.tagged_calls import TaggedArguments

HERMES = CallSyntax(
    "hermes", "<tool_call>", head='\n{"name": "%s", "arguments": ', tail="}\n</tool_call>", between="\n"
)
LLAMA = CallSyntax("llama", '{"name": "', head='%s", "parameters": ', tail="}", joint='; {"name": "', at_start=True,
                   reply=Reply(("<|python_tag|>",)))  # fmt: skip
_NINE = CallIds(length=9)
MISTRAL = CallSyntax("mistral", "[TOOL_CALLS]", head='{"name": "%s", "arguments": ', tail="}", opening="[",
                     joint=", ", closing="]", ids=_NINE)  # fmt: skip
MISTRAL_ARGS = CallSyntax("mistral-args", "[TOOL_CALLS]", head="%s[ARGS]", joint="[TOOL_CALLS]", ids=_NINE)
MISTRAL_IDS = CallSyntax("mistral-ids", "[TOOL_CALLS]", head="%s[CALL_ID]%i[ARGS]", joint="[TOOL_CALLS]", ids=_NINE)
FUNCTIONARY = CallSyntax("functionary", ">>>", head="%s\n", joint=">>>", opens_text=True, reply=Reply((">>>all\n",)))
FUNCTION_TAG = CallSyntax("function-tag", "<function=", head="%s>", tail="</function>", between="")
# fmt: off
_D = {"begin": "<\uff5ctool▁calls▁begin\uff5c>", "call": "<\uff5ctool▁call▁begin\uff5c>",
      "sep": "<\uff5ctool▁sep\uff5c>", "end": "<\uff5ctool▁call▁end\uff5c>", "all": "<\uff5ctool▁calls▁end\uff5c>"}
# fmt: on
DEEPSEEK = CallSyntax(
    "deepseek",
    _D["begin"],
    head=f"{_D['call']}function{_D['sep']}%s\n```json\n",
    tail=f"\n```{_D['end']}",
    joint="\n",
    closing=_D["all"],
)  # fmt: skip
DEEPSEEK_31 = CallSyntax(
    "deepseek-3.1", _D["begin"], head=f"{_D['call']}%s{_D['sep']}", tail=_D["end"], joint="", closing=_D["all"]
)
GRANITE = CallSyntax("granite", "<|tool_call|>", head='{"name": "%s", "arguments": ', tail="}", opening="[",
                     joint=", ", closing="]")  # fmt: skip
COMMAND = CallSyntax(
    "command-r", "<|START_ACTION|>", head='{"tool_call_id": "%d", "tool_name": "%s", "parameters": ', tail="}",
    opening="[\n    ", joint=",\n    ", closing="\n]<|END_ACTION|>",
    reply=Reply(("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"), always=True),
)  # fmt: skip
LFM2 = CallSyntax("lfm2", "<|tool_call_start|>", head="%s(", tail=")", opening="[", joint=", ",
                  closing="]<|tool_call_end|>", arguments=PythonArguments())  # fmt: skip
GEMMA = CallSyntax("gemma", "<|tool_call>", head="call:%s", tail="<tool_call|>", arguments=GemmaArguments())
APRIEL = CallSyntax("apriel", "<tool_calls>", head='{"name": "%s", "arguments": ', tail="}", opening="[",
                    joint=", ", closing="]</tool_calls>",
                    reply=Reply(("[END FINAL RESPONSE]",), always=True))  # fmt: skip
NEMOTRON_2 = CallSyntax("nemotron-2", "<TOOLCALL>", head='{"name": "%s", "arguments": ', tail="}", opening="[",
                        joint=", ", closing="]</TOOLCALL>")  # fmt: skip
APERTUS = CallSyntax("apertus", "<|tools_prefix|>", head='{"%s": ', tail="}", opening="[", joint=", ",
                     closing="]<|tools_suffix|>")  # fmt: skip
QWEN_XML = CallSyntax(
    "qwen-xml", "<tool_call>", head="\n<function=%s>\n", tail="</function>\n</tool_call>", between="\n",
    arguments=TaggedArguments("<parameter=%s>\n", "\n</parameter>\n"),
)  # fmt: skip
SEED = CallSyntax(
    "seed", "<seed:tool_call>", head="\n<function=%s>\n", tail="</function>\n</seed:tool_call>", between="\n",
    arguments=TaggedArguments("<parameter=%s>", "</parameter>\n"),
)  # fmt: skip
GLM = CallSyntax(
    "glm", "<tool_call>", head="%s\n", tail="</tool_call>", between="\n",
    arguments=TaggedArguments("<arg_key>%s</arg_key>\n<arg_value>", "</arg_value>\n"),
)  # fmt: skip
LING = replace(GLM, name="ling", in_thoughts=True)
GLM_4_7 = CallSyntax(
    "glm-4.7", "<tool_call>", head="%s", tail="</tool_call>", between="",
    arguments=TaggedArguments("<arg_key>%s</arg_key><arg_value>", "</arg_value>"),
)  # fmt: skip
MINICPM = CallSyntax(
    "minicpm", '<function name="', head='%s">', tail="</function>", between="\n",
    arguments=TaggedArguments('<param name="%s">', "</param>", sections=True),
)  # fmt: skip
KIMI = CallSyntax(
    "kimi", "<|tool_calls_section_begin|>",
    head="<|tool_call_begin|>functions.%s:%d<|tool_call_argument_begin|>", tail="<|tool_call_end|>", joint="",
    closing="<|tool_calls_section_end|>", ids=CallIds("functions.%s:%d"), in_thoughts=True,
)  # fmt: skip


def _dsml(name: str, block: str) -> CallSyntax:
    """Calls in DeepSeek's markup language."""
    dsml = "\uff5cDSML\uff5c"
    return CallSyntax(
        name, f"<{dsml}{block}>", opening="\n", head=f'<{dsml}invoke name="%s">\n', tail=f"</{dsml}invoke>\n", joint="",
        closing=f"</{dsml}{block}>", token=dsml, in_thoughts=True, sorts_results=block == "tool_calls",
        arguments=TaggedArguments(f'<{dsml}parameter name="%s" string="%t">', f"</{dsml}parameter>\n",
                                  kinds=(("string", "true"), ("", "false"))),
    )  # fmt: skip


DEEPSEEK_32 = _dsml("deepseek-3.2", "function_calls")
DEEPSEEK_4 = _dsml("deepseek-4", "tool_calls")
MINIMAX_2 = CallSyntax(
    "minimax-m2", "<minimax:tool_call>", opening="\n", head='<invoke name="%s">\n', tail="</invoke>\n", joint="",
    closing="</minimax:tool_call>", arguments=TaggedArguments('<parameter name="%s">', "</parameter>\n"),
)  # fmt: skip
MINIMAX_3 = CallSyntax(
    "minimax-m3", f"{MARK}<tool_call>", opening="\n", head=f'{MARK}<invoke name="%s">', tail=f"{MARK}</invoke>\n",
    joint="", closing=f"{MARK}</tool_call>", token=MARK,
    arguments=ElementArguments(f"{MARK}<%s>", f"{MARK}</%s>", nests=True),
)  # fmt: skip


def _hunyuan(name: str, mark: str) -> CallSyntax:
    """Calls of Hunyuan 3, each of whose tags ends with a mark."""
    return CallSyntax(
        name, f"<tool_calls{mark}>", opening="\n", head=f"<tool_call{mark}>%s<tool_sep{mark}>\n",
        tail=f"</tool_call{mark}>\n", joint="", closing=f"</tool_calls{mark}>",
        arguments=TaggedArguments(f"<arg_key{mark}>%s</arg_key{mark}>\n<arg_value{mark}>", f"</arg_value{mark}>\n"),
    )  # fmt: skip


HUNYUAN_OPEN = _hunyuan("hunyuan-open", ":opensource")
HUNYUAN = _hunyuan("hunyuan", "")
GIGACHAT_3 = CallSyntax(
    "gigachat-3", "<|message_sep|>\n\nfunction call<|role_sep|>\n", head='{"name": "%s", "arguments": ', tail="}",
    alone=True, reply=Reply(("<|message_sep|>\n\n",)),
)  # fmt: skip
SOLAR = CallSyntax(
    "solar", "<|tool_calls|>", head="<|tool_call:begin|>%i<|tool_call:name|>%s<|tool_call:args|>",
    tail="<|tool_call:end|>", joint="", ids=CallIds(rule="[a-z0-9]{10}"),
    reply=Reply(("<|content|>", "<|end|>", "<|begin|>assistant"), always=True, around=("<|content|>", "<|end|>"),
                resumed="<|begin|>assistant"),
)  # fmt: skip
_KIMI_REPLY = "<|open|>response<|sep|>", "<|close|>response<|sep|>"
KIMI_3 = CallSyntax(
    "kimi-k3", "<|open|>tools<|sep|>", head='<|open|>call tool="%s" index="%d"<|sep|>', tail="<|close|>call<|sep|>",
    joint="", closing="<|close|>tools<|sep|>",
    reply=Reply((*_KIMI_REPLY, "<|close|>message<|sep|>", "<|end_of_msg|>"), always=True, around=_KIMI_REPLY,
                first=True),
    arguments=TaggedArguments(
        '<|open|>argument key="%s" type="%t"<|sep|>', "<|close|>argument<|sep|>", kinds=(("integer", "number"),),
        around_json=('<|open|>json type="object"<|sep|>', "<|close|>json<|sep|>")),
)  # fmt: skip
HORIZON = CallSyntax(
    "k2-horizon", "<ifm|tool_calls>", opening="\n", head="<ifm|tool_call>%s\n", tail="</ifm|tool_call>\n", joint="",
    closing="</ifm|tool_calls>",
    arguments=TaggedArguments("<ifm|arg_key>%s</ifm|arg_key>\n<ifm|arg_value>", "</ifm|arg_value>\n"),
)  # fmt: skip
MUSE = CallSyntax(
    "muse", "<atem:function_calls>", opening="\n", head='<atem:invoke name="%s">\n', tail="</atem:invoke>\n", joint="",
    closing="</atem:function_calls>", arguments=TaggedArguments('<atem:parameter name="%s">', "</atem:parameter>\n"),
)  # fmt: skip
GIGACHAT = CallSyntax("gigachat", "<|function_call|>", head='{"name": "%s", "arguments": ', tail="}", alone=True)
HARMONY = CallSyntax("harmony", " to=functions.", head="%s<|channel|>commentary json<|message|>")

# Texts that a template contains -> its syntax; the first match counts. None: a syntax that is not implemented, whose
# template also has the texts of one below.
SYNTAXES: tuple[tuple[tuple[str, ...], CallSyntax | None], ...] = (
    (("<|channel|>", "<|message|>"), HARMONY),
    (("<atem:function_calls>", "<|eom|>"), MUSE),
    (("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"), MISTRAL_IDS),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL_ARGS),
    (("[TOOL_CALLS]",), MISTRAL),
    ((">>>", "all\\n"), FUNCTIONARY),
    (("<function=", "</function>", "python_tag"), FUNCTION_TAG),
    (("\uff5cDSML\uff5c", "function_calls>"), DEEPSEEK_32),
    (("\uff5cDSML\uff5c", "tool_calls>"), DEEPSEEK_4),
    ((_D["begin"], "```json"), DEEPSEEK),
    ((_D["begin"],), DEEPSEEK_31),
    (("<|START_ACTION|>",), COMMAND),
    (("<|tool_call|>",), GRANITE),
    (("]<]minimax[>[", "<invoke name="), MINIMAX_3),
    (("]<]minimax[>[",), None),
    (("<|tool_call>", "call:"), GEMMA),
    (("<|tool_list_start|>",), LFM2),
    (("List of tools: [",), LFM2),
    (("<tool_calls>[",), APRIEL),
    (("<TOOLCALL>[",), NEMOTRON_2),
    (("<|tools_prefix|>",), APERTUS),
    (("<seed:tool_call>", "<function="), SEED),
    (("<minimax:tool_call>", "<invoke name="), MINIMAX_2),
    (("<tool_sep{}>", ":opensource"), HUNYUAN_OPEN),
    (("<tool_sep{}>",), HUNYUAN),
    (("<|open|>", "<|close|>", "<|end_of_msg|>"), KIMI_3),
    (("<ifm|tool_calls>",), HORIZON),
    (("<|tool_calls|>", "<|tool_call:begin|>"), SOLAR),
    (("<tool_call>", "<function=", "<parameter="), QWEN_XML),
    (("<role>ASSISTANT</role>", "<arg_key>"), LING),
    (("<tool_call>", "</arg_key><arg_value>"), GLM_4_7),
    (("<tool_call>", "<arg_key>"), GLM),
    (("<tool_call>",), HERMES),
    (("<|tool_calls_section_begin|>", "functions."), KIMI),
    (("<|function_call|>",), GIGACHAT),
    (("<|message_sep|>", "<|role_sep|>"), GIGACHAT_3),
    (('<function name="', '<param name="', "<![CDATA["), MINICPM),
    (('"parameters"', "ipython"), LLAMA),
    (("<|python_tag|>",), LLAMA),
)
