"""Which GGUF files openvino_genai 2026.4 reads: found by converting a small model of each kind.

It refused matrices in F32, BF16, Q5_0, Q5_1, Q5_K, Q3_K and IQ4_NL, and the architectures phi3 and gemma2.
"""

from __future__ import annotations

from gguf import GGMLQuantizationType as Kind

from fleetchat.cutter.gguf_file import GgufFile
from fleetchat.errors import SourceError

ARCHITECTURES = ("llama", "qwen2", "qwen3")
KINDS = (Kind.F16, Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.Q4_K, Kind.Q6_K)
OTHER_WAY = "take the model's checkpoint or its OpenVINO export instead: fleetchat shards build OWNER/NAME"


def check_readable(gguf: GgufFile) -> None:
    """Raise SourceError for an architecture or a quantisation that cannot be converted."""
    if gguf.architecture not in ARCHITECTURES:
        raise SourceError(
            f"{gguf.path}: models of the architecture {gguf.architecture or 'unknown'!r} cannot be read from "
            f"a GGUF (openvino_genai reads {', '.join(ARCHITECTURES)})",
            hint=OTHER_WAY,
        )
    for tensor in gguf.tensors.values():
        if tensor.kind not in KINDS and (tensor.kind is not Kind.F32 or len(tensor.shape) > 1):
            raise SourceError(
                f"{gguf.path}: tensor {tensor.name} is in {tensor.kind.name}, a quantisation that "
                f"openvino_genai does not read ({', '.join(kind.name for kind in KINDS)})",
                hint="take another GGUF of the model, in Q4_0, Q4_1 or Q8_0",
            )
