package catalog

import (
	"embed"
	"fmt"
)

//go:embed schema
var schema embed.FS

// migrations bring a catalogue from one schema version to the next. The first
// creates version 1 in an empty database. Released migrations never change.
//
// A path is a BLOB, because names in archives may have any bytes. In the key
// of locations, the newest archive of a path comes first, so finding it takes
// one step in one tree. There is no index by archive, which would be as large
// as the table itself. Instead, first and last bound the paths of an archive,
// and archives packed from a sorted listing have that range almost to
// themselves.
var migrations = migrationsIn("sqlite")

// postgresMigrations do in PostgreSQL what migrations do in SQLite. Each runs
// in a schema that is first on the search path.
//
// An index entry holds at most 2704 bytes, and paths may have any length. So
// indexes contain the first 1024 bytes of a path, and queries that use them
// also compare the rest.
//
// The text of a path that is not UTF-8 is encoded by encode, with octal
// escapes, so no path causes an error. Nearly all paths are ASCII: for
// these, no decoding is tried. The index of texts is a hash index: texts may have
// any length, too, and it is the smallest index that can find one. Only the
// view uses it, and new catalogues do not have it.
var postgresMigrations = migrationsIn("postgres")

// migrationsIn returns the files of a folder: 1.sql, 2.sql, and so on.
func migrationsIn(database string) (all []string) {
	for n := 1; ; n++ {
		sql, err := schema.ReadFile(fmt.Sprintf("schema/%s/%d.sql", database, n))
		if err != nil {
			return all // there are no more
		}
		all = append(all, string(sql))
	}
}
