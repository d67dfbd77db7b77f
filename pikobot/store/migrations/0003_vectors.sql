-- Vectors for exact semantic recall. The truth is one row a vector (vectors, vector_values); the int8 blocks
-- are derived from it in the same transaction and can be made again at any time.

-- One set for each profile; sets are never mixed. A new profile builds beside the one that serves.
CREATE TABLE vector_sets (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    state         TEXT    NOT NULL CHECK (state IN ('building', 'serving', 'retired')),
    provider      TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    dimension     INTEGER NOT NULL CHECK (dimension BETWEEN 1 AND 16384),
    prefix_rule   TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX vector_sets_current ON vector_sets (state) WHERE state IN ('building', 'serving');

-- What is subtracted before quantising. A block keeps the mean that it was made with.
CREATE TABLE vector_means (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    set_id  INTEGER NOT NULL REFERENCES vector_sets (id),
    vectors INTEGER NOT NULL,         -- how many the set held when the mean was made
    mean    BLOB    NOT NULL          -- float32, one a dimension
) STRICT;
CREATE INDEX vector_means_by_set ON vector_means (set_id);

-- A block holds vectors of one set, kind and scope: what may not be read is not even loaded.
CREATE TABLE vector_blocks (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    set_id     INTEGER NOT NULL REFERENCES vector_sets (id),
    owner_kind TEXT    NOT NULL CHECK (owner_kind IN ('source', 'fact', 'document', 'conversation')),
    scope_id   INTEGER NOT NULL REFERENCES scopes (id),
    mean_id    INTEGER REFERENCES vector_means (id),  -- NULL: nothing is subtracted
    capacity   INTEGER NOT NULL CHECK (capacity > 0),
    used       INTEGER NOT NULL DEFAULT 0,            -- slots at or after this one were never filled
    live       INTEGER NOT NULL DEFAULT 0,
    CHECK (0 <= live AND live <= used AND used <= capacity)
) STRICT;
CREATE INDEX vector_blocks_by_scope ON vector_blocks (set_id, owner_kind, scope_id);
CREATE INDEX vector_blocks_by_mean ON vector_blocks (mean_id);

CREATE TABLE vector_block_data (
    block_id INTEGER PRIMARY KEY REFERENCES vector_blocks (id) ON DELETE CASCADE,
    data     BLOB NOT NULL            -- pikobot/store/vectors/layout.py describes it
) STRICT;

CREATE TABLE vectors (
    id         INTEGER PRIMARY KEY,
    set_id     INTEGER NOT NULL REFERENCES vector_sets (id),
    owner_kind TEXT    NOT NULL CHECK (owner_kind IN ('source', 'fact', 'document', 'conversation')),
    owner_id   INTEGER NOT NULL,
    scope_id   INTEGER NOT NULL REFERENCES scopes (id),
    at_ms      INTEGER NOT NULL,      -- the owner's time
    block_id   INTEGER NOT NULL REFERENCES vector_blocks (id),
    slot       INTEGER NOT NULL,
    UNIQUE (set_id, owner_kind, owner_id),
    UNIQUE (block_id, slot)
) STRICT;
CREATE INDEX vectors_by_owner ON vectors (owner_kind, owner_id);

CREATE TABLE vector_values (
    vector_id INTEGER PRIMARY KEY REFERENCES vectors (id) ON DELETE CASCADE,
    unit      BLOB NOT NULL CHECK (length(unit) % 4 = 0)  -- float32, L2-normalised
) STRICT;
