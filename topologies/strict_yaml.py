"""YAML that refuses duplicate keys; PyYAML would silently use the last of them.

It also refuses deep nesting, and values that do not match their form or their tag. It uses PyYAML, whose
compiled loader reads the calibrations: ruamel.yaml refuses duplicate keys, but none of the rest.
"""

from typing import Any

import yaml
from pydantic import ValidationError

from ringside.topologies.names import nearest
from ringside.topologies.units import shown

MAX_DEPTH = 64
"""Limit on nested lists and mappings; our files nest half a dozen."""


class _Loader(yaml.SafeLoader):
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self._depth == MAX_DEPTH:
            here = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(problem=f"nested more than {MAX_DEPTH} deep", problem_mark=here)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError):
            # exceptions of int, date and others that the library lets through
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                problem=f"{shown(node.value)} is no {kind}", problem_mark=node.start_mark
            ) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: list[Any] = []
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key!r} is given twice", problem_mark=key_node.start_mark
                )
            seen.append(key)
        return super().construct_mapping(node, deep)


def loads(text: str) -> Any:
    """Parse a text; raise `yaml.YAMLError` if it is not YAML or has a duplicate key."""
    return yaml.load(text, _Loader)


def complaints(error: ValidationError, name: str, allowed: list[str]) -> str:
    """Format pydantic's errors as our messages, one per line, each with its place."""
    lines = []
    for problem in error.errors(include_url=False):
        place = ".".join(str(part) for part in problem["loc"])
        match problem["type"]:
            case "extra_forbidden" | "unexpected_keyword_argument":
                likely = nearest(str(problem["loc"][-1]), allowed)
                text = f"is not known; allowed: {', '.join(allowed)}" + (
                    f"; did you mean {likely}?" if likely else ""
                )
            case "missing":
                text = "is missing"
            case "value_error":
                text = str(problem["ctx"]["error"])
            case _:
                text = f"{shown(problem['input'])}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
        lines.append(": ".join(part for part in (name, place, text) if part))
    return "\n".join(lines)
