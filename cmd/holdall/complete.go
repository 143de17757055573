package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/store"
)

// A shell waits for completions, so these limit their time and number.
// Anything beyond the limits is not completed.
const (
	completeTime  = 2 * time.Second
	completeNames = 1000
	completeIndex = 64 << 20 // bytes of an index to read
)

// completions registers the completions of flags and arguments, and folds
// examples.
func (a *app) completions(cmd *cobra.Command) {
	cmd.Example = folded(cmd.Example)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		var words []string
		switch v := f.Value.(type) {
		case *choice:
			words = slices.DeleteFunc(slices.Clone(v.words), func(w string) bool { return w == "" })
		case *paramFlag:
			for _, p := range v.of {
				words = append(words, p.Words...)
			}
		}
		slices.Sort(words)
		words = slices.Compact(words)
		switch {
		case f.Name == "view" && cmd == cmd.Root():
			cmd.RegisterFlagCompletionFunc(f.Name, completeViews)
		case f.Name == "revision":
			cmd.RegisterFlagCompletionFunc(f.Name, a.completeRevisions)
		case f.Name == "checkpoint":
			cmd.RegisterFlagCompletionFunc(f.Name, a.completeCheckpoints)
		case words != nil:
			cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	if _, opens := cmd.Annotations[opensAnArchive]; (opens && cmd.Name() != "pack" || cmd.Name() == "protect") && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = completeArchives
	}
	for _, c := range cmd.Commands() {
		a.completions(c)
	}
}

// completeViews completes --view. If the archive's name shows its format, it
// offers the views of that format, otherwise those of all.
func completeViews(_ *cobra.Command, args []string, _ string) (views []cobra.Completion, _ cobra.ShellCompDirective) {
	formats := format.All()
	if len(args) > 0 {
		if f := format.All().ByExtension(args[0]); f != nil {
			formats = []*format.Format{f}
		}
	}
	for _, f := range formats {
		views = append(views, f.Views...)
	}
	slices.Sort(views)
	return slices.Compact(views), cobra.ShellCompDirectiveNoFileComp
}

// completeArchives completes a path with folders and with archives, by their
// extensions. If there are none, it completes with any file.
func completeArchives(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		switch cmd.Name() {
		case "add":
			return nil, cobra.ShellCompDirectiveDefault
		case "find", "grep": // a pattern or a text
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
	var extensions []cobra.Completion
	dir, base := filepath.Split(toComplete)
	found, err := os.Open(filepath.Join(dir, "."))
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	defer found.Close()
	names, _ := found.ReadDir(10 * completeNames)
	archive := false
	for _, f := range format.All() {
		for _, x := range f.Extensions {
			if bare := strings.TrimPrefix(x, "."); !slices.Contains(extensions, bare) && bare != x {
				extensions = append(extensions, bare)
			}
		}
	}
	for _, n := range names {
		archive = archive || strings.HasPrefix(n.Name(), base) && (n.IsDir() || format.All().ByExtension(n.Name()) != nil)
	}
	if !archive {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return extensions, cobra.ShellCompDirectiveFilterFileExt
}

// completeMembers completes the names of entries in an archive. The archive
// must be on this machine, or its index must be in the cache.
func (a *app) completeMembers(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return completeArchives(cmd, args, toComplete)
	}
	const none = cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(context.Background(), completeTime)
	defer cancel()
	if args[0] == "-" || !isNear(args[0]) && !a.keepsIndex(ctx, args[0]) {
		return nil, none
	}
	a.quiet = true
	if a.maxIndex == 0 {
		a.maxIndex = completeIndex
	}
	in, err := a.open(ctx, args[0], false)
	if err != nil {
		return nil, none
	}
	defer in.Close()
	dir := "."
	if i := strings.LastIndexByte(toComplete, '/'); i > 0 {
		dir = toComplete[:i]
	}
	var names []cobra.Completion
	each(in.ReadDir(ctx, dir), func(e holdall.Entry) error {
		name := format.Escape(e.Name)
		if e.Kind == format.Dir {
			name += "/"
		}
		if strings.HasPrefix(name, toComplete) {
			names = append(names, name)
		}
		if len(names) == completeNames || ctx.Err() != nil {
			return errNo
		}
		return nil
	})
	if len(names) == 1 && !strings.HasSuffix(names[0], "/") {
		return names, none
	}
	return names, none | cobra.ShellCompDirectiveNoSpace
}

// completeRevisions completes --revision with the revisions of an Oak store on
// this machine that can be read, the newest first.
func (a *app) completeRevisions(_ *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.completeOak(args, toComplete, func(ctx context.Context, s *oak.Store, add func(id, about string)) error {
		return each(s.History(ctx, "/", oak.HistoryOptions{Last: completeNames, All: true}), func(r oak.Step) error {
			if r.Lost == "" {
				add(r.Revision, r.Time())
			}
			return nil
		})
	})
}

// completeCheckpoints completes --checkpoint in the same way.
func (a *app) completeCheckpoints(_ *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.completeOak(args, toComplete, func(ctx context.Context, s *oak.Store, add func(id, about string)) error {
		all, err := s.Checkpoints(ctx, time.Now(), false)
		for _, c := range all {
			about := ""
			if c.Created != nil {
				about = c.Created.Format(time.RFC3339)
			}
			add(c.Name, about)
		}
		return err
	})
}

func (a *app) completeOak(args []string, toComplete string, list func(ctx context.Context, s *oak.Store, add func(id, about string)) error) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	const how = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	if len(args) == 0 || !isNear(args[0]) {
		return nil, how
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTime)
	defer cancel()
	_ = a.withOak(ctx, args[0], false, func(s *oak.Store) error { // what was found before an error is offered
		return list(ctx, s, func(id, about string) {
			if strings.HasPrefix(id, toComplete) {
				found = append(found, cobra.CompletionWithDesc(id, about))
			}
		})
	})
	return found, how
}

// isNear reports whether an address is that of a file or folder of this
// machine.
func isNear(address string) bool {
	_, address = store.CutLayer(address)
	s := store.Scheme(address)
	return address != "-" && (s == "" || s == "file")
}

func (a *app) keepsIndex(ctx context.Context, address string) bool {
	f := a.indexFolder()
	if a.index != "" || f == nil {
		return a.index != "" && a.index != noIndex && store.Scheme(a.index) == ""
	}
	kept, err := f.List(ctx)
	return err == nil && slices.ContainsFunc(kept, func(k holdall.KeptIndex) bool { return k.Archive == address })
}
