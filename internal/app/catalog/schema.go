package catalog

// migrations bring a catalogue from one schema version to the next. The first
// creates version 1 in an empty database. Released migrations never change.
//
// A path is a BLOB, because names in archives may have any bytes. In the key
// of locations, the newest archive of a path comes first, so finding it takes
// one step in one tree. There is no index by archive, which would be as large
// as the table itself. Instead, first and last bound the paths of an archive,
// and archives packed from a sorted listing have that range almost to
// themselves.
var migrations = []string{`
CREATE TABLE archives (
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	address  BLOB NOT NULL UNIQUE,
	format   TEXT NOT NULL,
	size     INTEGER NOT NULL,
	version  BLOB NOT NULL,
	entries  INTEGER NOT NULL,
	first    BLOB NOT NULL,
	last     BLOB NOT NULL,
	added    INTEGER NOT NULL, -- microseconds since 1970
	verified INTEGER           -- the same; NULL is never
) STRICT;
CREATE TABLE locations (
	path    BLOB NOT NULL,
	archive INTEGER NOT NULL,
	kind    INTEGER NOT NULL,
	size    INTEGER NOT NULL,
	offset  INTEGER, -- NULL where the content is not one run of the archive's bytes
	length  INTEGER GENERATED ALWAYS AS (CASE WHEN offset IS NOT NULL THEN size END) VIRTUAL,
	digest  BLOB,    -- ALGORITHM:SUM
	PRIMARY KEY (path, archive DESC)
) WITHOUT ROWID, STRICT;
`, `
-- The table of catalogues before this one, which had one location for a path.
CREATE VIEW file_locations (file_path, caf_file_id) AS
SELECT CAST(path AS TEXT), CAST(archive AS TEXT) FROM locations AS l
WHERE archive = (SELECT max(archive) FROM locations WHERE path = l.path);
`, `
CREATE TABLE plans (
	id        INTEGER PRIMARY KEY AUTOINCREMENT,
	name      TEXT NOT NULL UNIQUE,
	format    TEXT NOT NULL,
	target    BLOB NOT NULL,
	settings  BLOB NOT NULL,
	created   INTEGER NOT NULL,
	cancelled INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE chunks (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	plan       INTEGER NOT NULL,
	number     INTEGER NOT NULL,
	name       BLOB NOT NULL,
	role       INTEGER NOT NULL, -- 1 is a part, 2 the last, 0 neither
	state      INTEGER NOT NULL, -- as ChunkState
	objects    INTEGER NOT NULL,
	bytes      INTEGER NOT NULL,
	first      BLOB NOT NULL,
	last       BLOB NOT NULL,
	vanished   INTEGER NOT NULL DEFAULT 0,
	changed    INTEGER NOT NULL DEFAULT 0,
	set_aside  INTEGER NOT NULL DEFAULT 0,
	attempts   INTEGER NOT NULL DEFAULT 0,
	failures   INTEGER NOT NULL DEFAULT 0,
	owner      TEXT NOT NULL DEFAULT '',
	fence      INTEGER NOT NULL DEFAULT 0,
	due        INTEGER NOT NULL DEFAULT 0, -- when it can be claimed: of a leased chunk, when its lease ends
	started    INTEGER,
	finished   INTEGER,
	bytes_done INTEGER NOT NULL DEFAULT 0,
	problem    TEXT NOT NULL DEFAULT '',
	archive    INTEGER NOT NULL DEFAULT 0,
	UNIQUE (plan, number),
	UNIQUE (plan, name)
) STRICT;
CREATE INDEX chunks_open ON chunks (id) WHERE state < 2;
-- In the order in which they are planned, so that rows go to the end of the table. What
-- becomes of most is said by their chunk, so that nothing is written twice.
CREATE TABLE members (
	chunk   INTEGER NOT NULL,
	path    BLOB NOT NULL,
	origin  INTEGER NOT NULL,
	size    INTEGER NOT NULL,
	version BLOB NOT NULL,
	outcome INTEGER, -- NULL is packed if the chunk is done, pending if it is not
	note    TEXT,
	PRIMARY KEY (chunk, path)
) WITHOUT ROWID, STRICT;
`, `
-- The chunk says what most of its members were compared with.
ALTER TABLE chunks ADD COLUMN damaged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chunks ADD COLUMN proven TEXT NOT NULL DEFAULT '';
ALTER TABLE members ADD COLUMN proof TEXT;
`, `
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
`, `
-- It distinguishes the catalogue from others, and from its own copies of an earlier time.
CREATE TABLE identity (id TEXT NOT NULL, deletions INTEGER NOT NULL, token TEXT NOT NULL) STRICT;
INSERT INTO identity VALUES (lower(hex(randomblob(16))), 0, '');
-- The listing of originals from which kind has 4096 where they were missing: microseconds since 1970.
ALTER TABLE archives ADD COLUMN listed INTEGER NOT NULL DEFAULT 0;
`}
