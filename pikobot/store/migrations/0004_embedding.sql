-- Embedding in the background. What has no vector yet is above the mark of its kind, so the queue is no second list
-- of everything: a batch has a row only while it is worked on, waits for another try, or has failed.

CREATE TABLE embedding_marks (
    set_id     INTEGER NOT NULL REFERENCES vector_sets (id) ON DELETE CASCADE,
    owner_kind TEXT    NOT NULL CHECK (owner_kind IN ('source', 'fact')),
    up_to_id   INTEGER NOT NULL,  -- rows up to this one have a vector, are in a batch, or get none
    PRIMARY KEY (set_id, owner_kind)
) STRICT, WITHOUT ROWID;

-- The lease columns are those of every leased table.
CREATE TABLE embedding_jobs (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    set_id              INTEGER NOT NULL REFERENCES vector_sets (id) ON DELETE CASCADE,
    workspace           TEXT    NOT NULL,   -- whose budget it counts against
    attempt_id          INTEGER REFERENCES attempts (id) ON DELETE SET NULL,  -- the newest provider call
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
CREATE INDEX embedding_jobs_by_set ON embedding_jobs (set_id, state, id);
CREATE INDEX embedding_jobs_by_attempt ON embedding_jobs (attempt_id) WHERE attempt_id IS NOT NULL;

CREATE TABLE embedding_job_owners (
    job_id     INTEGER NOT NULL REFERENCES embedding_jobs (id) ON DELETE CASCADE,
    owner_kind TEXT    NOT NULL CHECK (owner_kind IN ('source', 'fact')),
    owner_id   INTEGER NOT NULL,
    PRIMARY KEY (job_id, owner_kind, owner_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX embedding_job_owners_by_owner ON embedding_job_owners (owner_kind, owner_id);
