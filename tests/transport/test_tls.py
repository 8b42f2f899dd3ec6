"""Encrypted links: the fleet's one certificate on both sides, TLS 1.3, nothing else."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from fleetchat.certificates import check_certificate, new_certificate, pinned, tls_context
from fleetchat.errors import AuthenticationFailed, ConfigError, FleetError, PeerLost, PeerRefused
from fleetchat.ids import Address
from fleetchat.keys import FleetKey, create_private
from fleetchat.peer.serve import PeerOptions
from fleetchat.transport.dialling import dial
from fleetchat.transport.link import Link
from fleetchat.wire.frames import Attached, Goodbye
from fleetchat.wire.states import Purpose
from tests.peer import coordinator
from tests.peer.builders import opening
from tests.peer.coordinator import KEY, attach, control, fake_peer, open_chain


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "fleet.pem"
    create_private(path, new_certificate())
    return path


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "other.pem"
    create_private(path, new_certificate())
    return path


@asynccontextmanager
async def tls_peer(certificate: Path) -> AsyncIterator[Address]:
    async with fake_peer(options=PeerOptions(FleetKey(KEY, certificate))) as peer:
        yield peer.address


async def dialled(address: Address, key: bytes) -> Link:
    return await dial(address, key, purpose=Purpose.CONTROL)


@pytest.mark.trio
async def test_a_chain_over_encrypted_links_answers(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "KEY", FleetKey(KEY, certificate))
    seen = bytearray()
    async with tls_peer(certificate) as address, _wiretap(address, seen) as tapped:
        chain = await open_chain([tapped])
        link, answer = await attach(tapped, opening(), coordinator.AttachRole.UPSTREAM)
        assert not isinstance(answer, Attached)  # there is one already: the frames got through
        await link.aclose()
        await chain.close()
    assert len(seen) > 1000
    assert b"FLTC" not in seen
    assert KEY not in seen


@asynccontextmanager
async def _wiretap(target: Address, seen: bytearray) -> AsyncIterator[Address]:
    """Everything that crosses the network."""
    from tests.fakes.door import open_door

    def note(chunk: bytes) -> bytes:
        seen.extend(chunk)
        return chunk

    async with open_door(target) as door:
        door.inward = note
        yield door.address


@pytest.mark.trio
async def test_a_chat_without_tls_is_refused_and_told(certificate: Path) -> None:
    async with tls_peer(certificate) as address:
        with pytest.raises(FleetError) as caught:
            await dialled(address, KEY)
    assert "tls = true under [fleet]" in (caught.value.hint or "")


@pytest.mark.trio
async def test_a_peer_without_tls_is_not_talked_to(certificate: Path) -> None:
    async with fake_peer() as peer:
        with pytest.raises((PeerRefused, PeerLost)) as caught:
            await dialled(peer.address, FleetKey(KEY, certificate))
    assert "TLS" in caught.value.message


@pytest.mark.trio
async def test_another_certificate_is_refused_by_both(certificate: Path, other: Path) -> None:
    async with tls_peer(certificate) as address:
        with pytest.raises(PeerRefused, match="does not use TLS with this fleet's certificate"):
            await dialled(address, FleetKey(KEY, other))


@pytest.mark.trio
async def test_the_right_certificate_does_not_replace_the_key(certificate: Path) -> None:
    async with tls_peer(certificate) as address:
        with pytest.raises(AuthenticationFailed):
            await dialled(address, FleetKey(bytes(32), certificate))
        link = await dialled(address, FleetKey(KEY, certificate))
        await link.send(Goodbye("seen"))
        await link.aclose()


@pytest.mark.trio
async def test_an_older_tls_is_refused(certificate: Path) -> None:
    """A downgrade: the version is not negotiable."""
    context = tls_context(certificate, server=False)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with tls_peer(certificate) as address:
        stream = trio.SSLStream(await trio.open_tcp_stream(*address), context)
        with pytest.raises(trio.BrokenResourceError):
            await stream.do_handshake()
        await trio.aclose_forcefully(stream)


@pytest.mark.trio
async def test_a_client_without_a_certificate_gets_nothing(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with tls_peer(certificate) as address:
        stream = trio.SSLStream(await trio.open_tcp_stream(*address), context, https_compatible=True)
        received = b""
        with suppress(trio.BrokenResourceError):  # TLS 1.3 refuses after the client's side is done
            await stream.do_handshake()
            received = await stream.receive_some(1)
        assert received == b""
        await trio.aclose_forcefully(stream)


def test_the_file_is_private_and_whole(certificate: Path, tmp_path: Path) -> None:
    assert check_certificate(certificate) == certificate
    assert len(pinned(certificate)) > 200
    for name, content in (("key only", b"no"), ("half", certificate.read_bytes()[:100])):
        path = tmp_path / name
        create_private(path, content)
        with pytest.raises(ConfigError, match="does not hold a certificate and its private key"):
            check_certificate(path)
    with pytest.raises(ConfigError, match="there is no certificate"):
        check_certificate(tmp_path / "nowhere.pem")
    if os.name == "posix":
        open_to_all = tmp_path / "open.pem"
        open_to_all.write_bytes(certificate.read_bytes())
        open_to_all.chmod(0o644)
        with pytest.raises(ConfigError, match="is open to other users"):
            check_certificate(open_to_all)


@pytest.mark.trio
async def test_control_links_still_work_without_tls() -> None:
    async with fake_peer() as peer:
        link = await control(peer.address)
        await link.aclose()
