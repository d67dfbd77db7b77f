"""Facts about the database itself: one text value a key, never shown to a model."""

from pikobot.store.connection import Connection

INSTANCE_ID = "instance_id"
IDENTITY_KEY = "identity_key"  # keys the hashes that recognise a record on a second import
SEGMENTER = "segmenter"
TOLD_MODE = "told_mode"  # in which mode, with a model or recall, the owner was last told to be


def read_setting(conn: Connection, key: str) -> str | None:
    row = conn.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def delete_setting(conn: Connection, key: str) -> None:
    """Caller holds write."""
    conn.execute("DELETE FROM settings WHERE key = ?", (key,))


def write_setting(conn: Connection, key: str, value: str) -> None:
    """Caller holds write."""
    conn.execute(
        "INSERT INTO settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )
