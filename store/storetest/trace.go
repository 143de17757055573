package storetest

import (
	"fmt"
	"io"
	"sync"

	"github.com/holdall/holdall/store"
)

// Trace returns a store that writes one line to w for each request to an object of st, before it
// is made:
//
//	read NAME at OFF+LEN
//	head NAME LEN
//	tail NAME LEN
//	info NAME
//
// Lines of concurrent requests are never mixed. The store has the abilities of st; creating,
// listing, removing and amending are not traced. Compared with a golden file, the lines show each
// request that a change adds.
func Trace(st store.Store, w io.Writer) store.Store {
	var mu sync.Mutex
	t := newHooked(st, func(r request, act func(n int64) error) error {
		line := ""
		switch r.op {
		case "info":
			line = "info " + r.name
		case "read":
			line = fmt.Sprintf("read %s at %d+%d", r.name, r.off, r.n)
		case "head", "tail":
			line = fmt.Sprintf("%s %s %d", r.op, r.name, r.n)
		default:
			return act(r.n)
		}
		mu.Lock()
		_, err := fmt.Fprintln(w, line)
		mu.Unlock()
		if err != nil {
			return err
		}
		return act(r.n)
	})
	below := st.Can()
	t.can.Create, t.can.Amend = below.Create, below.Amend
	return t
}
