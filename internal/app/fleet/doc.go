// Package fleet packs sources of any size into many archives, with any number of workers that may
// be killed at any time. For a single archive, use package holdall.
//
// A plan is a list of the source's objects, divided into chunks, in the catalogue's database. A
// worker claims a chunk and packs its objects into one archive. Then it records the archive, its
// contents and the end of the chunk in a single transaction. Only this transaction makes the
// archive valid, and it succeeds only for the newest claim of the chunk.
//
// A claim expires unless it is renewed. If a worker dies, another one can claim its chunk.
// Archives are created once and never replaced. If the archive of an earlier claim exists
// already, the worker checks whether it contains the chunk's objects, and records it.
package fleet
