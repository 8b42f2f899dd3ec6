"""The `[[fleet.peers]]` tables of a user's file as text. Pure.

One table is added or removed, one key is set; every other byte of the file stays as it was: comments, order,
line ends. The result is parsed again and compared with what was meant, so that an unusual file is refused,
never damaged.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

PEER_HEADER = re.compile(r"[ \t]*\[\[[ \t]*fleet[ \t]*\.[ \t]*peers[ \t]*\]\]")
_HEADER = re.compile(r"[ \t]*\[")
_NOTHING = re.compile(r"[ \t]*(#.*)?$")  # a blank line or a comment
# What begins or ends something that may run over several lines. The longer openings come first.
_TOKEN = re.compile(r'"""|\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]')


def add_peer(text: str, peer: Mapping[str, str | bool]) -> str:
    """`text` with one more peer behind the others. Raises ValueError when that cannot be done safely."""
    newline = "\r\n" if "\r\n" in text else "\n"
    block = newline.join(["[[fleet.peers]]", *(f"{key} = {_value(value)}" for key, value in peer.items())])
    lines = _lines(text)
    blocks = list(_peer_blocks(text))
    place = blocks[-1][1] if blocks else len(lines)
    before, after = "".join(lines[:place]), "".join(lines[place:])
    if before and not before.endswith("\n"):
        before += newline
    gap = newline if before and not before.endswith((newline * 2, "\n\n")) else ""
    edited = f"{before}{gap}{block}{newline}{after}"
    document = _parsed(text)
    document.setdefault("fleet", {}).setdefault("peers", []).append(dict(peer))
    return _checked(edited, document)


def remove_peer(text: str, number: int) -> str:
    """`text` without its peer `number`, from 0. Raises ValueError when that cannot be done safely."""
    lines = _lines(text)
    blocks = list(_peer_blocks(text))
    document = _parsed(text)
    if number >= len(blocks):
        raise ValueError("the peers are not written as [[fleet.peers]] tables")
    first, end = blocks[number]
    if first > 0 and not lines[first - 1].strip():
        first -= 1  # the blank line that set the table apart
    del document["fleet"]["peers"][number]
    return _checked("".join(lines[:first] + lines[end:]), document)


def set_in_peer(text: str, number: int, key: str, value: str) -> str:
    """`text` with one key of its peer `number`, from 0, set. Raises ValueError as the others."""
    lines = _lines(text)
    top = _top_lines(text)
    blocks = list(_peer_blocks(text))
    document = _parsed(text)
    if number >= len(blocks):
        raise ValueError("the peers are not written as [[fleet.peers]] tables")
    first, end = blocks[number]
    written = f"{key} = {_value(value)}"
    known = re.compile(rf"([ \t]*){key}[ \t]*=[ \t]*(\"[^\"\\\n]*\"|'[^'\n]*')")
    for place in range(first + 1, end):
        if place in top and known.match(lines[place]):
            lines[place] = known.sub(lambda match: match[1] + written, lines[place], count=1)
            break
    else:
        newline = "\r\n" if "\r\n" in text else "\n"
        if not lines[end - 1].endswith("\n"):
            lines[end - 1] += newline
        lines.insert(end, written + newline)
    document["fleet"]["peers"][number][key] = value
    return _checked("".join(lines), document)


def unset_in_peers(text: str, key: str) -> str:
    """`text` without that key of all peers. Raises ValueError as the others."""
    lines, top, document = _lines(text), _top_lines(text), _parsed(text)
    written = re.compile(rf"[ \t]*{key}[ \t]*=")
    inside = {place for first, end in _peer_blocks(text) for place in range(first + 1, end)}
    kept = [line for place, line in enumerate(lines) if not (place in inside & top and written.match(line))]
    for peer in document.get("fleet", {}).get("peers", []):
        peer.pop(key, None)
    return _checked("".join(kept), document)


def _peer_blocks(text: str) -> Iterator[tuple[int, int]]:
    """First line and the line behind the last setting of each peer's table."""
    lines = _lines(text)
    top = _top_lines(text)
    headers = [number for number in range(len(lines)) if number in top and _HEADER.match(lines[number])]
    for header, following in pairwise([*headers, len(lines)]):
        if PEER_HEADER.match(lines[header]):
            end = following
            while end > header + 1 and end - 1 in top and _NOTHING.match(lines[end - 1].rstrip("\r\n")):
                end -= 1
            yield header, end


def _lines(text: str) -> list[str]:
    """With their ends. TOML knows no other line end than this one; str.splitlines does."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _top_lines(text: str) -> set[int]:
    """Numbers of the lines that do not begin inside a text or a list of several lines."""
    top = {0}
    line = depth = place = 0
    while match := _TOKEN.search(text, place):
        token, place = match[0], match.end()
        if token in ('"""', "'''"):
            closing = _closing(text, place, token)
            line += text.count("\n", place, closing)
            place = closing
        elif token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        elif token == "\n":
            line += 1
            if depth == 0:
                top.add(line)
    return top


def _closing(text: str, place: int, quotes: str) -> int:
    """Where a text of several lines ends, its quotes included."""
    escaped = r"(?:[^\\]|\\.)*?" if quotes == '"""' else r".*?"
    match = re.compile(escaped + quotes + quotes[0] + "{0,2}", re.DOTALL).match(text, place)
    return match.end() if match else len(text)


def _value(value: str | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parsed(text: str) -> dict[str, Any]:
    """tomllib's own complaint is a ValueError."""
    return tomllib.loads(text.removeprefix("\ufeff"))


def _checked(edited: str, document: dict[str, Any]) -> str:
    if _without_nothing(_parsed(edited)) != _without_nothing(document):
        raise ValueError("the peers are written in a way that cannot be changed without harm")
    return edited


def _without_nothing(document: dict[str, Any]) -> dict[str, Any]:
    """No peers at all and no `fleet` at all mean the same."""
    fleet = {key: value for key, value in document.get("fleet", {}).items() if key != "peers" or value}
    rest = {key: value for key, value in document.items() if key != "fleet"}
    return {**rest, "fleet": fleet} if fleet else rest
