// Package book keeps a catalogue in a folder of a store, without a database: beside the archives on
// a disk, or in their bucket.
//
//	commits/0000000000000042   what changed. It is created once: who creates it has committed
//	states/0000000000000032    everything after commit 32. It can be made again from the commits
//	head                       a state, or its number: a hint, which may be old
//	signed/BLAKE3              a state that was signed, whose signature is beside the catalogue
//	runs/41-RANDOM             rows: what is known of files. See package rows
//
// Beside the catalogue and its archives lies what makes it again, and what tells an older copy: see Record.
//
// A reader takes the head, and applies the commits after it until there is none. Nothing but the head
// is ever written twice. docs/bytes/catalog.md describes the bytes.
package book
