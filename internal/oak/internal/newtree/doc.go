// Package newtree builds a tree of Oak nodes of what is told about them in any order,
// in memory that depends on neither their number nor their order.
//
// It is for those parts of package oak that write a store which was not there before;
// it changes no tree that is there.
//
// A node can be written only when all below it is, and a map only in the order of its
// hashes. So what is told goes, as rows, through a sorter whose keys are paths of map
// keys: read in that order, each node has what is below it right behind it, and its
// children come as their map needs them. Small contents wait in the rows, and end up
// beside their nodes; large ones are written at once, into bulk segments.
package newtree
