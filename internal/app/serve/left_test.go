package serve_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/app/autopsy"
	"github.com/holdall/holdall/internal/app/serve"
)

// A plan may take hours. It ends when nobody waits for it any more, and the next request starts another one.
func TestAPlanEndsWithWhoeverWaitsForIt(t *testing.T) {
	begun, ended := make(chan string, 9), make(chan string, 9)
	set := serve.NewSet(serve.SetOptions{})
	defer set.Close()
	set.Add(serve.Source{Name: "x", Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		begun <- view
		<-ctx.Done()
		ended <- view
		return nil, "", context.Cause(ctx)
	}})
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { _, err := set.Use(ctx, "x", autopsy.Repaired); done <- err }()
		if view := <-begun; view != autopsy.Repaired {
			t.Errorf("it is opened as %s", view)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-ended
	}
}
