package catalog

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/holdall/holdall/internal/testkit"
)

// These are the tasks that this program runs instead of its tests, when it is
// started to be killed: see killed.
const (
	killEnv      = "HOLDALL_CATALOG_KILL"
	killPart     = "part"      // adds an archive, and waits before it commits
	killEndless  = "endless"   // adds archives one after the other
	killRows     = 3000        // of each archive
	killPathForm = "%s/%05d"   // of the i-th path of an archive
	killNew      = "archive%d" // added one after the other
)

func TestMain(m *testing.M) {
	if what, at, ok := strings.Cut(os.Getenv(killEnv), ":"); ok {
		if err := beKilled(what, at); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(3) // the program was not killed
	}
	os.Exit(m.Run())
}

func killFiles(address string) Addition {
	var paths []string
	for i := range killRows {
		paths = append(paths, fmt.Sprintf(killPathForm, address, i))
	}
	return Addition{Archive: Archive{Address: address, Size: 1 << 30}, Rows: files(paths...)}
}

// beKilled does its work and writes a line at each point where a kill is of
// interest. It ends when it is killed, or when its parent is gone.
func beKilled(what, at string) error {
	ctx := context.Background()
	c, err := Open(ctx, at, Options{})
	if err != nil {
		return err
	}
	if what == killEndless {
		for i := 0; ; i++ {
			if _, err := c.Add(ctx, killFiles(fmt.Sprintf(killNew, i))); err != nil {
				return err
			}
			fmt.Println(i)
		}
	}
	half := &batch{all: []Addition{killFiles("half")}}
	return c.db.write(ctx, func(s session) error {
		// The cache is so small that uncommitted pages are written to disk.
		if err := sqlitex.ExecuteTransient(s.(*sqliteSession).conn, "PRAGMA cache_size = 10", nil); err != nil {
			return err
		}
		return half.stage(ctx, s)
	}, func(s session) error {
		if _, err := half.publish(ctx, s); err != nil {
			return err
		}
		fmt.Println("all but committed")
		io.Copy(io.Discard, os.Stdin)
		return io.EOF
	})
}

// killed starts this program with a task on a catalogue, calls meanwhile once
// it has written a number of lines, and kills it.
func killed(t *testing.T, what, at string, lines int, meanwhile func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killEnv+"="+what+":"+at)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(stdout)
	for range lines {
		if !out.Scan() {
			cmd.Wait()
			t.Fatal("ended by itself")
		}
	}
	meanwhile()
	cmd.Process.Kill()
	cmd.Wait()
}

func TestKilledBeforeItCommitsLeavesNothing(t *testing.T) {
	testkit.Long(t)
	at := filepath.Join(t.TempDir(), "c.db")
	if err := Create(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	c := open(t, at)
	before := add(t, c, Archive{Address: "before"}, files("a"))
	asBefore := func() {
		t.Helper()
		if all, err := c.Archives(t.Context()); err != nil || len(all) != 1 || all[0] != before.Archive {
			t.Errorf("%+v, %v", all, err)
		}
		if got := pathsOf(collect(t, c.Below(t.Context(), ""))); len(got) != 1 || got[0] != "a" {
			t.Errorf("%d paths", len(got))
		}
	}
	killed(t, killPart, at, 1, func() {
		asBefore()
		if info, err := os.Stat(at + "-wal"); err != nil || info.Size() < killRows*20 {
			t.Errorf("nothing of it is on the disk yet: %v, %v", info, err)
		}
	})
	asBefore()
	if again := add(t, c, Archive{Address: "half"}, killFiles("half").Rows); again.Entries != killRows {
		t.Errorf("%+v", again)
	}
	sound(t, c)
}

func TestKilledAtAnyTimeLeavesWholeArchives(t *testing.T) {
	testkit.Long(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 4 {
		at := filepath.Join(t.TempDir(), "c.db")
		if err := Create(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		c := open(t, at)
		lines := 1 + rnd.IntN(4)
		killed(t, killEndless, at, lines, func() {
			for range rnd.IntN(300) { // a delay that differs each time
				if _, err := c.Newest(t.Context(), fmt.Sprintf(killPathForm, fmt.Sprintf(killNew, 0), 0)); err != nil {
					t.Error(err)
				}
			}
		})
		all, err := c.Archives(t.Context())
		if err != nil || len(all) < lines {
			t.Errorf("%d archives of the %d that were there: %v", len(all), lines, err)
		}
		if n := len(collect(t, c.Below(t.Context(), ""))); n != len(all)*killRows {
			t.Errorf("%d paths of %d archives", n, len(all))
		}
		sound(t, c)
		add(t, c, Archive{Address: "after"}, files("a"))
	}
}
