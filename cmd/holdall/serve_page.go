package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/internal/app/explore/nodes"
	"github.com/holdall/holdall/internal/app/serve"
)

// pageSource gives the explorer the archives that are served.
type pageSource struct {
	set  *serve.Set
	log  *slog.Logger
	near bool // only people at this machine see it: they may know where archives lie

	mu   sync.Mutex
	told string // what was wrong when they were listed last
}

func (s *pageSource) Names(ctx context.Context) ([]string, error) {
	all, err := s.set.List(ctx)
	names := make([]string, len(all))
	for i, x := range all {
		names[i] = x.Name
	}
	if ctx.Err() == nil {
		s.tell(err)
	}
	if len(names) > 0 {
		err = nil // of those that are there
	}
	return names, err
}

// tell logs why archives cannot be listed, once for as long as it is the same.
func (s *pageSource) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != s.told && text != "" {
		s.log.Error("cannot be listed", "error", err)
	}
	s.told = text
}

func (s *pageSource) Open(ctx context.Context, name string) (explore.Archive, error) {
	in, err := s.set.Use(ctx, name, "")
	if err != nil {
		return explore.Archive{}, err
	}
	address := ""
	if s.near {
		address = in.Address
	}
	return nodes.Add(explore.Archive{Name: in.Name, Address: address, Archive: in.Archive, Version: in.Version, Current: in.Current, Changed: in.Stale, Release: in.Release}), nil
}
