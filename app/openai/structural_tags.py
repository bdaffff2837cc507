"""Structural tags as clients write them: XGrammar's tree in its envelope, or vLLM's older list of structures.

Source: docs/features/structured_outputs.md of vLLM, and XGrammar's documentation of structural tags.
"""

from app.openai.fields import Body, Json, wrong_type

_STRUCTURE = ("begin", "schema", "end")


def tree_of(given: Body, param: str) -> tuple[Json, str]:
    """The tree of a structural tag, and the field that has it.

    `given` has the tree as `format`; or `structures`, each with a JSON schema between two texts, and `triggers`, the
    texts at which the model has begun a structure.
    """
    if "structures" in given:
        return _of_structures(given, param), param
    tree = given.get("format", given.get("structural_tag"))
    if not isinstance(tree, dict):
        raise wrong_type(f"{param}.format", "an object", tree)
    return tree, f"{param}.format"


def _of_structures(given: Body, param: str) -> Json:
    structures = given["structures"]
    if not isinstance(structures, list) or not structures:
        raise wrong_type(f"{param}.structures", "a non-empty list", structures)
    tags = []
    for i, one in enumerate(structures):
        if not isinstance(one, dict) or not all(name in one for name in _STRUCTURE):
            raise wrong_type(f"{param}.structures[{i}]", f"an object with {', '.join(_STRUCTURE)}", one)
        content = {"type": "json_schema", "json_schema": one["schema"]}
        tags.append({"type": "tag", "begin": one["begin"], "content": content, "end": one["end"]})
    return {"type": "triggered_tags", "triggers": given.get("triggers"), "tags": tags}
