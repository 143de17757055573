// Package oak is the segment store of Apache Oak, the content repository below AEM:
// tars of segments, of at most 256 KiB each, that refer to each other.
//
// It is for the engine, and for the command's own verbs about such stores; programs
// open stores with package holdall.
//
// A store is a folder:
//
//	data00000a.tar …  segments, written one after the other, with an index at the end
//	journal.log       revisions of the root, the newest last
//	manifest          the version of the store
//	gc.log            collections of garbage
//
// A tar has a number, which grows, and a letter, which grows when a cleanup writes it
// anew without its garbage. Of letters of one number the last whose index is sound
// counts. A tar whose writer was killed has no index: it is scanned, and never
// written for that.
//
// The code goes by these things: repository.go opens tars, live.go sees to it that they are
// of one moment though another program writes to them, and reader.go shows their segments
// as entries. The tree of nodes is another view: tree_open.go chooses a revision,
// tree.go walks, tree_find.go goes to a path, tree_names.go makes paths of names,
// tree_value.go contents of values; tree_files.go shows what are files in it as files,
// tree_lucene.go those of indexes. search.go and where.go look for nodes, indexes.go for
// definitions of indexes, datastore.go for what lies in a data store. regions.go has what is
// no content in any view. export.go writes nodes as JSON; changes.go and history.go compare
// revisions, watch.go those that come, refs.go, blobs.go and sizes.go say what takes room.
// revise.go writes a new revision of a stopped store, for checkpoints.go, surgery.go and
// fix.go; backup.go copies what is new, copy.go and cloud.go are for stores whose segments
// are objects of their own. verify.go, repair.go and cleanup.go put the closets to work,
// inspect.go is for looking at single segments and records. What the bytes mean is in
// closets: tarfile, segment, repo (journal and such), cloud (segments as objects), nodejson,
// audit (what is wrong), rescue (what can be saved), sweep (what is garbage).
package oak
