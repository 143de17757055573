package detect

import (
	"cmp"
	"context"
	"path"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Probe reads both ends of an object called name, at the same time if atOnce is set.
func Probe(ctx context.Context, o store.Object, name string, atOnce bool) (format.Probe, error) {
	head, tail := make([]byte, kit.ProbeSize), make([]byte, kit.ProbeSize)
	h, t, err := readEnds(ctx, o, head, tail, atOnce)
	if err != nil {
		return format.Probe{}, err
	}
	info, err := o.Info(ctx)
	return format.Probe{Name: path.Base(name), Size: info.Size, Head: head[:h], Tail: tail[:t]}, err
}

// readEnds is ReadHead and ReadTail, with both requests at the same time if atOnce is set.
func readEnds(ctx context.Context, o store.Object, head, tail []byte, atOnce bool) (inHead, inTail int, err error) {
	var headErr error
	var wg sync.WaitGroup
	if atOnce {
		wg.Go(func() { inHead, headErr = storekit.ReadHead(ctx, o, head) })
	}
	inTail, err = storekit.ReadTail(ctx, o, tail)
	wg.Wait()
	if !atOnce && err == nil {
		inHead, headErr = storekit.ReadHead(ctx, o, head)
	}
	return inHead, inTail, cmp.Or(err, headErr)
}
