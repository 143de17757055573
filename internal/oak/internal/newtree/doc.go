// Package newtree builds a tree of Oak nodes for a new store from nodes in any order. Its memory
// depends neither on their number nor on their order.
//
// A node can be written only after everything below it, and a map only in the order of its
// hashes. So the nodes go, as rows, through a sorter whose keys are paths of map keys. In that
// order each node follows what is below it, and its children come in the order of their map.
// Small contents are kept in the rows, and are written beside their nodes; large ones are written
// immediately, into bulk segments.
package newtree
