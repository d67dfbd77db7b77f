-- A merge of FTS5 that is not finished keeps what it has read, out of reach of an erasure: only whole levels are merged.
INSERT INTO sources_text (sources_text, rank) VALUES ('automerge', 0), ('crisismerge', 4);
INSERT INTO facts_text (facts_text, rank) VALUES ('automerge', 0), ('crisismerge', 4);
-- What such merges have kept goes when the indexes are made again, as they are without this.
DELETE FROM settings WHERE key = 'segmenter';
