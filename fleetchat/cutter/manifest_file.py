"""Values of frozen dataclasses <-> JSON text, with every type checked on the way in."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def to_json(value: Any) -> str:
    """The dataclass as readable JSON; not-a-number is refused with ValueError."""
    return json.dumps(dataclasses.asdict(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(kind: type[T], text: str) -> T:
    """The dataclass `kind` that `to_json` wrote.

    Raises ValueError, with the place, for anything else: another type, a missing or an unknown key.
    """
    try:
        parsed = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    result: T = _typed(kind, parsed, "")
    return result


def _typed(kind: Any, value: object, place: str) -> Any:
    if isinstance(kind, typing.NewType):
        kind = kind.__supertype__
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, place)
    if origin is tuple:
        return _tuple(arguments, value, place)
    if origin is dict:
        return {
            _typed(str, key, place): _typed(arguments[1], one, place) for key, one in _of(dict, value, place)
        }
    if origin in (types.UnionType, typing.Union):
        own = [one for one in arguments if one is not type(None)]
        return None if value is None else _typed(own[0], value, place)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{place or 'the file'} is not of type {kind.__name__}")
    return value


def _of(kind: type, value: object, place: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{place or 'the file'} is not of type {kind.__name__}")
    return value.items() if isinstance(value, dict) else value


def _dataclass(kind: Any, value: object, place: str) -> Any:
    table = dict(_of(dict, value, place))
    hints = typing.get_type_hints(kind)
    names = {one.name for one in dataclasses.fields(kind)}
    if names != set(table):
        wrong = sorted(names ^ set(table))[0]
        raise ValueError(f"{place}{wrong} is missing or unknown")
    return kind(**{name: _typed(hints[name], table[name], f"{place}{name}.") for name in names})


def _tuple(arguments: tuple[Any, ...], value: object, place: str) -> tuple[Any, ...]:
    entries = _of(list, value, place)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_typed(arguments[0], one, place) for one in entries)
    if len(entries) != len(arguments):
        raise ValueError(f"{place} has {len(entries)} entries, expected {len(arguments)}")
    return tuple(_typed(kind, one, place) for kind, one in zip(arguments, entries, strict=True))
