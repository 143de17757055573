package tarfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// seeds returns sound tars that are always the same.
func seeds(f *testing.F) (all [][]byte) {
	for i := range uint64(3) {
		b, _ := small(f, rand.New(rand.NewPCG(i, 1)))
		all = append(all, b)
	}
	for _, b := range unpack(f, "empty-store") {
		all = append(all, b)
	}
	return all
}

func FuzzHeader(f *testing.F) {
	for _, b := range seeds(f) {
		for ; len(b) >= BlockSize; b = b[BlockSize:] {
			f.Add(b[:BlockSize])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			if len(b) == BlockSize && !isZero(b) {
				t.Error(err)
			}
			return
		}
		again, err := ParseHeader(AppendHeader(nil, h.Name, min(h.Size, maxOctal), h.ModTime))
		h.Size, h.ChecksumOK = min(h.Size, maxOctal), true
		if h.ModTime.Unix() > maxOctal {
			h.ModTime = again.ModTime
		}
		if h.Name != "" && (err != nil || again != h) {
			t.Errorf("%v, %v, expected %v", again, err, h)
		}
		m, ok := repair(b)
		if !ok {
			return
		}
		// A name that was intact is unchanged.
		if n, whole := ParseEntryName(h.Name); whole && n.HasCRC && len(h.Name) == nameText && n != m.name {
			t.Errorf("%v, expected %v", m.name, n)
		}
		if v, digits := octal(b[checksumAt : checksumAt+checkDigits]); digits == checkDigits && m.stored != v {
			t.Errorf("checksum %o, expected %o", m.stored, v)
		}
		if m.proves(int(m.size)) {
			if sum := headerSum(AppendHeader(nil, entryName(m.name.ID, m.name.CRC), m.size, m.mtime)); sum != m.stored {
				t.Errorf("proven with checksum %o, expected %o", sum, m.stored)
			}
		}
	})
}

func FuzzIndex(f *testing.F) {
	for _, b := range seeds(f) {
		end := len(b) - trailerLen
		n := int(parseFooter(b[:end]).count) * entryV2
		f.Add(b[end-footerLen-n:end-footerLen], b[end-footerLen:end], len(b))
	}
	f.Fuzz(func(t *testing.T, entries, foot []byte, length int) {
		if len(foot) != footerLen || len(entries) > 1<<16 {
			return
		}
		tail := slices.Concat(entries, foot, make([]byte, trailerLen))
		p, none := locateIndex(tail, int64(length))
		if none != nil {
			if none.Reason == 0 || none.What == "" {
				t.Error(none)
			}
			return
		}
		if p.count*p.step > length || p.header < 0 || p.from < p.header+BlockSize {
			t.Fatalf("%+v in %d bytes", p, length)
		}
		if p.count*p.step > len(entries) {
			return
		}
		b := entries[len(entries)-p.count*p.step:]
		p.crc = checksum(b)
		x, none := parseIndex(b, p)
		if none != nil {
			return
		}
		if x.Len() != p.count {
			t.Fatalf("%d entries, expected %d", x.Len(), p.count)
		}
		pos := int64(-1)
		for _, i := range x.ByPosition() {
			e := x.At(int(i))
			if e.Pos < pos || e.Len < 1 {
				t.Errorf("%v at %d", e, pos)
			}
			pos = e.Pos
			if k, ok := x.Find(e.ID); !ok || k != int(i) {
				t.Errorf("%s is %d, %v, expected %d", e.ID, k, ok, i)
			}
			e.ID[15]++
			if k, ok := x.Find(e.ID); ok && x.At(k).ID != e.ID {
				t.Errorf("%s is %d", e.ID, k)
			}
		}
		x.Check(int64(length), func(q Problem) {
			if q.Class == 0 || q.Off < 0 || q.Len < 0 {
				t.Errorf("%+v", q)
			}
		})
	})
}

func FuzzGraph(f *testing.F) {
	for _, b := range seeds(f) {
		x := mustOpen(f, b)
		g, err := x.Graph(f.Context())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(g.b, int32(g.Len()))
	}
	f.Fuzz(func(t *testing.T, b []byte, count int32) {
		foot := footer{checksum(b), count, int32(len(b) + footerLen), graphV1}
		if e := checkGraph(foot, 1<<30); e != nil {
			return
		}
		g, e := parseGraph(b, foot)
		if e != nil {
			if e.Offset < 0 || e.Offset > int64(len(b)) || e.Class != BadGraph {
				t.Error(e)
			}
			return
		}
		want := map[ID]IDs{}
		for p, n := b, 0; len(p) > 0; p = p[n:] {
			n = nodeLen + 16*int(int32At(p[16:]))
			want[ID(p)] = IDs(p[nodeLen:n])
		}
		got := maps.Collect(g.All())
		if !maps.EqualFunc(got, want, func(a, b IDs) bool { return bytes.Equal(a, b) }) || g.Len() != len(want) {
			t.Errorf("%d lists, expected %d", g.Len(), len(want))
		}
		var again graphBuilder
		for id, to := range want {
			if l, ok := g.Targets(id); !ok || !bytes.Equal(l, to) {
				t.Errorf("%s: %v", id, l)
			}
			again.add(id, to)
			if len(to) == 0 {
				delete(want, id)
			}
		}
		out := again.append(nil)
		h, e := parseGraph(out[:len(out)-footerLen], parseFooter(out))
		if e != nil || checkGraph(parseFooter(out), 1<<30) != nil || h.Len() != len(want) || len(out) != again.size() {
			t.Errorf("written again: %v", e)
		}
	})
}

