"""One instance: the directory, where everything in it is, how it is made and opened.

An instance is a directory of mode 0700 with config.toml, credentials.toml, the database, the erasure ledger,
skills/ and run/. config.toml is written last, so a directory that has it was completely made. Who may use
the instance at the same time is the business of pikobot.serving.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pikobot import identity, replacing
from pikobot.config import Config, load_config
from pikobot.credentials import Credentials, create_credentials, load_credentials
from pikobot.errors import ConfigError, UsageError
from pikobot.files import (
    DIRECTORY_MODE,
    check_private,
    os_failure,
    sync_directory,
    write_private_file,
)

INSTANCE_VARIABLE = "PIKOBOT_INSTANCE"
MAX_ROOT_BYTES = 450  # SQLite opens paths of 504 bytes at most; what a restore stages has a longer one

_OWN_NAMES = {"run", "skills", "credentials.toml", "config.toml", *replacing.NAMES}
_COMMAND = re.compile(r"`(pikobot (?:(?!--instance)[^`])*)`")
_HARMLESS_NAMES = {"lost+found", ".DS_Store"}


@dataclass(frozen=True)
class Instance:
    """The paths of an instance. Having one says nothing about what is on disk; see ``open_instance``."""

    root: Path

    @property
    def config_path(self) -> Path:
        return self.root / "config.toml"

    @property
    def credentials_path(self) -> Path:
        return self.root / "credentials.toml"

    @property
    def database_path(self) -> Path:
        return self.root / "pikobot.sqlite3"

    @property
    def ledger_path(self) -> Path:
        return self.root / "erasures.jsonl"

    @property
    def skills_dir(self) -> Path:
        return self.root / "skills"

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @property
    def lock_path(self) -> Path:
        return self.run_dir / "lock"

    @property
    def socket_path(self) -> Path:
        return self.run_dir / "rpc.sock"

    @property
    def option(self) -> str:
        """The option that names this instance on a command line, quoted for a shell."""
        return f"--instance {shlex.quote(str(self.root))}"

    def completed(self, message: str) -> str:
        """A message whose commands name this instance, so that they can be pasted into a shell.

        Whoever makes a message seldom knows the instance, and writes `pikobot COMMAND` in backquotes; whoever shows
        it completes it.
        """
        return _COMMAND.sub(lambda found: f"`{found[1]} {self.option}`", message)

    def refuse_lost(self, *, only_reads: bool = False) -> None:
        """Raises DamagedData if there was a database and it is gone, PikobotError if it can't be used."""
        identity.refuse_lost(self.database_path, self.ledger_path, only_reads=only_reads)

    def load_config(self) -> Config:
        """Raises ConfigError."""
        return load_config(self.config_path)

    def load_credentials(self, config: Config, environ: Mapping[str, str] | None = None) -> Credentials:
        """Raises ConfigError."""
        return load_credentials(
            self.credentials_path,
            chat_provider=config.chat.provider,
            embedding_provider=config.embedding.provider,
            environ=environ,
        )


def instance_root(given: str | Path | None, environ: Mapping[str, str] | None = None) -> Path:
    """The absolute directory for ``--instance`` (None: not given, then the default), ``~`` expanded.

    Symbolic links stay as they are. Raises UsageError for a path that is empty or that no file system takes.
    """
    if given is None:
        return default_instance_dir(environ)
    text = str(given)
    if not text.strip():
        raise UsageError("--instance is empty: name a directory, or leave the option out for the default one")
    if "\0" in text:
        raise UsageError("--instance contains a NUL character: name a directory")
    try:
        root = Path(text).expanduser().absolute()
        length = len(str(root).encode())
    except UnicodeEncodeError:
        raise UsageError("the name of the instance directory is not valid UTF-8: choose another") from None
    except RuntimeError:
        raise UsageError(f"{text}: there is no such user's home directory; write the full path") from None
    except OSError as error:  # the current directory is gone
        raise os_failure("find", Path(text), error) from error
    if length > MAX_ROOT_BYTES:
        raise UsageError(
            f"the path of the instance directory has {length} bytes, and SQLite opens databases in {MAX_ROOT_BYTES} "
            "at most: choose a shorter one with --instance"
        )
    return root


