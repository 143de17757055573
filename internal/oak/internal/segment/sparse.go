package segment

import "sync"

// A sparse segment has its header and tables in memory, and only those bytes of the records that
// were needed. Following a path needs little of each segment.
type sparse struct {
	load func(off, n int) ([]byte, error)

	mu    sync.Mutex
	pages [MaxSize / pageLen][]byte
	n     int // pages
}

const (
	pageLen = 4 << 10
	// headLen is how many bytes are read first. Most tables are shorter.
	headLen = 16 << 10
)

// ParseSparse is [Parse] for a segment that is read in pieces, as its records are needed: load
// returns n bytes from off. The records of such a segment can only be read with the methods of
// nodes, maps, lists, templates and values.
func ParseSparse(id ID, size int, load func(off, n int) ([]byte, error)) (*Segment, error) {
	head, err := load(0, min(size, headLen))
	if err != nil {
		return nil, err
	}
	if size <= headLen {
		return Parse(id, head)
	}
	s := &Segment{id: id, b: head, size: size, sparse: &sparse{load: load}}
	if err := s.header(); err != nil {
		return nil, err
	}
	if end := s.table + rowLen*s.records; end > len(s.b) {
		rest, err := load(len(s.b), end-len(s.b))
		if err != nil {
			return nil, err
		}
		s.b = append(s.b[:len(s.b):len(s.b)], rest...)
	}
	s.rows()
	return s, nil
}

// Held returns how many bytes of the segment are in memory.
func (s *Segment) Held() int {
	if s.sparse == nil {
		return s.size
	}
	s.sparse.mu.Lock()
	defer s.sparse.mu.Unlock()
	return len(s.b) + pageLen*s.sparse.n
}

// from returns Record.data of a record.
func (s *Segment) from(pos int) []byte {
	if s.sparse != nil {
		return nil
	}
	return s.b[pos:]
}

// Slice returns n bytes from off, which are in the segment.
func (s *Segment) Slice(off, n int) ([]byte, error) {
	if off+n <= len(s.b) {
		return s.b[off:][:n], nil
	}
	if err := s.sparse.cover(off, n, s.size); err != nil {
		return nil, err
	}
	return s.sparse.at(off, n), nil
}

// cover reads the pages that have n bytes from off.
func (p *sparse) cover(off, n, size int) error {
	if n == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for first, end := off/pageLen, (off+n-1)/pageLen+1; first < end; first++ {
		if p.pages[first] != nil {
			continue
		}
		last := first + 1
		for last < end && p.pages[last] == nil {
			last++
		}
		b, err := p.load(first*pageLen, min(last*pageLen, size)-first*pageLen)
		if err != nil {
			return err
		}
		for ; first < last; first++ {
			k := min(pageLen, len(b))
			p.pages[first], b = b[:k:k], b[k:]
			p.n++
		}
	}
	return nil
}

// at returns bytes that have been read.
func (p *sparse) at(off, n int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n == 0 {
		return nil
	}
	page := p.pages[off/pageLen]
	if in := off % pageLen; in+n <= len(page) {
		return page[in:][:n]
	}
	b := make([]byte, 0, n)
	for len(b) < n {
		page := p.pages[(off+len(b))/pageLen][(off+len(b))%pageLen:]
		b = append(b, page[:min(len(page), n-len(b))]...)
	}
	return b
}
