"""YAML in which a key that stands twice is an error: the second would win without a word."""

from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: list[Any] = []
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key!r} stands twice", problem_mark=key_node.start_mark
                )
            seen.append(key)
        return super().construct_mapping(node, deep)


def loads(text: str) -> Any:
    """What the text says; raise `yaml.YAMLError` where it is no YAML or says something twice."""
    return yaml.load(text, _Loader)
