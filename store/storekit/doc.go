// Package storekit is for programs that use stores and for programs that implement one. Stores have
// different abilities: a function of this package uses the ability that a store, an object or a
// writer has for it, or else another way. If there is none, it returns an error that wraps
// [errors.ErrUnsupported].
package storekit
