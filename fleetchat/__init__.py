"""fleetchat: chat in the terminal with a language model that is split over several machines."""

__version__ = "0.1.0"
