// Package rvn tests that other readers read the packages that holdall writes. It contains only
// tests.
package rvn
