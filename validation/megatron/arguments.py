"""Arguments of Megatron-LM's ``pretrain_gpt.py``: of a launch script, or of a functional test's YAML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ringside.topologies import strict_yaml
from ringside.topologies.disk import regular
from ringside.validation.megatron.script import command_line

KEY = "MODEL_ARGS"
"""The key under which a YAML file has the arguments."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments by name, ``--tensor-model-parallel-size``, as text; a flag's is empty.

    ``name`` is what the training is called, ``program`` the script that takes the arguments.
    """

    name: str
    values: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    program: str = "pretrain_gpt.py"

    def has(self, name: str) -> bool:
        """Return whether a flag, or an argument, is given."""
        return name in self.values

    def text(self, name: str, default: str = "") -> str:
        """Return an argument's text."""
        return self.values.get(name, default)

    def count(self, name: str, default: int | None = None) -> int:
        """Return an argument's whole number; raise ValueError if it is missing and has no default."""
        text = self.values.get(name)
        if text is None:
            if default is None:
                raise ValueError(f"{name} is missing; write it into the file")
            return default
        if not text.isdecimal():
            raise ValueError(f"{name} is {text!r}; write a whole number")
        return int(text)

    def share(self, name: str, default: float) -> float:
        """Return an argument's number."""
        try:
            return float(self.values.get(name, default))
        except ValueError:
            raise ValueError(f"{name} is {self.values[name]!r}; write a number") from None


def read_arguments(path: Path) -> Arguments:
    """Return the arguments in a file; raise ValueError with the file's name for one without."""
    try:
        text = regular(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    try:
        if path.suffix in (".yaml", ".yml"):
            return of_yaml(strict_yaml.loads(text), _name(path))
        program, command = command_line(text)
        return Arguments(_name(path), of_words(command), program=Path(program).name)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def of_yaml(content: Any, name: str) -> Arguments:
    """Return the arguments of a test's configuration: flags that are true, and values as text."""
    values = content.get(KEY) if isinstance(content, dict) else None
    environment = content.get("ENV_VARS") or {} if values else {}
    if not isinstance(values, dict) or not isinstance(environment, dict):
        raise ValueError(f"no arguments; write {KEY}: with a line --NAME: VALUE for each, or a launch script")
    return arguments_of(values, environment, name)


def arguments_of(
    values: Mapping[str, Any], environment: Mapping[str, Any], name: str, program: str = "pretrain_gpt.py"
) -> Arguments:
    """Return arguments by their values: True is a flag, False an argument that is not given."""
    given = {str(key): value for key, value in values.items() if value is not False}
    texts = {key: "" if value is True or value is None else _text(value) for key, value in given.items()}
    return Arguments(name, texts, {str(key): str(value) for key, value in environment.items()}, program)


def of_words(command: Sequence[str]) -> dict[str, str]:
    """Return the arguments of a command line; several values of one are separated by spaces."""
    values: dict[str, str] = {}
    name = ""
    for word in command:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            values[name] = value
        elif not name:
            raise ValueError(f"{word!r} stands before the first argument; write --NAME VALUE")
        else:
            values[name] = f"{values[name]} {word}".strip()
    return values


def _text(value: Any) -> str:
    """Return a value as it stands on a command line; lists may be written in brackets."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    text = str(value)
    return text[1:-1] if text.startswith("[") and text.endswith("]") and "*" not in text else text


def _name(path: Path) -> str:
    return path.resolve().parent.name if path.stem == "model_config" else path.stem
