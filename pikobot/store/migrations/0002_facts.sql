-- Facts learned from sources, each with checked evidence, and the jobs that learn them.

-- A statement about a subject, once for each time it was made: its evidence belongs together, so it falls with any
-- of its sources and takes nothing of them along. The same statement made again is another row of the same identity;
-- readers show one of them with the evidence of all. What is derived is not stored: a fact is superseded when
-- superseded_by_id is set, else 'current' when explicit and 'stored' when inferred; a conflict is another standing
-- fact of the same scope, subject and attribute with another value.
CREATE TABLE facts (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    public_id        TEXT    NOT NULL UNIQUE,
    scope_id         INTEGER NOT NULL REFERENCES scopes (id),
    subject          TEXT    NOT NULL,   -- 'owner', 'assistant' or a name
    attribute        TEXT,               -- snake_case key, such as home_city
    value            TEXT,
    kind             TEXT    NOT NULL CHECK (kind IN ('fact', 'preference', 'event', 'plan', 'decision', 'relationship')),
    basis            TEXT    NOT NULL CHECK (basis IN ('inferred', 'explicit')),
    identity         BLOB    NOT NULL CHECK (length(identity) = 32),  -- keyed hash of what is stated
    event_time       TEXT,               -- ISO date, or date-time to the second
    valid_until      TEXT,               -- likewise
    superseded_by_id INTEGER REFERENCES facts (id) ON DELETE SET NULL,
    created_at_ms    INTEGER NOT NULL,
    text             TEXT    NOT NULL,
    CHECK (superseded_by_id <> id)
) STRICT;
CREATE INDEX facts_by_identity ON facts (scope_id, identity);
CREATE INDEX facts_by_attribute ON facts (scope_id, subject, attribute) WHERE attribute IS NOT NULL;
CREATE INDEX facts_of_preference ON facts (scope_id, kind, basis) WHERE kind = 'preference';
CREATE INDEX facts_by_successor ON facts (superseded_by_id) WHERE superseded_by_id IS NOT NULL;

-- A quote, as a range of UTF-8 bytes of a source's text: nothing is copied, so nothing can survive its source.
CREATE TABLE fact_evidence (
    fact_id      INTEGER NOT NULL REFERENCES facts (id) ON DELETE CASCADE,
    source_id    INTEGER NOT NULL REFERENCES sources (id),
    first_byte   INTEGER NOT NULL CHECK (first_byte >= 0),
    after_byte   INTEGER NOT NULL CHECK (after_byte > first_byte),
    content_hash BLOB    NOT NULL CHECK (length(content_hash) = 32),
    PRIMARY KEY (fact_id, source_id, first_byte, after_byte)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_evidence_by_source ON fact_evidence (source_id);

-- Sources that a fact needs to be understood ("Yes, since May" needs the question); it falls with any of them.
CREATE TABLE fact_context (
    fact_id   INTEGER NOT NULL REFERENCES facts (id) ON DELETE CASCADE,
    source_id INTEGER NOT NULL REFERENCES sources (id),
    PRIMARY KEY (fact_id, source_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_context_by_source ON fact_context (source_id);

CREATE TABLE fact_tags (
    fact_id INTEGER NOT NULL REFERENCES facts (id) ON DELETE CASCADE,
    tag     TEXT    NOT NULL CHECK (length(tag) BETWEEN 1 AND 48 AND tag NOT GLOB '*[^a-z0-9-]*'),
    PRIMARY KEY (fact_id, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_tags_by_tag ON fact_tags (tag);

-- Who or what facts are about. An entity goes with its last fact. Aliases are applied when somebody looks for a name,
-- never when a fact is stored, so that forgetting what taught one undoes all of it.
CREATE TABLE entities (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    scope_id INTEGER NOT NULL REFERENCES scopes (id),
    name     TEXT    NOT NULL,
    folded   TEXT    NOT NULL,
    UNIQUE (scope_id, folded)
) STRICT;
CREATE TABLE entity_aliases (
    entity_id INTEGER NOT NULL REFERENCES entities (id) ON DELETE CASCADE,
    folded    TEXT    NOT NULL,
    fact_id   INTEGER NOT NULL REFERENCES facts (id) ON DELETE CASCADE,  -- what taught the alias
    PRIMARY KEY (entity_id, folded, fact_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX entity_aliases_by_name ON entity_aliases (folded);
CREATE INDEX entity_aliases_by_fact ON entity_aliases (fact_id);
CREATE TABLE fact_entities (
    fact_id   INTEGER NOT NULL REFERENCES facts (id) ON DELETE CASCADE,
    entity_id INTEGER NOT NULL REFERENCES entities (id),
    PRIMARY KEY (fact_id, entity_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_entities_by_entity ON fact_entities (entity_id);

-- rowid = facts.id; contentless like sources_text, and kept with the same segmentation.
CREATE VIRTUAL TABLE facts_text USING fts5 (
    text, names, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO facts_text (facts_text, rank) VALUES ('secure-delete', 1);

-- Facts that a run has read: what its answer is explained by, so they stay with the run. Their sources are in
-- run_sources while it runs, and afterwards among the dependencies of the answer.
CREATE TABLE run_facts (
    run_id   INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    fact_id  INTEGER NOT NULL REFERENCES facts (id) ON DELETE CASCADE,
    is_given INTEGER NOT NULL CHECK (is_given IN (0, 1)),  -- shown with the request; 0: read by a tool
    PRIMARY KEY (run_id, fact_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_facts_reverse ON run_facts (fact_id);

-- One batch of sources to learn from. The lease columns are those of every leased table.
CREATE TABLE extraction_jobs (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    public_id           TEXT    NOT NULL UNIQUE,
    scope_id            INTEGER NOT NULL REFERENCES scopes (id),
    thread_id           INTEGER NOT NULL REFERENCES threads (id),
    run_id              INTEGER REFERENCES runs (id) ON DELETE SET NULL,
    created_at_ms       INTEGER NOT NULL,
    outcome             TEXT CHECK (outcome IN ('stored', 'nothing', 'unparsable', 'truncated', 'refused')),
    stored_facts        INTEGER NOT NULL DEFAULT 0,
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
CREATE INDEX extraction_jobs_unfinished ON extraction_jobs (id) WHERE state IN ('queued', 'leased');
CREATE INDEX extraction_jobs_by_state ON extraction_jobs (state, id);
CREATE INDEX extraction_jobs_by_run ON extraction_jobs (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX extraction_jobs_by_thread ON extraction_jobs (thread_id);
CREATE INDEX extraction_jobs_by_scope ON extraction_jobs (scope_id);

CREATE TABLE extraction_job_sources (
    job_id    INTEGER NOT NULL REFERENCES extraction_jobs (id) ON DELETE CASCADE,
    source_id INTEGER NOT NULL REFERENCES sources (id) ON DELETE CASCADE,
    PRIMARY KEY (job_id, source_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX extraction_job_sources_by_source ON extraction_job_sources (source_id);

-- Why candidates were not stored: a reason and how often; nothing of what they said.
CREATE TABLE extraction_rejections (
    job_id INTEGER NOT NULL REFERENCES extraction_jobs (id) ON DELETE CASCADE,
    reason TEXT    NOT NULL,
    count  INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (job_id, reason)
) STRICT, WITHOUT ROWID;

-- The job that a provider call was made for.
ALTER TABLE attempts ADD COLUMN job_id INTEGER REFERENCES extraction_jobs (id) ON DELETE SET NULL;
CREATE INDEX attempts_by_job ON attempts (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX attempts_by_purpose ON attempts (purpose, started_at_ms);
