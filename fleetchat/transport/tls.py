"""Encrypting a link: TLS 1.3 under the protocol, with the fleet's one certificate pinned on both sides."""

from __future__ import annotations

import ssl
from functools import lru_cache
from pathlib import Path

import trio

from fleetchat.certificates import pinned, tls_context
from fleetchat.errors import PeerLost, PeerRefused
from fleetchat.keys import certificate_of


async def encrypted(
    stream: trio.SocketStream, key: bytes, name: str, *, server: bool, deadline: float
) -> trio.abc.Stream:
    """The stream itself when the key has no certificate. Closes it when the handshake fails.

    Raises PeerRefused (another certificate, no TLS), PeerLost (too slow), ConfigError (the certificate here).
    """
    certificate = certificate_of(key)
    if certificate is None:
        return stream
    try:
        with trio.move_on_after(deadline) as scope:
            return await _wrapped(stream, certificate, name, server=server)
        assert scope.cancelled_caught
        raise PeerLost(f"{name} did not finish the TLS handshake within {deadline:g} s")
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


async def _wrapped(
    stream: trio.SocketStream, certificate: Path, name: str, *, server: bool
) -> trio.SSLStream[trio.SocketStream]:
    context, expected = _current(certificate, server)
    wrapped = trio.SSLStream(stream, context, server_side=server, https_compatible=True)
    try:
        await wrapped.do_handshake()
    except trio.BrokenResourceError as error:
        raise PeerRefused(
            f"{name} does not use TLS with this fleet's certificate{_why(error)}", hint=HINT
        ) from None
    if wrapped.getpeercert(binary_form=True) != expected:
        raise PeerRefused(f"{name} shows another certificate than this fleet's", hint=HINT)
    return wrapped


HINT = (
    "give both sides the same .pem file and use TLS on both: tls = true under [fleet] for the chat, "
    "--tls for a peer"
)


def _current(certificate: Path, server: bool) -> tuple[ssl.SSLContext, bytes]:
    modified = certificate.stat().st_mtime_ns if certificate.exists() else 0
    return _prepared(certificate, server, modified)


@lru_cache(maxsize=8)
def _prepared(certificate: Path, server: bool, modified: int) -> tuple[ssl.SSLContext, bytes]:
    """Made once for each version of the file."""
    return tls_context(certificate, server=server), pinned(certificate)


def _why(error: BaseException) -> str:
    """OpenSSL's own word, when there is one."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLError) and cause.reason:
        return f" ({cause.reason.lower().replace('_', ' ')})"
    return ""
