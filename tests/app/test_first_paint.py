"""The screen stands before anything slow is imported or started."""

from __future__ import annotations

import json

from tests.architecture.checkout import CHECKOUT, run_python

PAINT = """
import asyncio, json, sys
from pathlib import Path
from fleetchat.app.archive import Archive
from fleetchat.app.app import FleetchatApp
from fleetchat.app.bridge import RuntimeThread
from fleetchat.app.theme import LoadedThemes

class Watching(RuntimeThread):
    def start(self, report):
        lines = app.screen._compositor.render_strips()
        text = " ".join(segment.text for line in lines for segment in line)
        print(json.dumps({"painted": "Type a message" in text, "loaded": sorted(sys.modules)}))

nowhere = Path("/dev/null/none")
app = FleetchatApp(Watching(None), Archive(nowhere), LoadedThemes((), ()), "textual-dark", nowhere)

async def main():
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()

asyncio.run(main())
"""
SLOW = {"jinja2", "numpy", "openvino", "openvino_genai", "tokenizers", "transformers", "trio"}


def test_the_runtime_starts_after_the_first_paint_and_nothing_slow_is_loaded_before() -> None:
    done = run_python(CHECKOUT, "-c", PAINT)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["painted"]
    assert not SLOW & set(seen["loaded"])
