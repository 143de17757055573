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
