"""How long commands take from a cold process, against `python -c "import typer, rich"` in the same run."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.benchmarks.report import Figure, Report

RUNS = 11
PEER = 'python -c "import typer, rich"'


def run(_shared: Path) -> Report:
    with tempfile.TemporaryDirectory() as scratch:
        instance = ("--instance", f"{scratch}/instance")
        python = (sys.executable, "-m", "pikobot")
        subprocess.run([*python, "init", *instance, "--offline"], check=True, capture_output=True)
        commands = {
            PEER: [sys.executable, "-c", "import typer, rich"],
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
    rows = [
        f"| {name} | {median * 1000:.0f} | {median / medians[PEER]:.2f} |" for name, median in medians.items()
    ]
    figures = [
        Figure(what=name, peer=PEER, ours=median * 1000, theirs=medians[PEER] * 1000, unit="ms")
        for name, median in medians.items()
        if name != PEER
    ]
    return Report("\n".join(["| command | median ms | ratio to the peer |", "|---|---|---|", *rows]), figures)
