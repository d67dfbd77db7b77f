-- The first schema: scopes, threads, sources with their text index and media, runs, attempts, erasures.
-- Times are milliseconds since the epoch, UTC. Public ids are random and never reused, because
-- tombstones name them; integer ids never leave the database.

CREATE TABLE settings (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Who may read. 'private' belongs to one user of one chat, 'shared' to the members of a group topic.
CREATE TABLE scopes (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    kind          TEXT NOT NULL CHECK (kind IN ('private', 'shared')),
    workspace     TEXT NOT NULL,
    bot           TEXT NOT NULL,
    chat          TEXT NOT NULL,
    user_or_topic TEXT NOT NULL,  -- the user of a private scope, the topic of a shared one
    UNIQUE (kind, workspace, bot, chat, user_or_topic)
) STRICT;

CREATE TABLE threads (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    public_id     TEXT    NOT NULL UNIQUE,
    scope_id      INTEGER NOT NULL REFERENCES scopes (id),
    key           TEXT,             -- how a channel finds the thread again; NULL: only by its id
    created_at_ms INTEGER NOT NULL,
    UNIQUE (scope_id, key)
) STRICT;
CREATE INDEX threads_by_scope ON threads (scope_id);

-- One retained piece of evidence each. The text index is made from text and speaker, see sources_text.
CREATE TABLE sources (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    public_id      TEXT    NOT NULL UNIQUE,
    kind           TEXT    NOT NULL CHECK (kind IN ('message', 'document', 'attachment')),
    role           TEXT    NOT NULL CHECK (role IN ('user', 'assistant', 'participant')),
    speaker        TEXT    NOT NULL,
    scope_id       INTEGER NOT NULL REFERENCES scopes (id),
    thread_id      INTEGER NOT NULL REFERENCES threads (id),
    run_id         INTEGER REFERENCES runs (id),
    external_id    TEXT,
    identity       BLOB UNIQUE,     -- keyed hash that recognises the same record on a second import
    content_hash   BLOB    NOT NULL CHECK (length(content_hash) = 32),
    origin         TEXT    NOT NULL CHECK (origin IN ('said', 'model', 'recall', 'imported')),
    is_partial     INTEGER NOT NULL DEFAULT 0 CHECK (is_partial IN (0, 1)),
    said_at_ms     INTEGER NOT NULL,
    utc_offset_min INTEGER NOT NULL DEFAULT 0,
    created_at_ms  INTEGER NOT NULL,
    expires_at_ms  INTEGER,
    text           TEXT    NOT NULL -- last: a filter on the columns before it never walks a long text
) STRICT;
CREATE INDEX sources_by_thread ON sources (thread_id, said_at_ms, id, expires_at_ms);
CREATE INDEX sources_by_scope_time ON sources (scope_id, said_at_ms, id);
-- A run has at most one request and one answer, whatever crashes.
CREATE UNIQUE INDEX sources_by_run ON sources (run_id, role) WHERE run_id IS NOT NULL AND kind = 'message';
-- Also what SQLite looks in when a run is deleted.
CREATE INDEX sources_of_run ON sources (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX sources_by_expiry ON sources (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
CREATE INDEX sources_by_external_id ON sources (external_id) WHERE external_id IS NOT NULL;

-- rowid = sources.id. Contentless: a row is deleted with the identical segmented text (settings: segmenter).
CREATE VIRTUAL TABLE sources_text USING fts5 (
    text, speaker, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO sources_text (sources_text, rank) VALUES ('secure-delete', 1);

-- What an answer was made from. An answer depends on its request, on what it read with tools, and on the
-- conversation since the answer before it, that one included: older context follows by transitivity.
CREATE TABLE source_dependencies (
    source_id     INTEGER NOT NULL REFERENCES sources (id) ON DELETE CASCADE,
    depends_on_id INTEGER NOT NULL REFERENCES sources (id),
    PRIMARY KEY (source_id, depends_on_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX source_dependencies_reverse ON source_dependencies (depends_on_id);

CREATE TABLE media (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    public_id  TEXT    NOT NULL UNIQUE,
    source_id  INTEGER NOT NULL REFERENCES sources (id) ON DELETE CASCADE,
    media_type TEXT    NOT NULL,
    name       TEXT,
    sha256     BLOB    NOT NULL CHECK (length(sha256) = 32),
    data       BLOB    NOT NULL
) STRICT;
CREATE INDEX media_by_source ON media (source_id);

-- One request and its answer. The lease columns (state … finished_at_ms) are the same in every leased table.
CREATE TABLE runs (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    public_id           TEXT    NOT NULL UNIQUE,
    thread_id           INTEGER NOT NULL REFERENCES threads (id),
    is_standalone       INTEGER NOT NULL CHECK (is_standalone IN (0, 1)),  -- context is the request alone
    model               TEXT,       -- NULL: answered in recall mode
    created_at_ms       INTEGER NOT NULL,
    state               TEXT    NOT NULL CHECK (state IN ('queued', 'leased', 'succeeded', 'failed', 'cancelled', 'unknown')),
    not_before_ms       INTEGER NOT NULL DEFAULT 0,
    lease_token         TEXT,
    lease_expires_at_ms INTEGER,
    claims              INTEGER NOT NULL DEFAULT 0,
    error_code          TEXT,
    finished_at_ms      INTEGER,
    CHECK ((state = 'leased') = (lease_token IS NOT NULL)),
    CHECK ((state = 'leased') = (lease_expires_at_ms IS NOT NULL))
) STRICT;
CREATE INDEX runs_unfinished ON runs (thread_id, id) WHERE state IN ('queued', 'leased');
CREATE INDEX runs_by_thread ON runs (thread_id, id);
CREATE INDEX runs_by_state ON runs (state);

-- The messages of a run's tool rounds, kept while it runs so that a crash repeats no finished call.
CREATE TABLE run_transcript (
    run_id   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    message  TEXT    NOT NULL,
    PRIMARY KEY (run_id, position)
) STRICT, WITHOUT ROWID;

-- Sources that a run's tools have read: its citation set, and later dependencies of its answer.
CREATE TABLE run_sources (
    run_id    INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    source_id INTEGER NOT NULL REFERENCES sources (id) ON DELETE CASCADE,
    PRIMARY KEY (run_id, source_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_sources_reverse ON run_sources (source_id);

-- One provider call each, recorded before it is made. 'unknown' keeps its reservation: it may have charged.
CREATE TABLE attempts (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id              INTEGER REFERENCES runs (id) ON DELETE SET NULL,
    workspace           TEXT    NOT NULL,
    purpose             TEXT    NOT NULL,
    model               TEXT    NOT NULL,
    state               TEXT    NOT NULL CHECK (state IN ('started', 'succeeded', 'failed', 'unknown')),
    reserved_microusd   INTEGER NOT NULL CHECK (reserved_microusd >= 0),
    cost_microusd       INTEGER CHECK (cost_microusd >= 0),
    input_tokens        INTEGER,
    cached_input_tokens INTEGER,
    output_tokens       INTEGER,
    error_code          TEXT,
    started_at_ms       INTEGER NOT NULL,
    finished_at_ms      INTEGER,
    CHECK ((state = 'started') = (finished_at_ms IS NULL)),
    CHECK ((state = 'succeeded') = (cost_microusd IS NOT NULL))
) STRICT;
CREATE INDEX attempts_by_run ON attempts (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX attempts_started ON attempts (run_id) WHERE state = 'started';
-- Covers the sum that is taken before every call.
CREATE INDEX attempts_by_workspace_time
    ON attempts (workspace, started_at_ms, state, cost_microusd, reserved_microusd);

-- The erasure ledger, hash-chained; erasures.jsonl is its copy outside the database. Ids only, no content.
CREATE TABLE erasures (
    position     INTEGER PRIMARY KEY,   -- 1, 2, 3 … without gaps
    entity       TEXT    NOT NULL CHECK (entity IN ('source', 'thread')),
    public_id    TEXT    NOT NULL UNIQUE,
    identity     BLOB,                  -- sources.identity of the erased row: a second import stays out
    erased_at_ms INTEGER NOT NULL,
    hash         BLOB    NOT NULL CHECK (length(hash) = 32)
) STRICT;
CREATE INDEX erasures_by_identity ON erasures (identity) WHERE identity IS NOT NULL;
