from __future__ import annotations

import pytest

from fleetchat.engine.layer_probe import time_layer

pytestmark = pytest.mark.slow


def test_more_rows_take_longer() -> None:
    one, many = time_layer(256, 512, 64, device="CPU", threads=1)
    assert 0 < one < many
