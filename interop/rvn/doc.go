// Package rvn lets readers other than ours read the packages that we write. It is
// tests only; nothing can be imported from here.
package rvn
