"""What the network announces is a hint: texts become plain, and nothing fails without the package."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from fleetchat import mdns
from fleetchat.cli.main import main
from fleetchat.errors import InputError
from fleetchat.ids import Address


def service(properties: dict[bytes, bytes | None], *hosts: str) -> SimpleNamespace:
    return SimpleNamespace(port=7077, properties=properties, parsed_addresses=lambda: list(hosts))


def test_a_peer_is_read_with_ipv4_first_and_without_what_only_one_cable_knows() -> None:
    told = service({b"name": b"desk", b"version": b"0.1.0"}, "fe80::1", "fd00::2", "10.0.0.2")
    assert mdns._found(told) == mdns.Found(  # type: ignore[arg-type]
        "desk", (Address("10.0.0.2", 7077), Address("fd00::2", 7077)), "0.1.0"
    )


def test_what_is_announced_cannot_write_on_the_terminal() -> None:
    told = service({b"name": b"\x1b[2J\xffd e;s$(k)" + b"x" * 99, b"version": None})
    found = mdns._found(told)  # type: ignore[arg-type]
    assert found.name == ("2Jdesk" + "x" * 99)[:64]
    assert (found.version, found.addresses) == ("", ())


def test_a_peer_on_two_ports_is_one_peer() -> None:
    one, two, other = (Address("10.0.0.2", 1), Address("10.0.0.2", 2), Address("10.0.0.3", 1))
    found = [
        mdns.Found("a", (one,), "1", "x"),
        mdns.Found("b", (other,), "1"),
        mdns.Found("a", (two, one), "1", "x"),
    ]
    assert [peer.addresses for peer in mdns.merged(found)] == [(one, two), (other,)]


def test_without_the_package_an_announcement_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    mdns.Announcement(["10.0.0.2"], 7077).close()


def test_without_the_package_nobody_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    monkeypatch.setattr(mdns, "is_available", lambda: False)
    with pytest.raises(InputError, match="needs the package zeroconf"):
        mdns.browse(1)
    monkeypatch.setenv("FLEETCHAT_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(str(tmp_path))
    assert main(["fleet", "discover", "--seconds", "0.1"]) == 2
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "error: looking for peers on the network needs the package zeroconf",
        "hint: python -m pip install 'fleetchat[discover]'; peers that you added are found without it",
    ]
    main(["fleet", "add", "127.0.0.1:1", "--name", "nobody"])
    capsys.readouterr()
    assert main(["fleet", "discover"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("127.0.0.1:1               nobody        does not answer: ")
    assert captured.err.startswith("the package zeroconf is missing, so only your own peers are looked at\n")
    assert main(["fleet", "discover", "--seconds", "0"]) == 2
