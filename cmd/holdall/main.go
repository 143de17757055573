// Command holdall packs, lists, reads, verifies, repairs, converts, mounts, serves and browses
// archives of many small files.
//
// It is the command line of package holdall, which programs import instead. Each verb is in a
// file of its own, which turns flags into options and prints the results. docs/cli.md has
// their help.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/holdall/holdall/format/all"
	_ "github.com/holdall/holdall/store/all"
)

// Exit codes; see docs/reference.md.
const (
	exitOK          = 0
	exitNo          = 1 // success, but the answer is no: damage, differences, no match
	exitFailed      = 2 // it could not do its work
	exitInterrupted = 130
)

// errInterrupted is the cause of a context that the user ended.
var errInterrupted = errors.New("interrupted")

// errNo ends a verb whose answer is no. The verb has already printed the
// reason.
var errNo = errors.New("no")

// errSaid ends a verb that failed. Another process has already reported the
// error.
var errSaid = errors.New("said already")

func main() {
	lateGC()
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(errInterrupted)
		<-signals // after a second signal, exit at once
		os.Exit(exitInterrupted)
	}()
	os.Exit(newApp(os.Stdin, os.Stdout, os.Stderr).run(ctx, os.Args[1:]))
}
