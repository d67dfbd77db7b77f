"""The line editor: several lines, pasting, completion of commands, history in memory alone.

Enter sends; Alt-Enter and Ctrl-J start a new line; a paste keeps its line ends. On a dumb terminal Ctrl-J sends as
well, because what stands in for a terminal there (an editor's shell) ends lines with it. Ctrl-C clears
what was typed, and on an empty line raises KeyboardInterrupt; Ctrl-D on an empty line raises EOFError.
"""

from collections.abc import Callable, Iterable, Mapping

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_or_none
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import DummyHistory, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from pikobot.channels.terminal.slash import NAMES

MIN_TOOLBAR_COLUMNS = 40
PROMPT = "> "
CONTINUATION = "  "

_STYLE = Style.from_dict({"bottom-toolbar": "noreverse ansibrightblack", "prompt": "bold"})


class CommandCompleter(Completer):
    """Names of commands after a slash that begins the text; the language follows what was typed."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith(("/", "／")) or any(map(str.isspace, text)):
            return
        begun = text[1:].casefold()
        for name in NAMES:
            if name.startswith(begun):
                yield Completion(name, start_position=-len(begun))


class LineEditor:
    """``toolbar`` is asked for the line below the prompt each time it is drawn."""

    def __init__(
        self,
        toolbar: Callable[[], str],
        environ: Mapping[str, str],
        *,
        source: Input | None,
        sink: Output | None,
    ) -> None:
        self._toolbar = toolbar
        self._is_dumb = is_dumb_terminal(environ.get("TERM", ""))
        self._source = source
        self._sink = sink
        self._session = self._open()

    async def read(self) -> str:
        """One submitted text. Raises KeyboardInterrupt and EOFError as the module says."""
        is_wide = self._session.output.get_size().columns >= MIN_TOOLBAR_COLUMNS
        self._session.bottom_toolbar = self._bottom_line if is_wide and not self._is_dumb else None
        return await self._session.prompt_async(handle_sigint=False)

    async def ask(self, question: str) -> str:
        """One line that no history keeps. Raises KeyboardInterrupt and EOFError."""
        session: PromptSession[str] = PromptSession(
            history=DummyHistory(), input=self._source, output=self._sink
        )
        return await session.prompt_async(question, handle_sigint=False)

    def interrupt(self) -> bool:
        """Pass on a Ctrl-C that came as a signal; False when nothing is being read yet."""
        app = get_app_or_none()
        if app is None or not app.is_running:
            return False
        app.key_processor.send_sigint()
        return True

    def forget_history(self) -> None:
        """Drop everything typed so far: it may hold what has just been erased."""
        self._session = self._open()

    def _open(self) -> PromptSession[str]:
        session: PromptSession[str] = PromptSession(
            [("class:prompt", PROMPT)],
            multiline=True,
            prompt_continuation=CONTINUATION,
            history=InMemoryHistory(),
            completer=CommandCompleter(),
            complete_while_typing=Condition(lambda: session.default_buffer.text.startswith(("/", "／"))),
            key_bindings=_bindings(is_dumb=self._is_dumb),
            style=_STYLE,
            input=self._source,
            output=self._sink,
        )
        return session

    def _bottom_line(self) -> AnyFormattedText:
        return [("class:bottom-toolbar", self._toolbar())]


def _bindings(*, is_dumb: bool) -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def submit(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    @bindings.add("c-j", filter=not is_dumb)
    def start_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c")
    @bindings.add("<sigint>")
    def clear_or_interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt())

    return bindings
