//go:build race

package formattest

// thinned is how many times fewer damaged archives are tried under the race
// detector, which makes each ten times slower and finds nothing in them that it
// would not find in a few.
const thinned = 10
