// Package detect reads what the formats recognise an archive by.
package detect
