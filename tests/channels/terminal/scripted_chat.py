"""A chat with a scripted runner, for a test that gives it a real terminal: `python -m … WHICH`."""

import asyncio
import fcntl
import sys
import termios

from pikobot.agent.events import TextDelta
from pikobot.channels.terminal.chat import chat
from pikobot.channels.terminal.services import ChatOptions

from .fakes import Hang, answer, scripted

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C typed there interrupts this process
    instance = scripted(
        answer("# 波尔图\n\n", "You moved ", "there in **March**.\n"),
        [TextDelta("An answer without "), Hang()],
        [TextDelta("Another without "), Hang()],
    )
    instance.runner.ignores_stop = sys.argv[1:] == ["deaf"]
    code = asyncio.run(chat(instance.services, ChatOptions()))
    print([text for text, _ in instance.runner.asked], flush=True)
    sys.exit(code)
