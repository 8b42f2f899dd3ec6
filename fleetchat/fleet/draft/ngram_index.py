"""Where the end of a token sequence stood before (pure).

For each size in SIZES every run of that many tokens has a name: the position at which it first ended.
A run of 2n tokens is the pair of the names of its halves (Karp, Miller and Rosenberg 1972), so a dict
lookup of one integer finds earlier ends of it, with no false hits. `previous` links each position to
the end before with the same run, the most recent first. Adding and removing a token is a dict
operation a size.
"""

from __future__ import annotations

SIZES = (2, 4, 8, 16)
LONGEST = 31  # matches count as no longer; none that long is ever wrong because of its length
CANDIDATES = 64  # earlier ends looked at, the most recent ones: 10 µs
_HALF_BITS = 32


class _Runs:
    """All runs of `size` tokens: `names[p]` and `previous[p]` belong to the one that ends at p."""

    __slots__ = ("half", "latest", "names", "previous", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.half = size // 2
        self.latest: dict[int, int] = {}
        self.names: list[int] = []
        self.previous: list[int] = []

    def append(self, halves: list[int]) -> None:
        """`halves` are the names of the runs of half the size, up to the new position."""
        position = len(self.names)
        if position + 1 < self.size:
            self.names.append(position)
            self.previous.append(-1)
            return
        pair = halves[position - self.half] << _HALF_BITS | halves[position]
        before = self.latest.get(pair, -1)
        self.names.append(position if before < 0 else self.names[before])
        self.previous.append(before)
        self.latest[pair] = position

    def pop(self, halves: list[int]) -> None:
        position = len(self.names) - 1
        before = self.previous.pop()
        self.names.pop()
        if position + 1 < self.size:
            return
        pair = halves[position - self.half] << _HALF_BITS | halves[position]
        if before < 0:
            del self.latest[pair]
        else:
            self.latest[pair] = before


class NgramIndex:
    """A token sequence in which the longest earlier match of its end is found fast."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._runs = [_Runs(size) for size in SIZES]

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, token: int) -> None:
        self.ids.append(token)
        halves = self.ids
        for runs in self._runs:
            runs.append(halves)
            halves = runs.names

    def truncate(self, length: int) -> None:
        """Forget the tokens from position `length` on."""
        levels = [self.ids, *(runs.names for runs in self._runs)]
        for _ in range(len(self.ids) - length):
            for runs, halves in reversed(list(zip(self._runs, levels, strict=False))):
                runs.pop(halves)
            self.ids.pop()

    def longest_match(self) -> tuple[int, int]:
        """(length, position after it) of the longest earlier match of the end; (0, 0) when none has 2 tokens.

        Among equal lengths it is the most recent. A match may overlap the end. Of the places where the
        longest run of SIZES stood before, the CANDIDATES most recent ones are looked at.
        """
        if not self.ids:
            return 0, 0
        for runs in reversed(self._runs):
            if runs.previous[-1] >= 0:
                return self._longest_of(runs)
        return 0, 0

    def _longest_of(self, runs: _Runs) -> tuple[int, int]:
        ids, end = self.ids, len(self.ids) - 1
        most = min(2 * runs.size - 1, LONGEST)
        length, found = 0, 0
        candidate = runs.previous[end]
        for _ in range(CANDIDATES):
            common, bound = runs.size, min(most, candidate + 1)
            while common < bound and ids[candidate - common] == ids[end - common]:
                common += 1
            if common > length:
                length, found = common, candidate + 1
                if length == most:
                    break
            candidate = runs.previous[candidate]
            if candidate < 0:
                break
        return length, found

    def continuation(self, start: int, count: int) -> tuple[int, ...]:
        """`count` tokens from position `start` on; at the end it goes on with those just given (LZ77)."""
        period = self.ids[start : start + count]
        repeats = -(-count // len(period)) if period else 0
        return tuple((period * repeats)[:count])
