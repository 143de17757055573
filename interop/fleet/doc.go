// Package fleet has no code of its own: its test tortures the command that packs with
// many workers, on servers of others.
package fleet
