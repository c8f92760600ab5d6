"""Chakra's execution traces as protobuf messages: the parts of its schema by name and number.

From github.com/mlcommons/chakra, schema/protobuf/et_def.proto. Fields missing here are skipped in a file.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "ChakraProtoMsg"
_FIELD = descriptor_pb2.FieldDescriptorProto

_VALUES = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
"""Types of attributes: the n-th has number 3 + 2n, a list of it the next one."""

_NODE = (
    *(("id", 1, "uint64"), ("name", 2, "string"), ("type", 3, "int32")),
    *(("ctrl_deps", 4, "uint64*"), ("data_deps", 5, "uint64*")),
    *(("start_time_micros", 6, "uint64"), ("duration_micros", 7, "uint64"), ("attr", 10, "AttributeProto*")),
)
_METADATA = (("version", 1, "string"), ("attr", 2, "AttributeProto*"))


def _add(file: Any, name: str, fields: tuple[tuple[str, int, str], ...], oneof: int = 0) -> None:
    """Add a message; fields from number ``oneof`` on exclude each other."""
    message = file.message_type.add(name=name)
    if oneof:
        message.oneof_decl.add(name="value")
    for field, number, kind in fields:
        made = message.field.add(name=field, number=number, label=_FIELD.LABEL_OPTIONAL)
        if kind.endswith("*"):
            made.label = _FIELD.LABEL_REPEATED
        bare = kind.rstrip("*")
        if bare in _VALUES:
            made.type = getattr(_FIELD, f"TYPE_{bare.upper()}")
        else:
            made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{bare}"
        if oneof and number >= oneof:
            made.oneof_index = 0


def _classes() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="ringside/chakra.proto", package=_PACKAGE, syntax="proto3")
    held = tuple((f"{kind}_val", 3 + 2 * place, kind) for place, kind in enumerate(_VALUES))
    _add(file, "AttributeProto", (("name", 1, "string"), ("doc_string", 2, "string"), *held), oneof=3)
    _add(file, "GlobalMetadata", _METADATA)
    _add(file, "Node", _NODE)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = (pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in ("GlobalMetadata", "Node"))
    metadata, node = map(message_factory.GetMessageClass, types)
    return metadata, node


GlobalMetadata, Node = _classes()
