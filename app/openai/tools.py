"""Check the tools of a request, and tool_choice: which tools the model may or must call."""

import re
from dataclasses import dataclass, field

from app.openai.fields import Body, Json, boolean, wrong_type, wrong_value

NAMES = frozenset(["tools", "tool_choice", "parallel_tool_calls"])
MAX_TOOLS = 128
NONE: dict[str, Json] = {"type": "object", "properties": {}}  # the parameters of a function that has none
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


@dataclass(frozen=True)
class Tool:
    """A function that the model may call."""

    name: str
    parameters: Json  # the JSON schema of its arguments
    definition: dict[str, Json] = field(hash=False)  # {type, function}, as chat templates expect it
    param: str = "tools"


@dataclass(frozen=True)
class Tools:
    """The tools that the model may call; none where tool_choice is "none"."""

    tools: tuple[Tool, ...] = ()
    required: bool = False
    parallel: bool = True
    shown: tuple[Tool, ...] = ()  # all tools of the request, for the chat template where calls can be prevented


def tools(body: Body) -> Tools:
    """Check tools, tool_choice and parallel_tool_calls."""
    given = body.get("tools")
    choice = body.get("tool_choice")
    parallel = boolean(body, "parallel_tool_calls", default=True)
    found = _tools(given) if given is not None else ()
    if choice is None:
        choice = "auto"
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required"):
            raise wrong_value(
                f"tool_choice is {choice!r}; it must be auto, none, required, or name a tool.", "tool_choice"
            )
        if choice == "required" and not found:
            raise wrong_value("tool_choice is 'required', but there are no tools; give some.", "tool_choice")
        if choice == "none":
            return Tools(shown=found)
        return Tools(found, choice == "required", parallel, found)
    if not isinstance(choice, dict):
        raise wrong_type("tool_choice", "a string or an object", choice)
    if choice.get("type") == "allowed_tools":
        return _allowed(choice, found, parallel)
    name = _chosen_name(choice, "tool_choice")
    named = tuple(t for t in found if t.name == name)
    if not named:
        raise wrong_value(f"tool_choice names {name!r}, which is not among the tools.", "tool_choice")
    return Tools(named, True, False, found)


def _chosen_name(choice: Json, path: str) -> str:
    if not isinstance(choice, dict):
        raise wrong_type(path, "an object", choice)
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")  # /v1/responses has the name here
    if not isinstance(name, str):
        raise wrong_type(f"{path}.function.name", "a string", name)
    return name


def _allowed(choice: Body, found: tuple[Tool, ...], parallel: bool) -> Tools:
    allowed = choice.get("allowed_tools")
    inner = allowed if isinstance(allowed, dict) else choice
    listed, mode = inner.get("tools"), inner.get("mode", "auto")
    if not isinstance(listed, list):
        raise wrong_type("tool_choice.allowed_tools.tools", "a list", listed)
    if mode not in ("auto", "required"):
        raise wrong_value("tool_choice.allowed_tools.mode must be auto or required.", "tool_choice.allowed_tools.mode")
    names = {_chosen_name(t, f"tool_choice.allowed_tools.tools[{i}]") for i, t in enumerate(listed)}
    named = tuple(t for t in found if t.name in names)
    if mode == "required" and not named:
        raise wrong_value("tool_choice allows none of the tools, and requires a call.", "tool_choice.allowed_tools")
    return Tools(named, mode == "required", parallel, found)


def _tools(given: Json) -> tuple[Tool, ...]:
    if not isinstance(given, list):
        raise wrong_type("tools", "a list of tools", given)
    if len(given) > MAX_TOOLS:
        raise wrong_value(f"There are {len(given)} tools; at most {MAX_TOOLS} are allowed.", "tools")
    found = tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(given))
    names = [t.name for t in found]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise wrong_value(f"Two tools have the name {twice!r}.", "tools")
    return found


def _tool(tool: Json, path: str) -> Tool:
    if not isinstance(tool, dict):
        raise wrong_type(path, "an object", tool)
    if tool.get("type") != "function":
        raise wrong_value(f"{path}.type must be 'function'.", f"{path}.type")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise wrong_type(f"{path}.function", "an object", function)
    name = function.get("name")
    if not isinstance(name, str):
        raise wrong_type(f"{path}.function.name", "a string", name)
    if not _NAME.fullmatch(name):
        raise wrong_value(
            f"{path}.function.name is {name!r}; a name has at most 64 letters, digits and characters of _ . : -.",
            f"{path}.function.name",
        )
    if not isinstance(function.get("description", ""), str | None):
        raise wrong_type(f"{path}.function.description", "a string", function["description"])
    parameters = function.get("parameters")
    schema = {**NONE, "additionalProperties": False} if parameters is None else parameters  # without any: no arguments
    parameters = NONE if parameters is None else parameters
    if not isinstance(parameters, dict):
        raise wrong_type(f"{path}.function.parameters", "a JSON schema, which is an object", parameters)
    boolean(function, "strict", param=f"{path}.function.strict")
    shown = {"type": "function", "function": {**function, "parameters": parameters}}
    return Tool(name, schema, shown, f"{path}.function.parameters")
