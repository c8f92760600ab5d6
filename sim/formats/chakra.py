"""One rank's Chakra execution trace: the nodes of a file, in protobuf or in JSON.

A protobuf file is a GlobalMetadata message and then Node messages, each behind its length as a varint. JSON
is ASTRA-sim's ``workload_graph``. A node begins when all nodes that it depends on have ended.
"""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError
from typing import Any

from ringside.sim.formats import FormatError
from ringside.sim.formats.order import in_order
from ringside.topologies.extras import install
from ringside.topologies.units import MAX_DURATION

METADATA, LOAD, STORE, COMPUTE, SEND, RECV, COLLECTIVE = range(1, 8)
"""Types of nodes."""

MAX_NODES = 2_000_000
"""Maximum nodes read per rank."""

VERSION = "0.0.4"
"""The schema that is written."""


@dataclass(slots=True)
class ChakraNode:
    """One node; ``depends`` are ids, ``place`` is its location in its file.

    Ids in ``control`` may be of nodes missing from the file, as where a recorder left some out; Chakra's own
    feeder orders nothing by them. The existing ones join ``depends``.
    """

    id: int
    name: str
    type: int
    depends: list[int]
    duration_us: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)
    place: str = ""
    control: Sequence[int] = ()

    def wrong(self, message: str) -> FormatError:
        """Return an error with the node's location."""
        return FormatError(f"{self.place}: {message}")

    def number(self, name: str, most: int, least: int = 0) -> int:
        """Return a required attribute, a whole number of ``least`` to ``most``."""
        value = self.attributes.get(name)
        if value is None:
            raise self.wrong(f"no {name}")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(f"{name} is {str(value)[:40]}; allowed: {least} to {most}")
        return value


def loads(data: bytes, name: str) -> tuple[list[ChakraNode], int]:
    """Return the nodes of a protobuf file, checked, so that each comes after its dependencies.

    Also return the number of omitted control dependencies on missing nodes.
    """
    return _checked(_messages(data, name), name)


def _messages(data: bytes, name: str) -> Iterator[ChakraNode]:
    schema, proto, decode_error = _protobuf()
    stream = io.BytesIO(data)
    kind: Any = schema.GlobalMetadata
    while True:
        place = f"{name}, byte {stream.tell()}"
        try:
            message = proto.parse_length_prefixed(kind, stream)
        except (decode_error, EOFError, ValueError) as error:
            raise FormatError(f"{place}: not a message of a Chakra trace: {error}") from None
        if message is None:
            if kind is schema.GlobalMetadata:
                raise FormatError(f"{name}: an empty file; a Chakra trace begins with its metadata")
            return
        if kind is schema.Node:
            depends, control = list(message.data_deps), list(message.ctrl_deps)
            attributes = {
                one.name: getattr(one, one.WhichOneof("value") or "doc_string") for one in message.attr
            }
            where = f"{place}, node {message.id}"
            yield ChakraNode(
                message.id, message.name, message.type, depends, message.duration_micros, attributes, where,
                control,
            )  # fmt: skip
        kind = schema.Node


