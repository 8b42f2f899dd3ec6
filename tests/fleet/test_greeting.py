"""Who answers, and what is said of who does not."""

from __future__ import annotations

import pytest

from fleetchat.fleet.greeting import greet, greet_all
from tests.fakes.peers import nobody_listens
from tests.peer.coordinator import KEY, fake_peer

pytestmark = pytest.mark.trio


async def test_a_peer_with_our_key_answers() -> None:
    async with fake_peer() as peer:
        greeting = await greet([peer.address], KEY)
    assert greeting.answers
    assert greeting.text.startswith("answers, fleetchat ")
    assert ", the key is right, " in greeting.text


async def test_another_key_and_no_key_are_told_apart() -> None:
    async with fake_peer() as peer:
        greetings = await greet_all([[peer.address]] * 2, bytes(32))
        none = await greet([peer.address], None)
    assert [one.text for one in greetings] == ["a peer answers, but it holds another key"] * 2
    assert (none.answers, none.text) == (False, "a peer answers, but there is no key here")


async def test_the_first_address_that_answers_counts() -> None:
    async with fake_peer() as peer:
        with nobody_listens() as nobody:
            assert (await greet([nobody, peer.address], KEY)).address == peer.address
            greeting = await greet([nobody], KEY)
    assert (greeting.answers, greeting.address) == (False, nobody)
    assert greeting.text == "does not answer: connection refused"
