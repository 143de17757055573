// Package databundle tests that other readers read the bundles that holdall writes. It contains
// only tests.
package databundle
