"""The subschemas of a JSON schema as numbered nodes, and references to sets of their values."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass

from app.constrain.document import Document, Subschema
from app.constrain.value_sets import FALSE, TRUE, Ref
from app.openai.fields import Json


@dataclass(frozen=True)
class Never:
    """The node that no value satisfies: number 0, the schema false."""


@dataclass(frozen=True)
class Constant:
    """A node that one value satisfies."""

    value: Json


@dataclass(frozen=True)
class Conjunction:
    """A node that the values of a reference satisfy."""

    ref: Ref


Node = Subschema | Constant | Conjunction | Never


class SchemaGraph:
    """The numbered nodes of one schema document. Equal nodes share a number."""

    def __init__(self, schema: Json, strict: bool) -> None:
        """`strict`: `format` restricts strings; otherwise it is an annotation."""
        self.document = Document(schema)
        self.strict = strict
        self._nodes: list[Node] = [Never()]
        self._numbers: dict[Hashable, int] = {}
        self.root = self.ref(self.document.root)

    def ref(self, subschema: Subschema) -> Ref:
        """Reference the values of a subschema."""
        if isinstance(subschema.schema, bool):
            return TRUE if subschema.schema else FALSE
        return self._ref((id(subschema.schema), subschema.base), subschema)

    def const(self, value: Json) -> Ref:
        """Reference one value."""
        return self._ref(("const", json.dumps(value, sort_keys=True)), Constant(value))

    def negated(self, ref: Ref) -> Ref:
        """Reference all other values."""
        if ref == TRUE:
            return FALSE
        if len(ref) == 1:
            ((node, sign),) = ref
            return TRUE if node == 0 else frozenset([(node, not sign)])
        ((node, _),) = self._ref(("all", ref), Conjunction(ref))
        return frozenset([(node, False)])

    def subschemas(self, ref: Ref) -> list[Subschema]:
        """Return the subschemas that a reference requires."""
        nodes = [self._nodes[node] for node, sign in ref if sign]
        return [node for node in nodes if isinstance(node, Subschema)]

    def _ref(self, key: Hashable, node: Node) -> Ref:
        if key not in self._numbers:
            self._numbers[key] = len(self._nodes)
            self._nodes.append(node)
        return frozenset([(self._numbers[key], True)])