func FuzzBinaryRefs(f *testing.F) {
	for _, b := range seeds(f) {
		r, err := mustOpen(f, b).Binaries(f.Context())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(r.b, int32(r.count), false)
	}
	f.Add(slices.Concat(numbers(3, 1), make([]byte, 16), numbers(1, 1), []byte("x")), int32(1), true)
	f.Fuzz(func(t *testing.T, b []byte, count int32, v1 bool) {
		foot := footer{checksum(b), count, int32(len(b) + footerLen), binariesV2}
		if v1 {
			foot.magic = binariesV1
		}
		if e := checkBinaries(foot, 1<<30); e != nil {
			return
		}
		r, e := parseBinaries(b, foot)
		if e != nil {
			if e.Offset < 0 || e.Offset > int64(len(b)) || e.Class != BadBinaries {
				t.Error(e)
			}
			return
		}
		n, bytesOfRefs := 0, 0
		var w binariesBuilder
		seen := map[ID]bool{}
		want := map[ID][]string{}
		for s := range r.All() {
			n++
			refs := slices.Collect(s.Refs.All())
			if len(refs) != s.Refs.n {
				t.Errorf("%d references, expected %d", len(refs), s.Refs.n)
			}
			for _, ref := range refs {
				bytesOfRefs += 4 + len(ref)
			}
			bytesOfRefs += segmentRefsLen
			if !seen[s.ID] {
				seen[s.ID] = true
				w.add(s.ID, s.Generation, refs)
				if len(refs) > 0 {
					want[s.ID] = slices.Compact(slices.Sorted(slices.Values(refs)))
				}
			}
		}
		step := generationV2
		if r.v1 {
			step = generationV1
		}
		if n != r.Len() || bytesOfRefs+r.count*step != len(b) {
			t.Errorf("%d segments, expected %d", n, r.Len())
		}
		out := w.append(nil)
		again, e := parseBinaries(out[:len(out)-footerLen], parseFooter(out))
		if e != nil || checkBinaries(parseFooter(out), 1<<30) != nil || len(out) > w.maxSize() {
			t.Fatalf("written again: %v", e)
		}
		for s := range again.All() {
			if !slices.Equal(slices.Collect(s.Refs.All()), want[s.ID]) {
				t.Errorf("written again: %s", s.ID)
			}
			delete(want, s.ID)
		}
		if len(want) > 0 {
			t.Errorf("written again: %d are missing", len(want))
		}
	})
}

func FuzzScan(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b, -1, byte(0))
		f.Add(b, 3, byte(0x40))
		f.Add(b[BlockSize:], BlockSize+sizeAt, byte(1))
		f.Add(b[:len(b)/2], 0, byte(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, at int, mask byte) {
		if at >= 0 && at < len(b) {
			b = bytes.Clone(b)
			b[at] ^= mask
		}
		found, problems := scanAll(t, b)
		end := int64(0)
		for _, s := range found {
			if s.HeaderPos < end || s.DataPos != s.HeaderPos+BlockSize || s.DataPos+int64(s.Len) > int64(len(b)) || s.Len < 1 || s.Len > MaxSegment {
				t.Fatalf("%s at %d of %d bytes, behind %d", s.ID, s.HeaderPos, s.Len, end)
			}
			end = s.DataPos + int64(s.Len)
			if !bytes.Equal(s.Data, b[s.DataPos:end]) || s.CRC != checksum(s.Data) {
				t.Errorf("%s: other bytes than those of the file", s.ID)
			}
			n, ok := ParseEntryName(headerName(b[s.HeaderPos:s.DataPos]))
			if h, err := ParseHeader(b[s.HeaderPos:s.DataPos]); err == nil && h.ChecksumOK && (!ok || n.ID != s.ID || n.HasCRC && n.CRC != s.CRC) {
				t.Errorf("%s is %s", s.ID, h.Name)
			}
		}
		for _, p := range problems {
			if p.Class == 0 || p.What == "" || p.Off < 0 || p.Len < 0 || p.Off+p.Len > int64(len(b)) {
				t.Errorf("%+v in %d bytes", p, len(b))
			}
		}
	})
}

func FuzzOpen(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if end := len(b) - trailerLen; seal && end > footerLen {
			// The checksums are right, and so is the graph's if it is where it should be.
			b = bytes.Clone(b)
			if n := int64(parseFooter(b[:end]).count) * entryV2; n > 0 && n <= int64(end-footerLen) {
				sealPart(b, end, int(n))
				end -= footerLen + int(n)
				if end -= pad(footerLen+int(n)) + BlockSize; end >= footerLen {
					if n := int(parseFooter(b[:end]).size) - footerLen; n >= 0 && n <= end-footerLen {
						sealPart(b, end, n)
					}
				}
			}
		}
		x, err := open(t, b)
		if err != nil {
			if e, ok := errors.AsType[*NoIndex](err); !ok || e.Reason == 0 {
				t.Error(err)
			}
			return
		}
		for _, p := range problemsOf(t, x) {
			if p.Class == 0 || p.What == "" || p.Off < 0 || p.Len < 0 {
				t.Errorf("%+v", p)
			}
		}
		for i, e := range x.Index().All() {
			data, err := x.Read(t.Context(), i, nil)
			if err == nil && (!bytes.Equal(data, b[e.Pos:e.Pos+int64(e.Len)])) {
				t.Errorf("%s: other bytes", e.ID)
			}
			if err != nil && !IsDamage(err) {
				t.Error(err)
			}
		}
		if _, err := x.Binaries(t.Context()); err != nil && !IsDamage(err) {
			t.Error(err)
		}
	})
}

// sealPart puts right the checksum of n bytes before the footer that ends at end.
func sealPart(b []byte, end, n int) {
	binary.BigEndian.PutUint32(b[end-footerLen:], checksum(b[end-footerLen-n:end-footerLen]))
}
