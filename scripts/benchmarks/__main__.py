"""`scripts/bench`: run the named benchmarks, or all, print their tables, and at last one table of all figures."""

import importlib
import os
import sys
from pathlib import Path

from scripts.benchmarks.report import Report, table_of

NAMES = {
    "vectors": "vectors",
    "search": "search",
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
    reports: dict[str, Report] = {}
    for name in wanted:
        module = importlib.import_module(f"scripts.benchmarks.{NAMES[name]}")
        reports[name] = module.run(shared_data())
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"## {name}\n\n{reports[name].markdown}\n\nLoad of the machine: {load}.\n", flush=True)
    print(f"## All figures beside their peers\n\n{table_of(reports)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
