"""The command line: every command with its options, parsed here and carried out in the module named like it.

Nothing heavy is imported before a command runs, so that `pikobot --help` is quick. This is the edge where failures
become one line on stderr and an exit code; a failure that nobody foresaw is reported by its place, because its
message could quote what somebody said (set PIKOBOT_DEBUG=1 for the whole traceback).
"""

import faulthandler
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pikobot import __version__, streams
from pikobot.cli.meant import Commands
from pikobot.errors import ExitCode, PikobotError

INTERRUPTED = 130  # 128 + SIGINT, as shells have it

EXIT_CODES = """Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing found or not allowed, 4 instance busy,
5 provider or budget, 6 damaged data, 130 interrupted, 143 terminated."""

app = typer.Typer(
    name="pikobot",
    cls=Commands,
    help="A private assistant on your own machine that remembers with evidence and can prove that it forgot.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: rich takes longer to load than everything else together
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

InstanceOption = Annotated[
    str | None,
    typer.Option("--instance", metavar="DIR", help="The instance's directory. [env: PIKOBOT_INSTANCE]"),
]

RecipientOption = Annotated[
    list[str] | None,
    typer.Option("--recipient", metavar="AGE1…", help="Encrypt it to this age recipient."),
]
IdentityOption = Annotated[
    list[str] | None,
    typer.Option("--identity", metavar="FILE", help="The age identity that an encrypted backup needs."),
]
PassphraseFileOption = Annotated[
    str | None,
    typer.Option("--passphrase-file", metavar="FILE", help="The passphrase is its first line."),
]


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"pikobot {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    instance: InstanceOption = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    context.obj = instance


@app.command()
def init(
    context: typer.Context,
    instance: InstanceOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as chat.model=NAME."),
    ] = None,
    telegram: Annotated[bool, typer.Option("--telegram", help="Turn the Telegram channel on.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="No chat model, local embeddings.")] = False,
) -> None:
    """Make an instance, or change its settings. Asks when it is given no flags and a person is there."""
    from pikobot.cli.init import init as run_init

    is_interactive = sys.stdin.isatty() and sys.stdout.isatty()
    _exit(
        context,
        instance,
        lambda root: run_init(
            root,
            settings or (),
            telegram=telegram,
            offline=offline,
            interactive=is_interactive,
        ),
    )


@app.command()
def run(
    context: typer.Context,
    instance: InstanceOption = None,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="NAME", help="Resume or start the thread of that name.")
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(
            "-m", "--message", metavar="TEXT", help="Answer one message and leave; '-' reads stdin."
        ),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep nothing of what is said or answered.")
    ] = False,
    headless: Annotated[
        bool, typer.Option("--headless", help="No chat: serve the operator and work in the background.")
    ] = False,
) -> None:
    """Talk: a chat on a terminal, one answer for -m or a pipe. Makes the instance when it is new."""
    from pikobot.cli.run import RunOptions
    from pikobot.cli.run import run as run_run

    options = RunOptions(thread=thread, message=message, is_ephemeral=ephemeral, is_headless=headless)
    _exit(context, instance, lambda root: run_run(root, options))


@app.command()
def work(
    context: typer.Context,
    instance: InstanceOption = None,
    drain: Annotated[bool, typer.Option("--drain", help="Work until nothing is due, then leave.")] = False,
) -> None:
    """Work in the background without a chat."""
    from pikobot.cli.run import work as run_work

    _exit(context, instance, lambda root: run_work(root, until_idle=drain))


@app.command()
def rpc(
    context: typer.Context,
    method: Annotated[str | None, typer.Argument(help="Such as memory.search or status.")] = None,
    params: Annotated[str | None, typer.Argument(metavar="JSON", help="'-' reads it from stdin.")] = None,
    instance: InstanceOption = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="FILE", help='One {"method","params"} a line; \'-\' reads stdin.'),
    ] = None,
    timing: Annotated[bool, typer.Option("--timing", help="Add elapsedMs to each result.")] = False,
) -> None:
    """Call one of the operator's methods; prints one JSON document."""
    from pikobot.cli.rpc import rpc as run_rpc

    _exit(context, instance, lambda root: run_rpc(root, method, params, batch=batch, timing=timing))


