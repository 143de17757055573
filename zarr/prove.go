package zarr

// summed are the codecs that compare a checksum of their result.
var summed = map[string]bool{"gzip": true, "zlib": true, "bz2": true, "fletcher32": true, "crc32": true, "crc32c": true, "adler32": true}

// A Prover decodes chunks of an array to find out whether they are damaged.
type Prover struct {
	Summed bool  // a checksum in each chunk is compared
	Room   int64 // memory that decoding a chunk may take

	r *reader
}

// Prover returns a Prover for the array's chunks, which may take up to limit bytes each. It
// returns nil if chunks are stored unchanged, because decoding then shows no damage. It returns
// an error if none of the array's chunks can be read.
func (m *Meta) Prover(limit int64) (*Prover, error) {
	r, err := (&Array{Meta: *m, Limit: limit}).newReader()
	if err != nil || r.pipe.plain {
		return nil, err
	}
	p := &Prover{Room: addSize(r.pipe.stored, r.pipe.stored), r: r}
	if m.DType.Kind == 'O' {
		p.Room = addSize(p.Room, limit)
	}
	for _, s := range r.pipe.stages {
		p.Summed = p.Summed || summed[s.codec]
	}
	return p, nil
}

// Prove decodes a stored chunk. It returns an error if that is not possible.
func (p *Prover) Prove(stored []byte) error {
	if int64(len(stored)) > p.r.pipe.stored {
		return corrupt("expected at most %d stored bytes, found %d", p.r.pipe.stored, len(stored))
	}
	raw, err := p.r.decode(stored)
	if err == nil && p.r.pipe.objects != nil {
		room := p.r.a.Limit
		_, err = p.r.pipe.objects(raw, p.r.chunks, &room)
	}
	return err
}
