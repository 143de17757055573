-- What buckets kept of objects, and where they were; kind has 256 where a path was deleted, and
-- 512 or 1024 where its original is about to be removed, or was.
ALTER TABLE archives ADD COLUMN roots BLOB NOT NULL DEFAULT x'';
-- Since when nothing of it is seen: microseconds since 1970; 0 is that something is.
ALTER TABLE archives ADD COLUMN dead INTEGER NOT NULL DEFAULT 0;
CREATE TABLE removals (
	id      INTEGER PRIMARY KEY,
	address BLOB NOT NULL,
	size    INTEGER NOT NULL,
	version BLOB NOT NULL
) STRICT;
ALTER TABLE locations ADD COLUMN object BLOB;
-- Of a chunk that is done, 1 says that what its archive has of its paths is packed, too: members
-- of which locations say all are none of their own.
ALTER TABLE chunks ADD COLUMN from_locations INTEGER NOT NULL DEFAULT 0;
CREATE INDEX chunks_archive ON chunks (archive) WHERE archive > 0;
CREATE TABLE headers (
	id    INTEGER PRIMARY KEY,
	value BLOB NOT NULL
) STRICT;
DROP VIEW IF EXISTS file_locations;
CREATE VIEW file_locations (file_path, caf_file_id) AS
SELECT CAST(path AS TEXT), CAST(archive AS TEXT) FROM locations AS l
WHERE kind & 256 = 0 AND archive = (SELECT max(archive) FROM locations WHERE path = l.path AND kind & 256 = 0);
