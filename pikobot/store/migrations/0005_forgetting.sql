-- Facts can be forgotten by their id, and what is to be forgotten can wait for the owner's word.

CREATE TABLE erasures_with_facts (
    position     INTEGER PRIMARY KEY,   -- 1, 2, 3 … without gaps
    entity       TEXT    NOT NULL CHECK (entity IN ('source', 'thread', 'fact')),
    public_id    TEXT    NOT NULL UNIQUE,
    identity     BLOB,                  -- sources.identity or facts.identity of the erased row: it does not come back
    erased_at_ms INTEGER NOT NULL,
    hash         BLOB    NOT NULL CHECK (length(hash) = 32)
) STRICT;
INSERT INTO erasures_with_facts SELECT position, entity, public_id, identity, erased_at_ms, hash FROM erasures;
DROP TABLE erasures;
ALTER TABLE erasures_with_facts RENAME TO erasures;
CREATE INDEX erasures_by_identity ON erasures (identity) WHERE identity IS NOT NULL;

-- What a run has proposed to forget because its request asks for it: ids alone. Only the owner's next message can
-- confirm it, with the token of what was shown; any other message drops it.
CREATE TABLE forget_proposals (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id        INTEGER NOT NULL UNIQUE REFERENCES runs (id) ON DELETE CASCADE,
    token         TEXT,                 -- NULL: not shown yet
    created_at_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE forget_proposal_sources (
    proposal_id INTEGER NOT NULL REFERENCES forget_proposals (id) ON DELETE CASCADE,
    source_id   INTEGER NOT NULL REFERENCES sources (id) ON DELETE CASCADE,
    PRIMARY KEY (proposal_id, source_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX forget_proposal_sources_by_source ON forget_proposal_sources (source_id);
CREATE TABLE forget_proposal_facts (
    proposal_id INTEGER NOT NULL REFERENCES forget_proposals (id) ON DELETE CASCADE,
    fact_id     INTEGER NOT NULL REFERENCES facts (id) ON DELETE CASCADE,
    PRIMARY KEY (proposal_id, fact_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX forget_proposal_facts_by_fact ON forget_proposal_facts (fact_id);
