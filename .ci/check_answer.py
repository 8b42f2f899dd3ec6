"""Check the document that `fleetchat ask … --json` printed: two stages, a finished answer, Paris."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(file: str) -> None:
    """Leave with a message at the first thing that is not as it should be."""
    document = json.loads(Path(file).read_text(encoding="utf-8"))
    (answer,) = document["answers"]
    print(answer["text"])
    layers = [tuple(stage["layers"]) for stage in document["stages"]]
    checks = {
        "two stages that follow each other": len(layers) == 2 and layers[1][0] == layers[0][1] + 1,
        "compute times": all(stage["compute_ms"]["p50"] > 0 for stage in document["stages"]),
        "finish reason": answer["finish_reason"] == "stop",
        "Paris": "Paris" in answer["text"],
        "token ids": len(answer["token_ids"]) == answer["completion_tokens"] > 0,
    }
    failed = [name for name, passed in checks.items() if not passed]
    if failed:
        sys.exit(f"not as it should be: {', '.join(failed)}\n{json.dumps(document, indent=2)}")


if __name__ == "__main__":
    main(sys.argv[1])
