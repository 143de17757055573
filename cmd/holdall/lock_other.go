//go:build !unix

package main

// lockRepository is for systems without the locks that Oak takes: a running Oak has
// its files open, which cannot be removed there.
func lockRepository(string) (unlock func(), err error) { return func() {}, nil }
