-- What a scan keeps in memory of a block is good as long as the block has the same revision.
ALTER TABLE vector_blocks ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;  -- random, new with every change of the data
UPDATE vector_blocks SET revision = random();
