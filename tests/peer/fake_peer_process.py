"""A peer process on a fake engine: what a real one is to the network, without OpenVINO.

Prints {"port": N}. With --embedded it has the key from stdin and ends with it; with --hang every batch
computes for ever.
"""

from __future__ import annotations

import sys
import threading

from fleetchat.engine.interface import StageEngine
from fleetchat.ids import Address
from fleetchat.peer import embedded
from fleetchat.peer.loading import EngineRequest
from fleetchat.peer.process import inference_runs, run_peer
from fleetchat.peer.serve import PeerOptions
from tests.fakes.engine import FakeEngine, Mischief
from tests.peer.builders import manifest
from tests.peer.coordinator import KEY, FakeStore


def hang(number: int) -> None:
    threading.Event().wait()


def create(request: EngineRequest) -> StageEngine:
    return FakeEngine(mischief=Mischief(before_run=hang) if "--hang" in sys.argv else None)


def main() -> int:
    key = KEY
    if "--embedded" in sys.argv:
        key = embedded.read_key_line(sys.stdin)
        embedded.end_with_parent(sys.stdin)
    code = run_peer(
        Address("127.0.0.1", 0),
        PeerOptions(key=key),
        store=FakeStore([manifest()]),
        engine_factory=create,
        on_listening=lambda bound: embedded.announce(sys.stdout, port=bound.port),
    )
    print(f"left {code}, inference runs: {inference_runs()}", flush=True)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
