-- It distinguishes the catalogue from others, and from its own copies of an earlier time.
CREATE TABLE identity (id TEXT NOT NULL, deletions INTEGER NOT NULL, token TEXT NOT NULL) STRICT;
INSERT INTO identity VALUES (lower(hex(randomblob(16))), 0, '');
-- The listing of originals from which kind has 4096 where they were missing: microseconds since 1970.
ALTER TABLE archives ADD COLUMN listed INTEGER NOT NULL DEFAULT 0;
