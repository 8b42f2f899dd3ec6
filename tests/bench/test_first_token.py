"""Prompts that share no beginning, and what cannot be measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from fleetchat.bench.first_token import Text, measure_prefill, second_turn_options
from fleetchat.bench.pairs import QUICK
from fleetchat.bench.scale import Plan
from fleetchat.bench.setting import Setting
from fleetchat.errors import InputError


def subject(context: int) -> SimpleNamespace:
    tokenizer = SimpleNamespace(encode=lambda text, specials: list(range(1000)))
    return SimpleNamespace(
        chat_format=SimpleNamespace(tokenizer=tokenizer),
        manifest=SimpleNamespace(context=context, model="Some Model"),
    )


def test_no_two_texts_begin_alike() -> None:
    text = Text(subject(8192), 1000)  # type: ignore[arg-type]
    texts = [text.next() for _ in range(20)]
    assert {len(one) for one in texts} == {1000}
    assert len({one[0] for one in texts}) == 20


def test_a_context_that_holds_no_history_is_refused(tmp_path: Path) -> None:
    setting = Setting(tmp_path, QUICK, (), lambda text: None)
    with pytest.raises(InputError, match="Some Model has a context of 2,048 tokens"):
        second_turn_options(setting, subject(2048), Plan())  # type: ignore[arg-type]


@pytest.mark.parametrize(("stages", "tokens"), [(2, 0), (1, 2048)])
def test_a_prefill_that_cannot_be_compared_is_refused(stages: int, tokens: int, tmp_path: Path) -> None:
    setting = Setting(tmp_path, QUICK, (), lambda text: None)
    with pytest.raises(InputError, match="--prefill takes at least 16 tokens"):
        trio.run(measure_prefill, setting, Plan(stages=stages), tokens)
