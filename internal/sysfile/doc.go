// Package sysfile has what systems do differently with files: locks, by which others can
// tell whether who made a file still lives.
package sysfile
