package web

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdall/holdall/store/internal/far"
)

// contentRange is a parsed Content-Range header.
type contentRange struct {
	first, last int64 // of the bytes in the body; 0 and -1 if it is empty, -1 and -1 if there is none
	size        int64 // of the object; -1 if it is not known
}

// parseContentRange parses "bytes FIRST-LAST/SIZE", where SIZE may be "*", and "bytes */SIZE".
// Some servers return "bytes 0--1/0" for an empty object. For a range that begins at the end,
// some return "bytes SIZE-LAST/SIZE", where LAST is the byte before SIZE.
func parseContentRange(s string) (contentRange, error) {
	malformed := func() (contentRange, error) {
		const most = 100
		return contentRange{}, fmt.Errorf("malformed Content-Range %.*q", most, s)
	}
	unit, rest, ok := strings.Cut(strings.TrimSpace(s), " ")
	span, total, ok2 := strings.Cut(strings.TrimSpace(rest), "/")
	if !ok || !ok2 || !strings.EqualFold(unit, "bytes") {
		return malformed()
	}
	cr := contentRange{first: -1, last: -1, size: -1}
	if total != "*" {
		if cr.size, ok = parseCount(total); !ok {
			return malformed()
		}
	}
	switch span {
	case "*":
		if cr.size < 0 {
			return malformed()
		}
		return cr, nil
	case "0--1":
		if cr.size != 0 {
			return malformed()
		}
		return contentRange{first: 0, last: -1, size: 0}, nil
	}
	first, last, ok := strings.Cut(span, "-")
	if !ok {
		return malformed()
	}
	cr.first, ok = parseCount(first)
	cr.last, ok2 = parseCount(last)
	if ok && ok2 && cr.first == cr.size && cr.last == cr.first-1 {
		return cr, nil
	}
	if !ok || !ok2 || cr.last < cr.first || cr.size >= 0 && cr.last >= cr.size {
		return malformed()
	}
	return cr, nil
}

// parseCount parses a decimal number. Unlike strconv it accepts no sign. It refuses the largest
// number, because 1 could not be added to it.
func parseCount(s string) (int64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n < 1<<63-1
}

// part describes the body of a response with status 200 or 206.
type part struct {
	off, n int64 // n is -1 if it is not known how much comes of the whole object
	size   int64 // of the object; -1 if it is not known
	whole  bool  // the status is 200
}

// parsePart checks the header of a response with status 200 or 206. The body must be a single run
// of the object's own bytes; parsePart returns which.
func (st *Store) parsePart(resp *http.Response) (part, error) {
	h := resp.Header
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") && st.heads == nil {
		return part{}, fmt.Errorf("expected the object's own bytes, found Content-Encoding %.50q", e)
	}
	if resp.StatusCode == http.StatusOK {
		return part{n: resp.ContentLength, size: resp.ContentLength, whole: true}, nil
	}
	if mt, _, _ := mime.ParseMediaType(h.Get("Content-Type")); mt == "multipart/byteranges" {
		return part{}, errors.New("expected one range, found multipart/byteranges")
	}
	if h.Get("Content-Range") == "" {
		return part{}, errors.New("206 without a Content-Range")
	}
	cr, err := parseContentRange(h.Get("Content-Range"))
	if err != nil {
		return part{}, err
	}
	if cr.first < 0 {
		return part{}, fmt.Errorf("206 with Content-Range %.100q", h.Get("Content-Range"))
	}
	p := part{off: cr.first, n: cr.last - cr.first + 1, size: cr.size}
	if resp.ContentLength >= 0 && resp.ContentLength != p.n {
		err := fmt.Errorf("Content-Range of %d bytes, Content-Length of %d", p.n, resp.ContentLength)
		if resp.ContentLength < p.n { // the body was truncated on the way
			err = &far.Passing{Err: err}
		}
		return part{}, err
	}
	return p, nil
}

// unsatisfiedSize returns the object's size according to a response with status 416, or -1 if it
// is not stated.
func unsatisfiedSize(resp *http.Response) int64 {
	cr, err := parseContentRange(resp.Header.Get("Content-Range"))
	if err != nil || cr.first >= 0 {
		return -1
	}
	return cr.size
}

// readBody reads exactly len(p) bytes from the body, and returns the number of bytes that
// arrived.
func readBody(resp *http.Response, p []byte) (int, error) {
	n, err := io.ReadFull(resp.Body, p)
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			// This is not the end of the object, and callers must not take it for that.
			err = errors.New("connection closed")
		}
		return n, &far.Passing{Err: fmt.Errorf("body broke off after %d of %d bytes: %w", n, len(p), err)}
	}
	// Reading to the end releases the connection for the next request, and shows whether the body
	// is too long. If the end does not arrive, all requested bytes are there nevertheless.
	var more [1]byte
	if k, _ := io.ReadFull(resp.Body, more[:]); k > 0 {
		return 0, fmt.Errorf("body goes on after the %d bytes announced", len(p))
	}
	return n, nil
}
