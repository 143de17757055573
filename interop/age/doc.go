// Package age compares what holdall stores with age: in front of an address with the command age: each
// decrypts what the other has encrypted. It contains only tests.
package age
