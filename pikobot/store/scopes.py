"""Scopes: who may read a source. Written ``private:main:local:terminal:owner`` outside the database.

private(workspace, bot, chat, user) belongs to one user of one chat; shared(workspace, bot, group, topic) to the
members of a group topic. Neither reads the other.
"""

from dataclasses import dataclass
from typing import Literal, NewType
from urllib.parse import quote, unquote

from pikobot.errors import InvalidParams
from pikobot.store.connection import Connection

ScopeId = NewType("ScopeId", int)

ScopeKind = Literal["private", "shared"]
MAIN_WORKSPACE = "main"


@dataclass(frozen=True)
class Scope:
    kind: ScopeKind
    workspace: str
    bot: str
    chat: str
    user_or_topic: str

    def __str__(self) -> str:
        parts = (self.workspace, self.bot, self.chat, self.user_or_topic)
        return ":".join((self.kind, *(quote(part, safe="") for part in parts)))

    @classmethod
    def parse(cls, text: str) -> "Scope":
        """The scope that a string names; raises `InvalidParams` with the form that is expected."""
        kind, *parts = text.split(":")
        if kind == "private" and len(parts) == 4:
            return cls("private", *map(unquote, parts))
        if kind == "shared" and len(parts) == 4:
            return cls("shared", *map(unquote, parts))
        raise InvalidParams(
            "scope: expected private:WORKSPACE:BOT:CHAT:USER or shared:WORKSPACE:BOT:GROUP:TOPIC"
        )


def owner_scope(workspace: str = MAIN_WORKSPACE) -> Scope:
    """The scope of the instance's owner at the terminal; imports go there too."""
    return Scope("private", workspace, "local", "terminal", "owner")


def owner_scopes(conn: Connection) -> list[ScopeId]:
    """The owner's scopes at the terminal, one a workspace."""
    owner = owner_scope()
    rows = conn.execute(
        "SELECT id FROM scopes WHERE (kind, bot, chat, user_or_topic) = (?, ?, ?, ?) ORDER BY id",
        (owner.kind, owner.bot, owner.chat, owner.user_or_topic),
    )
    return [ScopeId(row[0]) for row in rows]


def scopes_of_workspace(conn: Connection, workspace: str) -> list[ScopeId]:
    """Every scope of a workspace in which anything was ever stored."""
    rows = conn.execute("SELECT id FROM scopes WHERE workspace = ? ORDER BY id", (workspace,))
    return [ScopeId(row[0]) for row in rows]


def find_scope(conn: Connection, scope: Scope) -> ScopeId | None:
    row = conn.execute(
        "SELECT id FROM scopes WHERE (kind, workspace, bot, chat, user_or_topic) = (?, ?, ?, ?, ?)",
        _key(scope),
    ).fetchone()
    return None if row is None else ScopeId(row[0])


def ensure_scope(conn: Connection, scope: Scope) -> ScopeId:
    """The scope's id, made when it is new. Caller holds write."""
    found = find_scope(conn, scope)
    if found is not None:
        return found
    conn.execute(
        "INSERT INTO scopes (kind, workspace, bot, chat, user_or_topic) VALUES (?, ?, ?, ?, ?)", _key(scope)
    )
    return ScopeId(conn.last_insert_rowid())


def load_scope(conn: Connection, scope_id: ScopeId) -> Scope:
    row = conn.execute(
        "SELECT kind, workspace, bot, chat, user_or_topic FROM scopes WHERE id = ?", (scope_id,)
    ).fetchone()
    if row is None:
        raise LookupError(f"scope {scope_id}")
    return Scope(*row)


def _key(scope: Scope) -> tuple[str, str, str, str, str]:
    return scope.kind, scope.workspace, scope.bot, scope.chat, scope.user_or_topic
