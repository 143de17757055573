-- It distinguishes the catalogue from others, and from its own copies of an earlier time.
CREATE TABLE identity (id text NOT NULL, deletions bigint NOT NULL, token text NOT NULL);
INSERT INTO identity VALUES (replace(gen_random_uuid()::text, '-', ''), 0, '');
-- The listing of originals from which kind has 4096 where they were missing: microseconds since 1970.
ALTER TABLE archives ADD COLUMN listed bigint NOT NULL DEFAULT 0;
