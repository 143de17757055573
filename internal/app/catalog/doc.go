// Package catalog keeps a database of which archive contains which file, and where, so that a
// file among millions is found by one lookup and read by one request. It also records which
// archives are still to be packed, from which objects, and by which worker. The package stores
// what it is given and opens no archives. Programs with a single archive do not need it, because
// an archive has its own index.
package catalog
