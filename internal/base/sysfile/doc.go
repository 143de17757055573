// Package sysfile has operations on files that differ between systems, such as locks that show
// whether the writer of a file is still running.
package sysfile