def default_instance_dir(environ: Mapping[str, str] | None = None) -> Path:
    """``PIKOBOT_INSTANCE`` if it is set and not empty, else the platform's place for a user's data."""
    import platformdirs  # lazily: seldom needed

    named = (os.environ if environ is None else environ).get(INSTANCE_VARIABLE)
    if named:
        return instance_root(named)
    return platformdirs.user_data_path("pikobot", appauthor=False)


def is_instance(root: Path) -> bool:
    """Whether the directory holds an instance: complete, with a part lost, or just being put in place."""
    instance = Instance(root)
    try:
        return (
            instance.config_path.is_file()
            or instance.database_path.is_file()
            or replacing.is_waiting(root)
            or identity.has_traces(instance.database_path, instance.ledger_path)
        )
    except OSError as error:
        raise os_failure("look into", root, error) from error


def open_instance(root: Path, *, is_examined: bool = False) -> Instance:
    """The instance in a directory. Makes and repairs nothing, but finishes a restore that was cut off.

    Raises UsageError if there is none, ConfigError if other users could read it. Unless it ``is_examined``, by who
    reports that himself, the same for its credentials.toml, and DamagedData if its database is gone.
    """
    instance = Instance(root)
    if not is_instance(root):
        raise UsageError(
            f"there is no pikobot instance at {root}: `pikobot init {instance.option}` makes one"
        )
    _check_root(root)
    replacing.recover(root)
    if not is_examined:
        _check_private_if_there(instance.credentials_path)
        instance.refuse_lost()
    return instance


def create_instance(root: Path, config_text: str) -> Instance:
    """Make an instance, or add what is missing to one; existing files stay as they are.

    A crash in between leaves a directory that the next call completes. Raises UsageError if something else is
    in the way, ConfigError if an existing instance is open to others, DamagedData if its database is gone,
    PikobotError if the system refuses.
    """
    if is_instance(root):
        open_instance(root)
    instance = make_root(root)
    replacing.recover(root)
    try:
        instance.skills_dir.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        create_credentials(instance.credentials_path)
        if not instance.config_path.exists():
            write_private_file(instance.config_path, config_text)
        sync_directory(root.parent)
    except OSError as error:
        raise os_failure("create the instance", root, error) from error
    return instance


def make_root(root: Path) -> Instance:
    """The directory of an instance with its run/, and nothing else, so that it can be locked. Idempotent.

    Raises what `create_instance` raises.
    """
    instance = Instance(root)
    if is_instance(root):
        _check_root(root)
    else:
        _refuse_foreign(root)
    try:
        root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        root.chmod(DIRECTORY_MODE)
        _check_root(root)
        instance.run_dir.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    except OSError as error:
        raise os_failure("create the instance", root, error) from error
    return instance


def _refuse_foreign(root: Path) -> None:
    try:
        if not root.is_dir():
            if os.path.lexists(root):
                raise UsageError(f"{root} is not a directory: choose another place with --instance")
            return
        foreign = [name for name in os.listdir(root) if not _may_be_ours(name)]
    except OSError as error:
        raise os_failure("look into", root, error) from error
    if foreign:
        raise UsageError(
            f"{root} holds other files and no pikobot instance: choose an empty directory with --instance"
        )


def _may_be_ours(name: str) -> bool:
    temporary = name.startswith((".config.toml.", ".credentials.toml."))
    return temporary or name in _OWN_NAMES or name in _HARMLESS_NAMES


def _check_private_if_there(path: Path) -> None:
    try:
        check_private(path, path.stat())
    except FileNotFoundError:
        return
    except OSError as error:
        raise os_failure("open", path, error) from error


def _check_root(root: Path) -> None:
    try:
        status = root.stat()
    except OSError as error:
        raise os_failure("open", root, error) from error
    try:
        check_private(root, status)
    except ConfigError as error:
        raise ConfigError(f"{error} (a file system that keeps no modes cannot hold an instance)") from None
