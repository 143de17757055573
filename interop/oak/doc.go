// Package oak tests that the reference implementation of Apache Oak's segment store reads what
// holdall writes, and the reverse. It contains only tests.
package oak
