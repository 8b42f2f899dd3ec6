"""After what time a stage is called stalled or lost, and how long it is waited for (design, section 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Deadlines:
    """All in seconds. Tests scale them down."""

    ping: float = 0.5  # between two PINGs on a link
    stalled: float = 2.0  # of silence: shown
    lost: float = 5.0  # of silence: recovery starts
    missing: float = 60.0  # that an answer is owed while no stage has anything to do; a slow network may send
    pause: float = 0.5  # before the second attempt to bring the chain back; doubled for each further one
    longest_pause: float = 5.0
    recovery: float = 60.0  # from the loss until nothing more is tried
    attempts: int = 12  # that bring nothing: the chain does not open, or is lost before a token came
    settled: float = 30.0  # a chain that lived so long was no failed attempt, whether it was used or not

    def with_loading(self, seconds: float) -> Deadlines:
        """For stages that may take so much longer to load: one attempt that failed late is not all."""
        return replace(self, recovery=self.recovery + seconds)

    @property
    def silent_data_link(self) -> float:
        """Longer than `lost`: when a stage stands still, its control link is to say so first."""
        return self.lost + 2 * self.ping
