"""What compiling a real shard takes of a peer's own memory."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import trio

from fleetchat.bench.memory import growth_at_compile
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store
from fleetchat.engine.fast_settings import DEFAULT
from fleetchat.fleet.placement import COMPILED

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_anonymous_memory_grows_by_at_most_1_2_times_the_shard(
    default_store: Store, default_build: Manifest
) -> None:
    setting = SimpleNamespace(precision="fast")
    subject = SimpleNamespace(store=default_store, manifest=default_build, fast=DEFAULT)
    grown = trio.run(growth_at_compile, setting, subject)
    shard = default_build.stages[0].bin.size
    assert 0 < grown <= COMPILED * shard, f"{grown / shard:.2f} times the shard"
