"""Reading GGUF files: what is in them, and what is said of those that are damaged."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetchat.cutter.gguf_file import GgufFile
from fleetchat.errors import SourceError
from tests.cutter.tiny_gguf import CONTEXT, HEADS, MERGES, vocabulary


def test_fields_are_read(tiny_gguf: Path) -> None:
    with GgufFile(tiny_gguf) as gguf:
        assert gguf.architecture == "llama"
        assert gguf.integer("llama.context_length") == CONTEXT
        assert gguf.integer("llama.attention.head_count") == HEADS
        assert gguf.fields["tokenizer.ggml.tokens"] == vocabulary()
        assert gguf.fields["tokenizer.ggml.merges"] == list(MERGES)
        assert gguf.fields["tokenizer.ggml.add_bos_token"] is False
        assert gguf.integer("no.such.field") is None


def test_tensors_are_those_of_the_reference_reader(tiny_gguf: Path) -> None:
    with GgufFile(tiny_gguf) as gguf:
        reference = {tensor.name: tensor for tensor in GGUFReader(tiny_gguf).tensors}
        assert set(gguf.tensors) == set(reference)
        for name, tensor in reference.items():
            expected = dequantize(np.asarray(tensor.data), tensor.tensor_type)
            np.testing.assert_array_equal(gguf.dequantised(name), expected)


def test_one_row_is_that_row(tiny_gguf: Path) -> None:
    with GgufFile(tiny_gguf) as gguf:
        name = "blk.1.attn_q.weight"
        assert gguf.tensors[name].kind == GGMLQuantizationType.Q4_1
        np.testing.assert_array_equal(gguf.dequantised_row(name, 5), gguf.dequantised(name)[5])


def test_a_file_cut_in_half_is_named_with_both_sizes(tiny_gguf: Path, tmp_path: Path) -> None:
    whole = tiny_gguf.read_bytes()
    half = tmp_path / "half.gguf"
    half.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError) as raised:
        GgufFile(half)
    assert raised.value.message == (
        f"{half} is cut off: its tensors need {len(whole)} bytes, the file has {len(whole) // 2}"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it has only 0 bytes"),
        (b"PK\x03\x04" + bytes(60), "does not begin with GGUF"),
        (b"GGUF" + (99).to_bytes(4, "little") + bytes(16), "GGUF version 99 is not supported"),
        (b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16, "header is damaged or cut off"),
    ],
)
def test_what_is_no_gguf_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=said):
        GgufFile(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 4000), value=st.integers(0, 255), kept=st.floats(0, 1))
def test_damage_in_the_header_is_a_source_error_or_harmless(
    position: int, value: int, kept: float, tiny_gguf: Path, tmp_path: Path
) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    content[position] = value
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content[: round(kept * len(content))])
    with suppress(SourceError):
        GgufFile(path).close()
