// Package catalog has what all packages about catalogues share: what is recorded of an archive and of a file.
// Package book has the catalogue itself.
package catalog
