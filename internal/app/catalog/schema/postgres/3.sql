-- What buckets kept of objects, and where they were; kind has 256 where a path was deleted, and
-- 512 or 1024 where its original is about to be removed, or was.
ALTER TABLE archives ADD COLUMN roots bytea NOT NULL DEFAULT '';
-- Since when nothing of it is seen: microseconds since 1970; 0 is that something is.
ALTER TABLE archives ADD COLUMN dead bigint NOT NULL DEFAULT 0;
CREATE TABLE removals (
	id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	address bytea NOT NULL,
	size    bigint NOT NULL,
	version bytea NOT NULL
);
ALTER TABLE locations ADD COLUMN object bytea;
-- Of a chunk that is done, 1 says that what its archive has of its paths is packed, too: members
-- of which locations say all are none of their own.
ALTER TABLE chunks ADD COLUMN from_locations smallint NOT NULL DEFAULT 0;
CREATE INDEX chunks_archive ON chunks (archive) WHERE archive > 0;
-- The ETag in what a bucket kept that is no MD5: after a time, its part of a second, and 8 bytes,
-- where these are.
CREATE OR REPLACE FUNCTION object_etag(object bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
	has integer := pg_catalog.get_byte(object, 0);
	at  integer := 1;
BEGIN
	IF has & 16 = 0 THEN
		RETURN '';
	END IF;
	FOR varints IN 1 .. (has & 1) + (has & 2) / 2 LOOP
		WHILE pg_catalog.get_byte(object, at) >= 128 LOOP
			at := at + 1;
		END LOOP;
		at := at + 1;
	END LOOP;
	RETURN pg_catalog.substr(object, at + 1 + (has & 4) * 2);
END $$;
CREATE TABLE headers (
	id    bigint PRIMARY KEY,
	value bytea NOT NULL
);
-- An index of texts costs more than it is worth to most: a catalogue that has rows keeps it.
DO $$ BEGIN
	IF NOT EXISTS (SELECT 1 FROM locations) THEN
		DROP INDEX IF EXISTS locations_text;
	END IF;
END $$;
CREATE OR REPLACE VIEW file_locations (file_path, caf_file_id) AS
SELECT path_text(path), archive::text FROM locations AS l
WHERE kind & 256 = 0 AND NOT EXISTS (SELECT 1 FROM locations AS n
	WHERE substring(n.path, 1, 1024) = substring(l.path, 1, 1024) AND n.path = l.path AND n.archive > l.archive AND n.kind & 256 = 0);
