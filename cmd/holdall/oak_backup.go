package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/oak"
)

func (a *app) oakBackupCommand() *cobra.Command {
	var o oak.BackupOptions
	cmd := &cobra.Command{
		Use:   "backup STORE DST",
		Short: "Back up a store, incrementally",
		Long: `Copies the segments that DST does not have, then the journal up to the newest
revision. Each segment is compared with its checksum. DST is a complete store,
which Oak and all verbs can open. STORE may be in use: it is only read. Garbage
that a compaction removed from STORE is also removed from DST.

If the command is interrupted, DST is either the old backup or the new one, and
the same command continues. If STORE is damaged, the backup fails, and DST keeps
what it has. Data stores are not copied.`,
		Example: "  holdall oak backup segmentstore /backup/segmentstore\n  holdall oak backup --check segmentstore /backup/segmentstore",
		Args:    args(2, 2, "a store and the place of its backup"),
		RunE: run(func(ctx context.Context, args []string) error {
			return a.copyNew(ctx, args[0], args[1], o)
		}),
	}
	cmd.Flags().BoolVar(&o.Check, "check", false, "also read DST, and replace damaged segments")
	a.dryRunFlag(cmd.Flags())
	return cmd
}

func (a *app) oakRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore BACKUP STORE",
		Short: "Make a store equal to its backup",
		Long: `Makes STORE equal to BACKUP. STORE may be new, or an existing store that is not
in use; it may be damaged. Intact segments are not copied again, unless lost
ones must come before them so that a cleanup of Oak keeps all. Tars that are
damaged or copied again become TAR.bak, the old journal becomes
journal.log.bak.NNN, and nothing is removed.

If the command is interrupted, STORE is either unchanged or restored, and the
same command continues. BACKUP may be any store, not only one made by 'oak
backup'.`,
		Example: "  holdall oak restore /backup/segmentstore segmentstore",
		Args:    args(2, 2, "a backup and a store"),
		RunE: run(func(ctx context.Context, args []string) error {
			return a.copyNew(ctx, args[0], args[1], oak.BackupOptions{Restore: true, Check: true})
		}),
	}
	a.dryRunFlag(cmd.Flags())
	return cmd
}

func (a *app) copyNew(ctx context.Context, from, to string, o oak.BackupOptions) (err error) {
	st, name, err := a.locate(ctx, to)
	if err != nil {
		return err
	}
	st = a.dry(st, false)
	st, unlock, err := a.lockStore(ctx, st, name) // not in a dry run
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	m := &holdall.Meter{}
	o.Progress, o.DryRun = m.Add, a.dryRun
	var c oak.BackedUp
	err = a.withOak(ctx, from, false, func(s *oak.Store) (err error) {
		defer a.showProgress(m, "copied")()
		c, err = s.Backup(ctx, st, name, o)
		return err
	})
	if err != nil {
		return err
	}
	a.tell(c, func() {
		if len(c.Aside) > 0 {
			fmt.Fprintf(a.out, "renamed: %s\n", printable(strings.Join(c.Aside, ", ")))
		}
		fmt.Fprint(a.out, ifAny("the old journal is %s\n", c.Journal))
		a.notes(c.Notes)
		if c.Freed > 0 {
			fmt.Fprintf(a.out, "removed %s of garbage\n", a.humanSize(c.Freed))
		}
		fmt.Fprintf(a.out, "%s: head %s; %s copied, %s written; %d present before%s\n", to, c.Head, count(c.Segments, "segment"), a.humanSize(c.Bytes), c.Known, a.didNot())
	})
	return nil
}
