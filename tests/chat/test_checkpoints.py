"""When the text of a reply is saved between the seconds."""

from __future__ import annotations

import pytest

from fleetchat.chat.checkpoints import grown_enough


@pytest.mark.parametrize("piece", [1, 3, 17, 400])
def test_a_fifth_is_lost_at_most_and_long_replies_cost_little(piece: int) -> None:
    saved, saves, written = 0, 0, 0
    for characters in range(piece, 20_000, piece):
        if grown_enough(characters, saved):
            saved, saves, written = characters, saves + 1, written + characters
        assert characters - saved <= characters / 5
    assert saves <= 50
    assert written <= 6 * 20_000


def test_the_first_piece_is_saved_and_nothing_twice() -> None:
    assert grown_enough(1, 0)
    assert not grown_enough(0, 0)
    assert not grown_enough(100, 100)
