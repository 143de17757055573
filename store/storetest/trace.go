package storetest

import (
	"fmt"
	"io"
	"sync"

	"github.com/holdall/holdall/store"
)

// Trace returns a store that writes one line to w for each request to an
// object of st, before it is made:
//
//	read NAME at OFF+LEN
//	head NAME LEN
//	tail NAME LEN
//	info NAME
//
// Lines of parallel requests are never mixed. The store can do what st can do;
// what it creates, lists, removes and amends is not traced. Compared with a golden
// file, the lines show every request that a change adds.
func Trace(st store.Store, w io.Writer) store.Store {
	var mu sync.Mutex
	line := func(format string, args ...any) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := fmt.Fprintf(w, format+"\n", args...)
		return err
	}
	t := newFaulty(st, func(op, name string, off, n int64) error {
		switch op {
		case "info":
			return line("info %s", name)
		case "read":
			return line("read %s at %d+%d", name, off, n)
		case "head", "tail":
			return line("%s %s %d", op, name, n)
		}
		return nil
	})
	below := st.Can()
	t.can.Create, t.can.Amend = below.Create, below.Amend
	return t
}
