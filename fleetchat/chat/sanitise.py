"""What may reach a terminal: the one function that every foreign text passes before it is shown.

Text of a model, a user, a peer or an imported chat can carry escape sequences (clipboard, window
title, clear screen) and line separators that widgets count differently. So:

- CRLF, CR, VT, FF, FS, U+0085, U+2028 and U+2029 become a newline;
- C0 except newline and tab, DEL and C1 are dropped;
- the directional overrides U+202D and U+202E are dropped: with them code on the screen can read
  differently from what is copied and run. The other bidirectional characters (marks, embeddings,
  isolates) stay, and so do the joiners: Arabic, Hebrew, Persian, Devanagari and emoji need them, and
  their effect ends with the line.
"""

from __future__ import annotations

_NEWLINES = "\r\v\f\x1c\x85\u2028\u2029"
_KEPT = "\n\t"
_CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
_OVERRIDES = "\u202d\u202e"

_TABLE: dict[int, str | None] = {
    **{ord(character): None for character in (*_CONTROLS, *_OVERRIDES) if character not in _KEPT},
    **{ord(character): "\n" for character in _NEWLINES},
}


def sanitise(text: str) -> str:
    """`text` without control characters, its line ends as newlines."""
    return text.replace("\r\n", "\n").translate(_TABLE)


class Sanitiser:
    """`sanitise` for text that comes in pieces.

    The joined results of `push` equal `sanitise` of the joined pieces: a CRLF may be cut in two.
    """

    def __init__(self) -> None:
        self._after_return = False

    def push(self, piece: str) -> str:
        """The next piece, safe to show at once."""
        if not piece:
            return ""
        continued = self._after_return and piece.startswith("\n")
        self._after_return = piece.endswith("\r")
        return sanitise(piece[1:] if continued else piece)
