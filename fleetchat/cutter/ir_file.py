"""An OpenVINO model on disk: saved whole, found whole. OpenVINO's own words are for programmers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from fleetchat.cutter.files import failed_write
from fleetchat.errors import SourceError

if TYPE_CHECKING:
    import openvino as ov

END = b"</net>"
GRAPH = 2000  # bytes of xml for an operation, rather too many: 480 in the models of the tests
COPY_AGAIN = "export the model again, or copy the file again"
_CONSTANT = re.compile(rb'\boffset="(\d+)"[^>]*?\bsize="(\d+)"')


def check_ir(xml: Path) -> None:
    """Raise SourceError for a graph or weights that are cut off, with what is needed and what is there."""
    try:
        graph = xml.read_bytes()
        size = xml.with_suffix(".bin").stat().st_size
    except OSError as error:
        raise SourceError(f"{xml} cannot be read: {error.strerror or error}", hint=COPY_AGAIN) from error
    if not graph.rstrip().endswith(END):
        raise SourceError(
            f"{xml} is cut off: it does not end as an OpenVINO model does (file of {len(graph)} bytes)",
            hint=COPY_AGAIN,
        )
    needed = max((int(place) + int(length) for place, length in _CONSTANT.findall(graph)), default=0)
    if size < needed:
        raise SourceError(
            f"{xml.with_suffix('.bin')} is cut off: the weights need {needed} bytes, the file has {size}",
            hint=COPY_AGAIN,
        )


def save_ir(model: ov.Model, xml: Path) -> None:
    """Write both files of a model, weights as they are. Raises OSError when they cannot be written."""
    import openvino as ov  # the doctor looks at files with this module, and OpenVINO may be broken

    try:
        ov.save_model(model, xml, compress_to_fp16=False)
    except RuntimeError as error:  # of a full disk OpenVINO says "iostream error" and removes the files
        nodes = model.get_ops()
        weights = sum(node.get_byte_size() for node in nodes if node.get_type_name() == "Constant")
        if (reason := failed_write(xml.parent, weights + GRAPH * len(nodes))) is not None:
            raise reason from error
        raise
