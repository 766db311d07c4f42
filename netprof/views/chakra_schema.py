"""The messages of Chakra's execution traces, as far as they are written here.

Names and numbers are those of the public definition: `et_def.proto` of https://github.com/mlcommons/chakra (schema
0.0.4), which says of itself what each means. They are given to protobuf as they stand here.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any

from netprof.errors import NetprofError

VERSION = "0.0.4"
_PACKAGE = "ChakraProtoMsg"


class NodeType(IntEnum):
    """Values of `Node.type`."""

    COMPUTE = 4
    COLLECTIVE = 7


class CommType(IntEnum):
    """Values of the attribute `comm_type` of a collective."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    BARRIER = 9


_MESSAGES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "StringList": (("values", 1, "repeated string"),),
    "AttributeProto": (
        ("name", 1, "string"),
        ("int64_val", 9, "value int64"),
        ("bool_val", 27, "value bool"),
        ("string_val", 29, "value string"),
        ("string_list", 30, "value StringList"),
    ),
    "GlobalMetadata": (("version", 1, "string"), ("attr", 2, "repeated AttributeProto")),
    "Node": (
        ("id", 1, "uint64"),
        ("name", 2, "string"),
        ("type", 3, "NodeType"),
        ("data_deps", 5, "repeated uint64"),
        ("start_time_micros", 6, "uint64"),
        ("duration_micros", 7, "uint64"),
        ("attr", 10, "repeated AttributeProto"),
    ),
}
"""By message: name, number and type of its fields; those that begin with "value" are of its one `oneof`."""


@cache
def message(name: str) -> Any:
    """Return the class of a message. Raises NetprofError where protobuf is not installed."""
    try:
        from google.protobuf import message_factory
    except ImportError as error:
        raise NetprofError(
            "Chakra traces need the library protobuf", "install it with: pip install 'netprof-ebpf[chakra]'"
        ) from error
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    """Return the definitions, in a pool of their own: the program may have loaded Chakra's too."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=_PACKAGE, syntax="proto3")
    kinds = file.enum_type.add(name="NodeType")
    kinds.value.add(name="INVALID_NODE", number=0)
    for kind in NodeType:
        kinds.value.add(name={4: "COMP_NODE", 7: "COMM_COLL_NODE"}[kind], number=kind)
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        if any(form.startswith("value ") for _, _, form in fields):
            described.oneof_decl.add(name="value")
        for field, number, form in fields:
            _add_field(described, field, number, form)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(described: Any, name: str, number: int, form: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    how, _, kind = form.rpartition(" ")
    field = described.field.add(name=name, number=number)
    field.label = FieldDescriptorProto.LABEL_REPEATED if how == "repeated" else FieldDescriptorProto.LABEL_OPTIONAL
    if how == "value":
        field.oneof_index = 0
    if kind[0].islower():
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
        return
    is_enum = kind == "NodeType"
    field.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{kind}"
