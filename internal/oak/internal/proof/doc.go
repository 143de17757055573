// Package proof proves that trees of nodes can be read whole: nodes, templates,
// children, and what all properties have, down to the blocks of binaries.
//
// It is for package oak; it knows no tar, no journal and no revision, only the node
// that a tree begins with. To look at one segment by itself is the business of
// segment.Segment.Check.
//
// Revisions and checkpoints share nearly all of their nodes. So a [Prover] remembers
// of each record, in two bits, whether what is below it was found whole, and goes only
// where it has not been. A tree is walked once without names, in which the properties
// are proved by several goroutines; if anything was lost, what is not known to be whole
// is walked again in the order of the tree, to say where that is. So what is said does
// not depend on who was faster.
package proof
