from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from fleetchat.cutter.gguf_file import GgufFile
from fleetchat.cutter.gguf_kinds import check_readable
from fleetchat.errors import SourceError


def test_an_unknown_architecture_is_refused_by_name(tiny_gguf: Path) -> None:
    with GgufFile(tiny_gguf) as gguf:
        check_readable(gguf)
        gguf.fields["general.architecture"] = "gemma3"
        with pytest.raises(
            SourceError, match=r"architecture 'gemma3' cannot be read from a GGUF \(openvino_genai"
        ):
            check_readable(gguf)


@pytest.mark.parametrize("kind", ["IQ2_XS", "F32", "BF16", "Q5_0"])
def test_an_unreadable_quantisation_is_refused_with_the_tensor(tiny_gguf: Path, kind: str) -> None:
    with GgufFile(tiny_gguf) as gguf:
        name = "blk.1.ffn_up.weight"
        gguf.tensors[name] = replace(gguf.tensors[name], kind=GGMLQuantizationType[kind])
        with pytest.raises(
            SourceError, match=rf"tensor blk\.1\.ffn_up\.weight is in {kind}, a quantisation that"
        ):
            check_readable(gguf)