def loads_json(text: str, name: str) -> tuple[list[ChakraNode], int]:
    """Return the nodes of a JSON file, and the number of omitted dependencies on missing nodes."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise FormatError(f"{name}: JSON nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{name}: not JSON: {error}") from None
    graph = content.get("workload_graph") if isinstance(content, dict) else None
    if not isinstance(graph, list):
        raise FormatError(f"{name}: no list workload_graph; ASTRA-sim's JSON traces have one")
    nodes = (
        _json_node(entry, f"{name}, node {number} of workload_graph") for number, entry in enumerate(graph)
    )
    return _checked(nodes, name)


_NAMES = {
    "Id": "id",
    "Name": "name",
    "NodeType": "type",
    "ctrlDeps": "ctrl_deps",
    "dataDeps": "data_deps",
    "runtime": "duration_micros",
}
"""Names in JSON files, and those of the schema."""


def _json_node(entry: Any, place: str) -> ChakraNode:
    if not isinstance(entry, dict):
        raise FormatError(f"{place}: not a JSON object")
    held: dict[str, Any] = {str(_NAMES.get(name, name)): value for name, value in entry.items()}

    def whole(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
            raise FormatError(f"{place}: {name} is {str(value)[:40]}, not a whole number of 0 or more")
        return value

    number, kind = whole("id", held.pop("id", None)), whole("type", held.pop("type", None))
    name, duration = str(held.pop("name", "")), whole("runtime", held.pop("duration_micros", 0))
    control: list[int] = []
    for key in ("ctrl_deps", "data_deps"):
        some = held.pop(key, [])
        if not isinstance(some, list):
            raise FormatError(f"{place}: {key} is not a list")
        control += [whole(key, one) for one in some]
    return ChakraNode(number, name, kind, [], duration, held, f"{place}, id {number}", control)


def _checked(nodes: Iterable[ChakraNode], name: str) -> tuple[list[ChakraNode], int]:
    """Return the nodes in an order in which they can begin, the file's own where possible.

    Also return the number of omitted control dependencies on missing nodes.
    """
    by_id: dict[int, ChakraNode] = {}
    for node in nodes:
        if node.id in by_id:
            raise node.wrong(f"a second node {node.id}; the first is at {by_id[node.id].place}")
        if node.duration_us > MAX_DURATION * 1e6:
            raise node.wrong(f"a duration of {node.duration_us} us; allowed: up to {MAX_DURATION:g} s")
        if not METADATA <= node.type <= COLLECTIVE:
            raise node.wrong(f"node type {node.type}; allowed: {METADATA} to {COLLECTIVE}")
        by_id[node.id] = node
        if len(by_id) > MAX_NODES:
            raise FormatError(f"{name}: more than {MAX_NODES:,} nodes")
    in_file = list(by_id.values())
    left = sum(one not in by_id for node in in_file for one in node.control)
    for node in in_file:
        known = (one for one in node.control if one in by_id)
        node.depends, node.control = list(dict.fromkeys((*known, *node.depends))), ()
    place_of = {one: place for place, one in enumerate(by_id)}
    for node in in_file:
        for one in node.depends:
            if one not in by_id:
                raise node.wrong(f"it depends on node {one}, which the file does not have")
    try:
        order = in_order([[place_of[one] for one in node.depends] for node in in_file])
    except CycleError as error:
        raise in_file[error.args[1]].wrong("it waits for itself through its dependencies") from None
    return [in_file[place] for place in order], left


def _protobuf() -> tuple[Any, Any, type[Exception]]:
    """Return the schema's messages, protobuf's delimited writer, and its error."""
    try:
        from google.protobuf import proto
        from google.protobuf.message import DecodeError

        from ringside.sim.formats import chakra_schema
    except ModuleNotFoundError:
        raise FormatError(f"Chakra's traces need protobuf; {install('formats')}") from None
    return chakra_schema, proto, DecodeError


def dumps(nodes: Iterable[ChakraNode]) -> bytes:
    """Return the protobuf file of one rank's nodes; dependencies are written as data dependencies."""
    schema, proto, _ = _protobuf()
    stream = io.BytesIO()
    proto.serialize_length_prefixed(schema.GlobalMetadata(version=VERSION), stream)
    for node in nodes:
        message = schema.Node(
            id=node.id,
            name=node.name,
            type=node.type,
            data_deps=node.depends,
            duration_micros=node.duration_us,
        )
        for name, value in node.attributes.items():
            message.attr.add(name=name, **{_kind(name, value): value})
        proto.serialize_length_prefixed(message, stream)
    return stream.getvalue()


def _kind(name: str, value: object) -> str:
    """Return an attribute's type: ends and tags have 32 bits, other numbers 64, as in Chakra's converters."""
    if isinstance(value, bool):
        return "bool_val"
    if isinstance(value, str):
        return "string_val"
    return "int32_val" if name in ("comm_src", "comm_dst", "comm_tag") else "int64_val"
