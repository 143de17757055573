package caf

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A chunk that holdall writes has its number at the top, and the last one also has the total.
// Other readers ignore both.
const (
	chunkKey  = "chunk"
	chunksKey = "chunks"

	chunkDigits = 5 // digits of the number in a name
	mostChunks  = 99999
	chunkBlock  = 1000 // number of chunks that are listed at a time
)

// members returns the members at the top of an index that are written again unchanged.
func (t *topLevel) members() string {
	var all []string
	if t.log != "" {
		all = append(all, fmt.Sprintf(`"%s":"%s"`, logKey, t.log))
	}
	if t.chunk > 0 {
		all = append(all, fmt.Sprintf(`"%s":%d`, chunkKey, t.chunk))
	}
	if t.chunks > 0 {
		all = append(all, fmt.Sprintf(`"%s":%d`, chunksKey, t.chunks))
	}
	if len(t.extra) > 0 {
		all = append(all, string(t.extra))
	}
	return strings.Join(all, ",")
}

// ofSet reads the member that was just read, if it is one of these.
func (s *scanner) ofSet(key string) bool {
	if key == logKey && s.top.writer == writer {
		_, value, _ := bytes.Cut(s.Since(s.member), []byte(":"))
		id, err := hex.DecodeString(string(bytes.Trim(bytes.TrimSpace(value), `"`)))
		if err != nil || len(id) != logIDLen {
			return false
		}
		s.top.log = hex.EncodeToString(id)
		return true
	}
	to := map[string]*int{chunkKey: &s.top.chunk, chunksKey: &s.top.chunks}[key]
	if to == nil || s.top.writer != writer {
		return false
	}
	_, value, _ := bytes.Cut(s.Since(s.member), []byte(":"))
	n, err := strconv.Atoi(string(bytes.TrimSpace(value)))
	if err != nil || n < 1 || n > mostChunks {
		return false
	}
	*to = n
	return true
}

// numberOf splits the name of a chunk: x-00012.caf is x-, 12 and .caf. For any other name the
// number is 0.
func numberOf(name string) (stem string, n int, ext string) {
	ext = path.Ext(name)
	stem = strings.TrimSuffix(name, ext)
	i := strings.LastIndexByte(stem, '-') + 1
	digits := stem[i:]
	if i == 0 || len(digits) != chunkDigits || strings.Trim(digits, "0123456789") != "" {
		return "", 0, ""
	}
	n, _ = strconv.Atoi(digits)
	return stem[:i], n, ext
}

// checkSet looks for the other chunks of a set beside a chunk with a number, if the store can be
// listed.
func (t *table) checkSet(ctx context.Context, st store.Store, o format.OpenOptions, report func(format.Problem)) error {
	stem, own, ext := numberOf(t.volume)
	if t.top.chunk == 0 || t.top.chunk != own { // it has another name now
		return nil
	}
	last, top := t.top.chunks, own
	var there kit.Ranges
	there.Add(int64(own), int64(own)+1)
	for from := 0; from <= max(last, top+1) && from <= mostChunks; from += chunkBlock {
		for info, err := range storekit.List(ctx, st, fmt.Sprintf("%s%02d", stem, from/chunkBlock)) {
			if err != nil {
				return context.Cause(ctx) // without a listing, none can be missed
			}
			if s, n, e := numberOf(info.Name); n > 0 && s == stem && e == ext {
				there.Add(int64(n), int64(n)+1)
				top = max(top, n)
			}
		}
	}
	if last == 0 && top > own {
		said, err := said(ctx, st, fmt.Sprintf("%s%0*d%s", stem, chunkDigits, top, ext), o)
		switch {
		case err != nil:
			return err
		case said.chunk == 0: // it belongs to an older set or is damaged
			last = top
		default:
			last = said.chunks
		}
	}
	there.Join()
	var missing []string
	for _, gap := range there.Gaps(1, int64(max(last, top))+1) {
		one := strconv.FormatInt(gap.From, 10)
		if gap.To > gap.From+1 {
			one += fmt.Sprintf(" to %d", gap.To-1)
		}
		if missing = append(missing, one); len(missing) == kit.MostSaid {
			missing = append(missing, "…")
			break
		}
	}
	if last == 0 {
		missing = append(missing, fmt.Sprintf("any after %d", top))
	}
	if len(missing) > 0 {
		t.report(report, format.Warning, "chunk-missing", -1, nil, "this is chunk %d of a set; missing beside it: %s", own, strings.Join(missing, ", "))
	}
	return nil
}

// said returns the top-level members of the index of another chunk.
func said(ctx context.Context, st store.Store, name string, o format.OpenOptions) (topLevel, error) {
	r, err := openReader(ctx, st, name, o)
	if err != nil {
		return topLevel{}, context.Cause(ctx)
	}
	defer r.Close()
	s := r.scanner(ctx, func(*row) error { return errEnough })
	_ = s.scan() // damage is reported when that chunk is checked
	return s.top, context.Cause(ctx)
}
