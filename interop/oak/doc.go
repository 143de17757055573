// Package oak lets the reference implementation of Apache Oak's segment store read
// what we write, and write what we read. It is tests only; nothing can be imported
// from here.
package oak
