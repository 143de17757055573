//go:build race

package formattest

// thinned is how many times fewer damaged archives are tried with the race detector. It makes
// each try ten times slower, and finds nothing more in all of them than in a few.
const thinned = 10
