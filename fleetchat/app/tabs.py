"""Which tabs there are, in which order, and which one is shown (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetchat.app.events import ChatNumber

REOPENABLE = 20  # closed tabs that are remembered


@dataclass(slots=True)
class TabList:
    """At least one tab, one of them active. Closed ones can be opened again, the last one first."""

    numbers: list[ChatNumber]
    active: ChatNumber
    closed: list[ChatNumber] = field(default_factory=list)

    @classmethod
    def with_one(cls, number: ChatNumber) -> TabList:
        return cls([number], number)

    @property
    def place(self) -> int:
        """Place of the active tab, from 0."""
        return self.numbers.index(self.active)

    def open(self, number: ChatNumber) -> None:
        """A new tab right of the active one; it becomes active."""
        self.numbers.insert(self.place + 1, number)
        self.active = number

    def close(self, number: ChatNumber) -> ChatNumber | None:
        """Take a tab away. Returns the one to show now, None when it was the last: open another first."""
        if self.numbers == [number]:
            return None
        place = self.numbers.index(number)
        self.numbers.remove(number)
        self.closed = [*self.closed, number][-REOPENABLE:]
        if self.active == number:
            self.active = self.numbers[min(place, len(self.numbers) - 1)]
        return self.active

    def forget(self, number: ChatNumber) -> None:
        """A closed tab cannot be opened again."""
        self.closed = [closed for closed in self.closed if closed != number]

    def reopen(self) -> ChatNumber | None:
        """The tab that was closed last, active again; None when there is none."""
        if not self.closed:
            return None
        number = self.closed.pop()
        self.open(number)
        return number

    def step(self, places: int) -> ChatNumber:
        """Next or previous, around the ends."""
        self.active = self.numbers[(self.place + places) % len(self.numbers)]
        return self.active

    def by_place(self, place: int) -> ChatNumber | None:
        """The tab at a place from 1; None when there is none."""
        if not 1 <= place <= len(self.numbers):
            return None
        self.active = self.numbers[place - 1]
        return self.active

    def move(self, places: int) -> None:
        """Move the active tab; at the ends it stays."""
        place = self.place
        target = min(max(place + places, 0), len(self.numbers) - 1)
        self.numbers.insert(target, self.numbers.pop(place))
