"""Runs one extraction in this process under audit hooks and prints what it touched; see test_isolation.

Afterwards it writes a file, opens a socket, starts a thread and a process on purpose, so that a hook that sees
nothing cannot pass for a program that does nothing.
"""

import io
import json
import logging
import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_WATCHED = (
    "os.fork",
    "os.link",
    "os.mkdir",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.system",
    "pty.",
    "shutil.",
    "socket.",
    "sqlite3.",
    "subprocess.",
    "tempfile.",
    "urllib.",
)


@contextmanager
def traced() -> Iterator[list[str]]:
    """Audit events of everything that writes, talks or starts something."""
    events: list[str] = []
    is_on = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not is_on[0]:
            return
        if event == "open":
            path, mode, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(mode or "") & set("wax+"):
                events.append(f"open for writing: {path!r}")
        elif event.startswith(_WATCHED):
            events.append(event)

    start = threading.Thread.start

    def start_seen(thread: threading.Thread) -> None:  # older interpreters have no audit event for it
        events.append("thread")
        start(thread)

    threading.Thread.start = start_seen  # type: ignore[method-assign, assignment]
    sys.addaudithook(hook)
    yield events
    is_on[0] = False
    threading.Thread.start = start  # type: ignore[method-assign]


def learn() -> dict[str, Any]:
    """One extraction with a link, a vector, a rejection and a failing job after it."""
    from pikobot.adapters.mem0.candidates import Extracted
    from tests.adapters.mem0.extraction import LengthEmbedder, document, element, extract

    outcome = extract(
        document(element(linked_memory_ids=["0"]), element(evidence=[])), embedder=LengthEmbedder()
    )
    assert isinstance(outcome, Extracted)
    failed = extract("no JSON", "no JSON")
    return {"candidates": len(outcome.candidates), "failed": type(failed).__name__}


def do_everything_on_purpose(scratch: Path) -> None:
    import socket
    import subprocess

    (scratch / "directory").mkdir()
    (scratch / "written").write_text("x")
    socket.socket(socket.AF_INET).close()
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    subprocess.run([sys.executable, "-c", ""], check=True)


def peak_bytes() -> int:
    """Largest resident memory of this process. On Linux, ru_maxrss would count the parent that forked it."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    scratch = Path(sys.argv[1])
    log = io.StringIO()
    logging.basicConfig(stream=log, level=logging.NOTSET)
    with traced() as touched:
        learned = learn()
    with traced() as control:
        do_everything_on_purpose(scratch)
    report = {
        "learned": learned,
        "touched": touched,
        "control": sorted({event.split(":")[0] for event in control}),
        "threads": [thread.name for thread in threading.enumerate()],
        "log": log.getvalue(),
        "modules": sorted({name.split(".")[0] for name in sys.modules}),
        "mem0": sorted(name for name in sys.modules if name.startswith("mem0")),
        "peak_bytes": peak_bytes(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
