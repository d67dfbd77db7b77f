"""`scripts/bench`: run the named benchmarks, or all, and print their Markdown tables."""

import importlib
import os
import sys
from pathlib import Path

NAMES = {
    "vectors": "vectors",
    "recall": "recall",
    "import": "import_",
    "startup": "startup",
    "forget": "forget",
}


def shared_data() -> Path:
    """The directory with the conversations to run on."""
    root = Path(__file__).resolve().parents[2]
    return Path(os.environ.get("PIKOBOT_SHARED", root.parent / "shared")) / "data"


def main() -> int:
    wanted = sys.argv[1:] or list(NAMES)
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        print(f"there is no benchmark {', '.join(unknown)}; known are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in wanted:
        module = importlib.import_module(f"scripts.benchmarks.{NAMES[name]}")
        print(f"## {name}\n\n{module.run(shared_data())}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
