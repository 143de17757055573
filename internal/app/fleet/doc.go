// Package fleet packs sources of any size into many archives, with any number of workers that may
// be killed at any time. For a single archive, use package holdall.
//
// The catalogue is the only truth. A plan lists the sources, and cuts what the catalogue does not
// have into chunks. Each has a list of its objects in the folder of the catalogue, and is a job of
// the queue, which knows nothing that cannot be planned again. A worker packs the objects of a chunk
// into one archive. Only the commit that records it makes the archive valid. It names the job, so a
// job that is done twice is recorded once.
//
// Archives are created once and never replaced. If the archive of an earlier try exists already, the
// worker checks whether it contains the chunk's objects, and records it. Whatever deletes an
// original or an archive does so after a commit that says so.
package fleet