@app.command("import")
def import_(
    context: typer.Context,
    format_name: Annotated[str, typer.Argument(metavar="FORMAT", help="jsonl")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="'-' reads stdin.")],
    instance: InstanceOption = None,
) -> None:
    """Load conversations from a file; loading it again adds nothing twice."""
    from pikobot.cli.import_ import import_ as run_import

    _exit(context, instance, lambda root: run_import(format_name, file, root))


@app.command()
def reindex(context: typer.Context, instance: InstanceOption = None) -> None:
    """Make the search index again from the stored sources."""
    from pikobot.cli.maintenance import reindex as run_reindex

    _exit(context, instance, lambda root: run_reindex(root))


@app.command()
def backup(
    context: typer.Context,
    destination: Annotated[str, typer.Argument(metavar="DEST", help="A file outside the instance.")],
    instance: InstanceOption = None,
    recipients: RecipientOption = None,
    passphrase_file: PassphraseFileOption = None,
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Encrypt it; asks for a passphrase.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
) -> None:
    """Write everything but the secrets into one file, also while a process serves the instance."""
    from pikobot.cli.backup import BackupOptions
    from pikobot.cli.backup import backup as run_backup

    options = BackupOptions(
        recipients=tuple(recipients or ()),
        passphrase_file=passphrase_file,
        asks_passphrase=passphrase,
        overwrite=force,
    )
    _exit(context, instance, lambda root: run_backup(root, destination, options))


@app.command()
def restore(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="BACKUP")],
    instance: InstanceOption = None,
    ledgers: Annotated[
        list[str] | None,
        typer.Option("--ledger", metavar="FILE", help="A newer erasures.jsonl of the same instance."),
    ] = None,
    identities: IdentityOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> None:
    """Make a backup the instance, without what has been erased since; replaces the one that is there."""
    from pikobot.cli.backup import keys_of
    from pikobot.cli.backup import restore as run_restore

    _exit(
        context,
        instance,
        lambda root: run_restore(
            root,
            source,
            ledgers=ledgers or (),
            keys=keys_of(identities or (), passphrase_file),
        ),
    )


@app.command()
def verify(
    context: typer.Context,
    source: Annotated[str | None, typer.Argument(metavar="[BACKUP]", help="A backup instead.")] = None,
    instance: InstanceOption = None,
    identities: IdentityOption = None,
    passphrase_file: PassphraseFileOption = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check the instance (data, references, indexes, erasure ledger, privacy), or a backup; changes nothing."""
    from pikobot.cli.backup import keys_of
    from pikobot.cli.maintenance import verify as run_verify

    _exit(
        context,
        instance,
        lambda root: run_verify(
            root,
            source,
            keys=keys_of(identities or (), passphrase_file),
            as_json=json_,
        ),
    )


@app.command()
def doctor(
    context: typer.Context,
    instance: InstanceOption = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what works, what is degraded, and the command that fixes it."""
    from pikobot.cli.doctor import doctor as run_doctor

    _exit(context, instance, lambda root: run_doctor(root, as_json=json_))


def _root(context: typer.Context, given: str | None) -> Path:
    """The instance named after the command, before it, or by the environment."""
    from pikobot.instance import instance_root

    before = context.obj if isinstance(context.obj, str) else None
    return instance_root(given if given is not None else before)


def _exit(context: typer.Context, given: str | None, command: Callable[[Path], int]) -> None:
    """Carry a command out on its instance and leave with its code; failures become one line and theirs."""
    from pikobot.instance import Instance

    root = None
    try:
        root = _root(context, given)
        code = int(command(root))
        if (failure := streams.take_failure()) is not None:
            _say(str(failure))
            code = code or failure.exit_code
    except PikobotError as error:
        _say(str(error) if root is None else Instance(root).completed(str(error)))
        code = error.exit_code
    except BrokenPipeError:  # nobody reads any more what would have been said
        code = ExitCode.DONE
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:  # the edge of the program
        if os.environ.get("PIKOBOT_DEBUG"):
            raise
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        name = place.filename.rpartition("pikobot/")[2]
        _say(f"internal error: {type(error).__name__} at {name}:{place.lineno}; please report this place")
        code = ExitCode.FAILED
    raise typer.Exit(code)


def _say(message: str) -> None:
    sys.stderr.write(f"pikobot: {message}\n")


def main() -> None:
    """Entry point of the installed command."""
    streams.prepare()
    faulthandler.enable(streams.STDERR)  # a crash of a library says where, with names of functions alone
    try:
        app()
    except PikobotError as error:  # of what is printed without a command, such as --help
        _say(str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
