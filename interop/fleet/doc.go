// Package fleet tests packing with many workers under failures, with servers of others. It
// contains only tests.
package fleet
