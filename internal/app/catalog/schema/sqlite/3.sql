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
