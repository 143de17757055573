package oak

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// About returns which revision is shown, and what else there is.
func (t *treeReader) About(ctx context.Context) (format.About, error) {
	about, err := (&segmentReader{repository: t.repository}).About(ctx)
	if err != nil {
		return about, err
	}
	for _, tar := range t.tars {
		for i := range tar.Len() {
			if e := tar.At(i); e.ID.IsData() && tar.holds(e) {
				about.IndexBytes += int64(e.Len)
			}
		}
	}
	var facts [][2]string
	fact := func(key, msg string, args ...any) {
		facts = append(facts, [2]string{key, fmt.Sprintf(msg, args...)})
	}
	fact("revision", "%s%s", t.shown.Revision, timeOf(" of ", t.shown.Millis))
	switch {
	case t.checkpoint != "":
		fact("tree", "of checkpoint %s", t.checkpoint)
	case t.top == t.super:
		fact("tree", "super root")
	}
	root, err := t.records.Node(ctx, t.top)
	switch {
	case err != nil && t.damage(err) == nil:
		return about, err
	case err != nil:
		fact("root", "%v", err)
	case root.Template().Primary != nil:
		fact("primary type of the root", "%s", root.Template().Primary.Text)
	}
	if err := t.aboutCheckpoints(ctx, fact); err != nil {
		return about, err
	}
	about.Facts = append(facts, about.Facts...)
	return about, nil
}

// mostCheckpoints is how many checkpoints are listed. A store has few, unless programs fail to
// release them.
const mostCheckpoints = 100

func (t *treeReader) aboutCheckpoints(ctx context.Context, fact func(key, msg string, args ...any)) error {
	damaged := func(key string, err error) error {
		if t.damage(err) == nil {
			return err
		}
		fact(key, "%v", err)
		return nil
	}
	all, missing, err := t.records.NodeAt(ctx, t.super, checkpointsName)
	if missing != "" {
		return nil
	}
	n := 0
	if err == nil {
		n, err = all.ChildCount(ctx)
	}
	if err != nil {
		return damaged("checkpoints", err)
	}
	fact("checkpoints", "%d", n)
	listed := 0
	for c, err := range all.Children(ctx) {
		if listed++; listed > mostCheckpoints {
			fact("checkpoint", "and %d others", n-mostCheckpoints)
			break
		}
		said := ""
		if err == nil {
			said, err = t.checkpointTimes(ctx, c.Value)
		}
		if err == nil {
			fact("checkpoint", "%s%s", c.Name, said)
		} else if err := damaged("checkpoint "+c.Name, err); err != nil {
			return err
		}
	}
	return nil
}

// checkpointTimes returns when a checkpoint was made and when it may be removed.
func (t *treeReader) checkpointTimes(ctx context.Context, id segment.RecordID) (string, error) {
	n, err := t.records.Node(ctx, id)
	if err != nil {
		return "", err
	}
	said := ""
	for _, f := range []struct{ property, words string }{{"created", ", created "}, {"timestamp", ", expires "}} {
		const longest = 20
		text, err := textProperty(ctx, n, f.property, longest)
		if err != nil {
			return "", err
		}
		if millis, err := strconv.ParseInt(text, 10, 64); err == nil {
			said += timeOf(f.words, millis)
		}
	}
	return said, nil
}

// timeOf returns words followed by a time as text, or "" if there is no time.
func timeOf(words string, millis int64) string {
	switch {
	case millis < 0:
		return ""
	case millis > math.MaxInt64/2: // Oak's value for never
		return words + "never"
	}
	return words + time.UnixMilli(millis).UTC().Format(time.RFC3339)
}
