"""How long commands take from a cold process, against `python -c "import typer, rich"` in the same run."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 11


def run(_shared: Path) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        instance = ("--instance", f"{scratch}/instance")
        python = (sys.executable, "-m", "pikobot")
        subprocess.run([*python, "init", *instance, "--offline"], check=True, capture_output=True)
        commands = {
            'python -c "import typer, rich"': [sys.executable, "-c", "import typer, rich"],
            "pikobot --help": [*python, "--help"],
            "pikobot rpc status": [*python, "rpc", "status", *instance],
            "pikobot run -m (recall mode)": [*python, "run", *instance, "-m", "Hello."],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(RUNS):  # interleaved, so that the machine's mood meets all alike
            for name, command in commands.items():
                started = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    peer = next(iter(medians.values()))
    rows = [f"| {name} | {median * 1000:.0f} | {median / peer:.2f} |" for name, median in medians.items()]
    return "\n".join(["| command | median ms | ratio to the peer |", "|---|---|---|", *rows])
