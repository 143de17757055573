package lindi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/zarr"
)

// chunk is a part of a content that is decoded separately. It belongs to an array, or is JSON if
// array is nil.
type chunk struct {
	*zarr.Prover
	key    string
	off, n int64
	value  []byte // from lindi.json, where it is at off
}

const (
	manyBytes = 32 << 20          // contents that take more memory are decoded alone
	mostBytes = zarr.DefaultLimit // larger contents are not decoded
)

// way returns how the content of a key is decoded. It reports false if damage would not be
// detected.
func (k *keys) way(key string) (_ *zarr.Prover, ok bool) {
	if zarrkey.IsMeta(key) {
		return nil, true
	}
	if z := k.arrayOf(key); z != nil {
		return z.prover, z.prover != nil
	}
	return nil, false
}

// decode returns a Decode for the chunks of e, which is stored at a place.
func (k *keys) decode(e format.Entry, at format.Problem, chunks []chunk) format.Decode {
	room := e.Size
	for _, c := range chunks {
		if c.Prover != nil {
			room = max(room, c.Room)
		}
	}
	if len(chunks) == 0 || e.Size > mostBytes {
		return nil
	}
	return func(ctx context.Context, r io.Reader, report func(format.Problem)) (format.Proof, error) {
		if room > manyBytes {
			k.large.Lock()
			defer k.large.Unlock()
		}
		all := make([]byte, e.Size)
		if _, err := io.ReadFull(r, all); err != nil {
			return format.Unproven, err
		}
		proof, decoded := format.Summed, kit.Ranges{}
		for _, c := range chunks {
			if ctx.Err() != nil {
				return format.Unproven, context.Cause(ctx)
			}
			p, b, bad := at, []byte(nil), error(nil)
			if c.value != nil {
				p.Off = c.off
				decoded.Add(0, e.Size) // the text was read
				if b, bad = inline(c.value); bad != nil {
					continue // the check of the structure reports it
				}
			} else {
				p.Off += c.off
				b = all[c.off:][:c.n]
				decoded.Add(c.off, c.off+c.n)
			}
			one, err := format.Decoded, error(nil)
			if c.Prover == nil {
				text := scannerOf(b, k.a.limits.Depth)
				text.Skip()
				text.End()
				err = text.Err
			} else if err = c.Prove(b); c.Summed && c.value == nil {
				one = format.Summed
			}
			if err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, zarr.ErrLimit) {
				p.Code, p.Severity, p.Entry, p.HasEntry = format.BadData, format.Error, c.key, true
				p.Message = "cannot be decoded: " + err.Error()
				report(p)
			}
			if err != nil {
				one = format.Unproven
			}
			proof = min(proof, one)
		}
		if decoded.Join(); len(decoded.Gaps(0, e.Size)) > 0 {
			proof = format.Unproven
		}
		return proof, nil
	}
}

// digested is the Decode of content that was compared with a digest.
func digested(context.Context, io.Reader, func(format.Problem)) (format.Proof, error) {
	return format.Digested, nil
}

// Decoder prepares for decoding the contents of keys.
func (k *keys) Decoder(context.Context) (func(format.Entry) format.Decode, error) {
	return func(e format.Entry) format.Decode {
		p, ok := e.Ref.(storedAt)
		way, known := k.way(e.Name)
		switch {
		case !ok || p.external:
			return nil
		case !known:
			return nil
		}
		return k.decode(e, format.Problem{Volume: cmp.Or(p.object, k.a.objectName()), Off: p.off}, []chunk{{Prover: way, key: e.Name, n: p.n}})
	}, nil
}

// Decoder prepares for decoding the contents of members, by the keys that refer to them.
func (r *members) Decoder(ctx context.Context) (func(format.Entry) format.Decode, error) {
	a := *r.a // the reader itself must not change
	k, err := newKeys(ctx, &a)
	if _, damaged := errors.AsType[*format.CorruptError](err); damaged {
		return func(format.Entry) format.Decode { return nil }, nil // the check of the structure reports it
	}
	if err != nil {
		return nil, err
	}
	listed := k.byName
	if a.form != tarForm {
		listed = &names{n: len(r.files), name: func(i int) string { return r.files[i].name }}
	}
	type part struct{ member, ref uint32 } // a key that refers to a part of a member
	var parts []part
	for i, ref := range a.rfs.refs {
		v := a.rfs.value(ref)
		name, _, inside := a.rfs.inside(v)
		if v[0] == '"' {
			name, inside = rfsName, !a.rfsSummed
		}
		m, ok := listed.find(name)
		if !inside || !ok || a.form == tarForm && a.table.row(m).sum != "" {
			continue
		}
		if _, ok := k.way(ref.key); !ok {
			continue
		}
		if last, _ := k.find(ref.key); last.at == ref.at {
			parts = append(parts, part{uint32(m), uint32(i)})
		}
	}
	slices.SortStableFunc(parts, func(x, y part) int { return cmp.Compare(x.member, y.member) })
	return func(e format.Entry) format.Decode {
		m, ok := listed.find(e.Name)
		at := format.Problem{Volume: a.name}
		switch ref := e.Ref.(type) {
		case int64:
			ok = ok && a.table.row(m).d == ref
			at.Off = ref
		case loose:
			at.Volume = ref.object
		}
		switch {
		case !ok:
			return nil
		case e.Name == rfsName && a.rfsSummed:
			return digested
		}
		i, _ := slices.BinarySearchFunc(parts, uint32(m), func(p part, m uint32) int { return cmp.Compare(p.member, m) })
		var chunks []chunk
		for ; i < len(parts) && parts[i].member == uint32(m); i++ {
			ref := a.rfs.refs[parts[i].ref]
			way, _ := k.way(ref.key)
			if v := a.rfs.value(ref); v[0] == '"' {
				chunks = append(chunks, chunk{way, ref.key, a.place(ref), 0, v})
			} else if _, t, _ := a.rfs.inside(v); t.n <= e.Size && t.off <= e.Size-t.n {
				chunks = append(chunks, chunk{way, ref.key, t.off, t.n, nil})
			}
		}
		return k.decode(e, at, chunks)
	}, nil
}
