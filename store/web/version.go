package web

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/holdall/holdall/store"
)

// version identifies the version of an object that was read first. What the server does not state
// is empty or -1.
type version struct {
	mu      sync.Mutex
	size    int64
	etag    string // a strong ETag; a weak one does not identify the bytes
	lastMod string

	// mixed is set if only some responses had an ETag. Different servers then respond for one
	// name, and those without ETags would fail If-Match.
	mixed    bool
	answered bool

	// grows means that programs only append to the object. A longer version begins with the same
	// bytes, whatever its ETag.
	grows bool
}

// agree adds what a response states, or fails with store.ErrChanged if the response is for
// another version. If bytes is false, the response has no data, and its ETag or date may be that
// of an error page.
func (v *version) agree(size int64, h http.Header, bytes bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.grows && v.size >= 0 && size >= v.size {
		return nil
	}
	if v.size >= 0 && size >= 0 && size != v.size {
		return fmt.Errorf("size was %d, is %d: %w", v.size, size, store.ErrChanged)
	}
	if bytes {
		etag, lastMod := h.Get("ETag"), h.Get("Last-Modified")
		if strings.HasPrefix(etag, "W/") {
			etag = ""
		}
		switch {
		case etag != "" && v.etag != "":
			if etag != v.etag {
				return fmt.Errorf("ETag was %.100s, is %.100s: %w", v.etag, etag, store.ErrChanged)
			}
		case lastMod != "" && v.lastMod != "" && lastMod != v.lastMod:
			return fmt.Errorf("Last-Modified was %.50s, is %.50s: %w", v.lastMod, lastMod, store.ErrChanged)
		}
		if v.answered && (etag == "") != (v.etag == "") {
			v.mixed = true
		}
		v.answered = true
		if v.etag == "" {
			v.etag = etag
		}
		if v.lastMod == "" {
			v.lastMod = lastMod
		}
	}
	if size >= 0 {
		v.size = size
	}
	return nil
}

func (v *version) known() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.size
}

// condition returns the header that makes a server refuse to send another version. If-Range would
// not work: the server would then send the whole other version.
func (v *version) condition() (key, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.grows:
	case v.etag != "" && !v.mixed:
		return "If-Match", v.etag
	case v.lastMod != "":
		return "If-Unmodified-Since", v.lastMod
	}
	return "", ""
}

// info describes the version. Without an ETag, Version is the date and size, which change with
// the bytes as far as the server shows.
func (v *version) info(name string) store.Info {
	v.mu.Lock()
	defer v.mu.Unlock()
	info := store.Info{Name: name, Size: v.size, Version: v.etag}
	if v.etag == "" && v.lastMod != "" {
		info.Version = fmt.Sprintf("%s; %d bytes", v.lastMod, v.size)
	}
	if t, err := http.ParseTime(v.lastMod); err == nil {
		info.ModTime = t
	}
	return info
}
