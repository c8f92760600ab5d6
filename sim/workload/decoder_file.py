"""A decoder of one's own: a YAML file with the fields of `Decoder`, or a Hugging Face ``config.json``.

A YAML file names at least these::

    layers: 28
    width: 3072
    heads: 24
    vocabulary: 128256
    sequence: 4096
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ringside.sim.workload import hugging_face
from ringside.sim.workload.decoder import MOST, MOST_ELSE, Decoder, reshaped
from ringside.sim.workload.decoder_parts import Experts, Latent
from ringside.topologies import strict_yaml
from ringside.topologies.disk import regular
from ringside.topologies.strict_yaml import complaints

ENDINGS = (".yaml", ".yml", ".json")
"""Ends of names of files that may contain a decoder."""

TIMED = {"parameters", "schema"}
"""Keys of a file of timed layers, and of a file of measured steps."""

PARTS: dict[str, type[Any]] = {"experts": Experts, "latent": Latent}
"""Parts of a decoder that are mappings of their own."""

DERIVED = ("name", "key_value_heads", "hidden", "longest")
"""Required fields of a decoder that follow from others where a file leaves them out."""


def is_decoder_file(text: str) -> bool:
    """Return whether ``FILE`` or ``FILE:SETTINGS`` contains a decoder, not timed layers, by its keys.

    Raise ValueError for keys of neither.
    """
    path = Path(text.partition(":")[0])
    content = _content(path)
    if content is None or content.keys() & TIMED or isinstance(content.get("layers"), list):
        return False
    if content.keys() & ({hugging_face.KEY, *file_of(Decoder).model_fields} - {"name"}):
        return True
    needed = [name for name, one in file_of(Decoder).model_fields.items() if one.is_required()]
    raise ValueError(
        f"{path}: contains neither a decoder nor timed layers; write {', '.join(needed)} for a decoder, or "
        "parameters and a list of layers with their times"
    )


def read_decoder(text: str) -> Decoder:
    """Return the decoder of ``FILE``, or of ``FILE:2048,layers=16`` with another sequence or shape."""
    path = Path(text.partition(":")[0])
    content = _content(path) or {}
    if hugging_face.KEY not in content:
        return reshaped(decoder_of({"name": path.stem, **content}, path), text)
    try:
        shape = hugging_face.shape_of(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return reshaped(decoder_of({"name": path.resolve().parent.name, **shape}, path), text)


def decoder_of(shape: Mapping[str, Any], path: Path) -> Decoder:
    """Return the decoder with the fields of a file; raise ValueError with all errors at once.

    Derived fields that are not given are as many key-value heads as heads, Megatron-LM's width of
    the feed-forward network (`megatron/training/arguments.py`, ``ffn_hidden_size``), and sequences of
    any length without learned positions.
    """
    try:
        given = file_of(Decoder)(**shape).model_dump(exclude_none=True)
    except ValidationError as error:
        allowed = [name for of in (Decoder, *PARTS.values()) for name in file_of(of).model_fields]
        raise ValueError(complaints(error, str(path), list(dict.fromkeys(allowed)))) from None
    width = given["width"]
    derived = {
        "key_value_heads": given["heads"],
        "hidden": int(4 * width * 2 / 3 / 64) * 64 if given["gated"] else 4 * width,
        "longest": given["positions"] or MOST_ELSE,
    }
    try:
        parts = {name: of(**given[name]) for name, of in PARTS.items() if name in given}
        return Decoder(**derived | given | parts)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _content(path: Path) -> Mapping[str, Any] | None:
    """Return a file's mapping; None for any other file, which the reader of timed layers complains about."""
    if path.suffix not in ENDINGS or not path.is_file():
        return None
    try:
        text = regular(path).read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else strict_yaml.loads(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    is_mapping = isinstance(content, dict) and content and all(isinstance(key, str) for key in content)
    return content if is_mapping else None


@cache
def file_of(of: type[Any]) -> type[BaseModel]:
    """Return the file's form of a dataclass: its fields and no others, whole numbers within their limits."""
    hints, form = get_type_hints(of), dict[str, Any]()
    for one in fields(of):
        hint = hints[one.name]
        kind, *_ = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kind = file_of(kind) if kind in PARTS.values() else kind
        limits: dict[str, Any] = {}
        if kind is int:
            limits = {"ge": 0 if one.default == 0 else 1, "le": MOST.get(one.name, MOST_ELSE)}
        default = None if one.name in DERIVED else ... if one.default is MISSING else one.default
        form[one.name] = (kind if default is not None else kind | None, Field(default, **limits))
    return create_model(of.__name__, __config__=ConfigDict(extra="forbid", strict=True), **form)
