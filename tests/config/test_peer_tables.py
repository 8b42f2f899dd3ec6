"""One peer comes or goes; every other byte of the file stays."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.config.peer_tables import add_peer, remove_peer, set_in_peer

COMMENTED = """\
# my fleet
[model]
recipe = "smollm2-135m"   # small

[[fleet.peers]]  # the old laptop
address = "10.0.0.2:7077"
name = "left"

# the one under the desk
[[ fleet . peers ]]
address = '10.0.0.3:7077'
# it is slow

[ui]
theme = "fleet-dark"
"""
ADDED = """
[[fleet.peers]]
address = "10.0.0.4:7077"
spare = true
"""
PEER = {"address": "10.0.0.4:7077", "spare": True}


def test_a_peer_is_added_behind_the_others_and_nothing_else_changes() -> None:
    head, tail = COMMENTED.split("# it is slow\n")
    assert add_peer(COMMENTED, PEER) == f"{head}{ADDED}# it is slow\n{tail}"


def test_the_first_peer_is_added_at_the_end() -> None:
    assert add_peer("", {"address": "local"}) == '[[fleet.peers]]\naddress = "local"\n'
    assert add_peer("[chat]\nsystem = 'x'", PEER) == f"[chat]\nsystem = 'x'\n{ADDED}"


def test_a_peer_is_removed_with_its_own_comments_only() -> None:
    without = COMMENTED.replace(
        '[[fleet.peers]]  # the old laptop\naddress = "10.0.0.2:7077"\nname = "left"\n', "", 1
    ).replace("\n\n\n", "\n\n")
    assert remove_peer(COMMENTED, 0) == without
    assert tomllib.loads(remove_peer(COMMENTED, 1))["fleet"]["peers"] == [
        {"address": "10.0.0.2:7077", "name": "left"}
    ]


def test_line_ends_and_a_byte_order_mark_are_kept() -> None:
    text = '\ufeff# one\r\n[ui]\r\ntheme = "x"\r\n'
    edited = add_peer(text, {"address": "a:1"})
    assert edited == f'{text}\r\n[[fleet.peers]]\r\naddress = "a:1"\r\n'
    assert remove_peer(edited, 0) == text


def test_what_looks_like_a_table_inside_a_text_is_none() -> None:
    text = (
        '[chat]\nsystem = """\n[[fleet.peers]]\naddress = "no"\n"""\n'
        "[sampling]\nstop = [\n'''\n[[fleet.peers]]''',\n]\n"
    )
    edited = add_peer(text, PEER)
    assert edited == text + ADDED
    assert remove_peer(edited, 0) == text


@pytest.mark.parametrize(
    "text",
    [
        'fleet.peers = [{address = "a:1"}]\n',
        '[fleet]\npeers = [{address = "a:1"}]\n',
        '[["fleet".peers]]\naddress = "a:1"\n[fleet.other]\nx = 1\n',
    ],
)
def test_what_cannot_be_edited_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"peers|array|fleet"):
        remove_peer(text, 0)


def test_inline_peers_cannot_get_another_one() -> None:
    with pytest.raises(ValueError, match=r"."):
        add_peer('[fleet]\npeers = [{address = "a:1"}]\n', PEER)


_text = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12)
_pieces = st.sampled_from(
    [
        "\n",
        "# [[fleet.peers]]\n",
        "[model]\ncontext = 16\n",
        '[chat]\nsystem = """\n[[fleet.peers]]\n"""\n',
        "[ui]\nkeys = { a = '[[' }\n",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_pieces, unique=True), st.lists(_text, max_size=3), st.data())
def test_adding_and_removing_gives_the_same_bytes_again(
    pieces: list[str], names: list[str], data: st.DataObject
) -> None:
    text = "".join(pieces)
    for number, name in enumerate(names):
        text = add_peer(text, {"address": f"h{number}:1", "name": name})
    edited = add_peer(text, PEER)
    peers = tomllib.loads(edited)["fleet"]["peers"]
    assert peers == [*({"address": f"h{n}:1", "name": name} for n, name in enumerate(names)), PEER]
    assert remove_peer(edited, len(names)).rstrip("\n") == text.rstrip("\n")
    if names:
        gone = data.draw(st.integers(0, len(names) - 1))
        assert tomllib.loads(remove_peer(edited, gone))["fleet"]["peers"] == [
            peer for number, peer in enumerate(peers) if number != gone
        ]


def test_a_key_is_set_where_it_is_or_behind_the_others() -> None:
    once = set_in_peer(COMMENTED, 0, "layers", "0-17")
    assert once == COMMENTED.replace('name = "left"\n', 'name = "left"\nlayers = "0-17"\n')
    twice = set_in_peer(once.replace('layers = "0-17"', 'layers="0-17"  # mine'), 0, "layers", "0-3")
    assert twice == COMMENTED.replace('name = "left"\n', 'name = "left"\nlayers = "0-3"  # mine\n')
    assert set_in_peer('[[fleet.peers]]\naddress = "a:1"', 0, "layers", "0-1") == (
        '[[fleet.peers]]\naddress = "a:1"\nlayers = "0-1"\n'
    )
