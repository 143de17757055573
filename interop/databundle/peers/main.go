// Command peers prints all rows that goleveldb reads in a directory, one on each line: key and
// value as hexadecimal digits. It is for tests of what other programs read in holdall's indexes.
// It is a module of its own, so that nothing else depends on goleveldb.
//
//	peers DIR
//
// It opens DIR read-only. To be safe, give it a copy.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: peers DIR")
		os.Exit(2)
	}
	if err := printRows(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func printRows(dir string) (err error) {
	db, err := leveldb.OpenFile(dir, &opt.Options{ReadOnly: true, ErrorIfMissing: true, Strict: opt.StrictAll})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows := db.NewIterator(nil, nil)
	defer rows.Release()
	w := bufio.NewWriter(os.Stdout)
	for rows.Next() {
		fmt.Fprintf(w, "%x %x\n", rows.Key(), rows.Value())
	}
	return errors.Join(rows.Error(), w.Flush())
}
