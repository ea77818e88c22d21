"""The message classes of xpu_timer's dump file, made by Google's own protobuf at run time."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "xpu_timer.server"
_SCALARS = {"uint32": 13, "int32": 5, "uint64": 4, "bool": 8, "string": 9}
# message -> field number -> (name, type); "*" marks a repeated field.
_MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "PstackFrame": {
        1: ("func_name", "string"),
        2: ("file_name", "string"),
        3: ("origin", "string"),
    },
    "PstackStacktrace": {
        1: ("pid", "uint32"),
        2: ("thread_name", "string"),
        3: ("frames", "*PstackFrame"),
    },
    "PySpyFrame": {1: ("func_name", "string"), 2: ("file_name", "string"), 3: ("module", "string")},
    "PySpyStacktrace": {
        1: ("pid", "uint32"),
        2: ("thread_id", "uint64"),
        3: ("thread_name", "string"),
        4: ("os_thread_id", "uint32"),
        5: ("active", "bool"),
        6: ("owns_gil", "bool"),
        7: ("frames", "*PySpyFrame"),
    },
    "DeviceStatus": {1: ("block_range", "string"), 3: ("stack_trace", "*string")},
    "Stacktrace": {
        1: ("stacktrace", "*PstackStacktrace"),
        2: ("py_stacktrace", "*PySpyStacktrace"),
        3: ("pid", "int32"),
        4: ("rank", "int32"),
        5: ("pstack_stdout", "string"),
        6: ("pstack_stderr", "string"),
        7: ("pyspy_stdout", "string"),
        8: ("pyspy_stderr", "string"),
        10: ("device_status", "*DeviceStatus"),
        11: ("process_state", "string"),
    },
}


def _file() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(
        name="relkit_test_xpu_timer.proto", package=_PACKAGE, syntax="proto3"
    )
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for number, (name, kind) in fields.items():
            repeated, kind = kind.startswith("*"), kind.lstrip("*")
            field = described.field.add(name=name, number=number, label=3 if repeated else 1)
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type = 11
                field.type_name = f".{_PACKAGE}.{kind}"
    return bytes(file.SerializeToString())


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_file())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


CLASSES = _classes()
Stacktrace: Any = CLASSES["Stacktrace"]
