"""The default model in `exact`: drafts looked up, or by a noisy copy of it, leave the ids as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.bench.workloads import prompts
from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store
from fleetchat.fleet.telemetry import Answer
from tests.fakes.chain import request
from tests.fakes.noisy_model import write_noisy_copy
from tests.fakes.real_chain import real_fleet

pytestmark = [pytest.mark.trio, pytest.mark.e2e, pytest.mark.slow]

TOKENS = 40
PROMPTS = (prompts("rewrite")[1], prompts("rewrite")[6], prompts("chat")[1])


@pytest.fixture(scope="module")
def noisy(default_whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_noisy_copy(default_whole, tmp_path_factory.mktemp("noisy"), noise=0.02)


async def answers(
    store: Store, build: Manifest, temperature: float, drafter: str, **options: object
) -> list[Answer]:
    tokenizer = ChatTokenizer.load(store.folder(build.build_key) / build.tokenizer.name)
    found = []
    async with real_fleet(store, build, drafter=drafter, **options) as fleet:
        for prompt in PROMPTS:
            text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
            asked = request(
                tokenizer.encode(text, specials=True),
                max_tokens=TOKENS,
                stop_ids=build.stop_ids,
                temperature=temperature,
                seed=3,
            )
            session = fleet.new_session()
            found.append(await fleet.generate(session, asked, tokenizer.decoder(), on_text=lambda text: None))
    return found


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_drafts_leave_the_ids_as_they_are(
    temperature: float, default_store: Store, default_build: Manifest, noisy: Path
) -> None:
    plain = await answers(default_store, default_build, temperature, "none")
    looked_up = await answers(default_store, default_build, temperature, "ngram", draft_depth=8)
    drafted = await answers(
        default_store, default_build, temperature, "model", draft_model=noisy, draft_depth=3
    )
    expected = [answer.token_ids for answer in plain]
    assert [answer.token_ids for answer in looked_up] == expected
    assert [answer.token_ids for answer in drafted] == expected
    for kind in (looked_up, drafted):
        assert sum(answer.speculation.drafted for answer in kind) > 0
        assert sum(answer.speculation.accepted for answer in kind) > 0
    assert any(answer.speculation.accepted < answer.speculation.drafted for answer in drafted)
