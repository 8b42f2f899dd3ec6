from __future__ import annotations

import pytest

from fleetchat.chat.options import CHECKS, ChatOptions


def test_what_is_stored_is_restored_and_nonsense_is_left_out() -> None:
    options = ChatOptions(system="", temperature=0.5, top_k=4, overflow="drop-oldest")
    assert options.stored() == {"system": "", "temperature": 0.5, "top_k": 4, "overflow": "drop-oldest"}
    assert ChatOptions.restored(options.stored()) == options
    assert ChatOptions.restored({"top_p": 7, "overflow": [], "new": 1, "seed": None}) == ChatOptions()


def test_an_option_is_set_and_unset_by_text() -> None:
    options = ChatOptions().changed("temperature", " 0.2 ").changed("max_tokens", "1,000")
    assert options == ChatOptions(temperature=0.2, max_tokens=1000)
    assert options.changed("temperature", "default") == ChatOptions(max_tokens=1000)
    assert set(CHECKS) == set(ChatOptions.__slots__)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("temperature", "hot", "temperature must be a number from 0 to 100, not 'hot'"),
        ("temperature", "nan", "temperature must be"),
        ("top_p", "0", "top_p must be a number above 0 and at most 1"),
        ("top_k", "1.5", "top_k must be a whole number from 0"),
        ("overflow", "drop", "overflow must be refuse or drop-oldest, not 'drop'"),
        ("speed", "1", "there is no option 'speed'; there are system, temperature"),
    ],
)
def test_a_wrong_value_is_refused_in_a_sentence(name: str, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ChatOptions().changed(name, text)
