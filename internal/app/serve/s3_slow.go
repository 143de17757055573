package serve

import (
	"bytes"
	"encoding/xml"
	"io"
	"net/http"
	"time"
)

// patience is how long a client gets no byte. Many give up after a minute.
const patience = 10 * time.Second

// slowly runs do, which may take minutes if objects are large. Until it has
// returned, the client gets white space, as from Amazon: with the status 200,
// so the document that follows may be that of an error. do must not use c.w.
func (c *call) slowly(do func() error) error {
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() {
		close(stop)
		<-stopped
	}()
	go func() {
		defer close(stopped)
		again := time.NewTicker(patience)
		defer again.Stop()
		for {
			select {
			case <-stop:
				return
			case <-again.C:
			}
			w, begun := c.w.(early)
			if !begun {
				c.w.Header().Set("Content-Type", "application/xml")
				c.w.WriteHeader(http.StatusOK)
				io.WriteString(c.w, xml.Header)
				w = early{c.w}
				c.w = w
			}
			io.WriteString(w, " ")
			_ = http.NewResponseController(w.ResponseWriter).Flush() // what fails here is why the client is gone
		}
	}()
	return do()
}

// An early response has its status and the beginning of a document already.
type early struct{ http.ResponseWriter }

func (early) WriteHeader(int) {}

func (w early) Write(p []byte) (int, error) {
	if _, err := w.ResponseWriter.Write(bytes.TrimPrefix(p, []byte(xml.Header))); err != nil {
		return 0, err
	}
	return len(p), nil
}
