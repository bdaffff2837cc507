"""Structural tags as clients write them: XGrammar's tree in its envelope, or vLLM's older list of structures.

Source: docs/features/structured_outputs.md of vLLM, and XGrammar's documentation of structural tags.
"""

from app.openai.fields import Body, Json, unsupported, wrong_type, wrong_value

_STRUCTURE = ("begin", "schema", "end")
_OF_TREE = ("type", "format", "structural_tag")
_OF_STRUCTURES = ("type", "structures", "triggers")


def tree_of(given: Body, param: str) -> tuple[Json, str]:
    """The tree of a structural tag, and the field that has it.

    `given` has the tree as `format`; or `structures`, each with a JSON schema between two texts, and `triggers`, the
    texts at which the model has begun a structure.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if "structures" in given:
        _check_members(given, _OF_STRUCTURES, param)
        return _of_structures(given, param), param
    if "format" not in given and "structural_tag" not in given:
        raise wrong_value(
            f"{param} has no tag; give its tree as {param}.format, or a list of structures with triggers.",
            f"{param}.format",
        )
    _check_members(given, _OF_TREE, param)
    tree = given.get("format", given.get("structural_tag"))
    if not isinstance(tree, dict):
        raise wrong_type(f"{param}.format", "an object", tree)
    return tree, f"{param}.format"


def _check_members(given: Body, known: tuple[str, ...], param: str) -> None:
    if unknown := next((name for name in given if name not in known), None):
        where = f"{param}.{unknown}"
        raise unsupported(f"{where} is not supported beside {', '.join(known)}; leave it out.", where)


def _of_structures(given: Body, param: str) -> Json:
    structures = given["structures"]
    if not isinstance(structures, list) or not structures:
        raise wrong_type(f"{param}.structures", "a non-empty list", structures)
    tags = []
    for i, one in enumerate(structures):
        if not isinstance(one, dict) or not all(name in one for name in _STRUCTURE):
            raise wrong_type(f"{param}.structures[{i}]", f"an object with {', '.join(_STRUCTURE)}", one)
        _check_members(one, _STRUCTURE, f"{param}.structures[{i}]")
        content = {"type": "json_schema", "json_schema": one["schema"]}
        tags.append({"type": "tag", "begin": one["begin"], "content": content, "end": one["end"]})
    return {"type": "triggered_tags", "triggers": given.get("triggers"), "tags": tags}
