package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/fixity"
	"github.com/holdall/holdall/internal/base/minisign"
	"github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/store"
)

func (a *app) verifyCommand() *cobra.Command {
	var o holdall.VerifyOptions
	sums := ""
	var from, out, log, logged string
	var signedBy []string
	var key, password string
	var inPlace bool
	cmd := &cobra.Command{
		Use:   "verify ARCHIVE...",
		Short: "Verify the structure and content of archives",
		Long: `Checks the structure and every checksum of an archive, and lists all problems.
The exit code is 1 if there are errors or warnings. Notes are unusual but
harmless.

If the archive has parity ("holdall protect"), each of its blocks is checked
too. Damage that the parity can recover is a warning, and "holdall repair"
repairs it. The last line shows how much more could be lost.

If the archive has an index with digests of pieces ("holdall index
--chunk-digests"), damage is reported by piece and place. --repair-from COPY
then fetches only the damaged pieces from another copy of the archive, compares
them with the digests, and writes a repaired archive to OUT, which appears
whole or not at all. With --in-place it replaces the archive, and the damaged
one is kept as ARCHIVE.bak.

--sample loss=0.01%,confidence=99.99% reads only random blocks, but enough of
them to find, with 99.99% confidence, if 0.01% or more of all blocks are wrong.

--log FILE adds a line for each archive to a log of checks, and --key signs it.
Each line has the digest of the line before; --check-log FILE names the first
line that does not fit.

With --signed-by, it is an error if none of the keys has signed the archive
("holdall sign") or the line of a log, or if something has changed since.`,
		Example: `  holdall verify docs.caf
  holdall verify --log fixity.jsonl *.caf
  holdall verify --sample loss=0.1%,confidence=99% s3://bucket/docs.caf
  holdall verify --repair-from https://example.org/docs.caf docs.caf -o repaired.caf`,
		RunE: run(func(ctx context.Context, args []string) error {
			repairs := from != "" || out != "" || inPlace || a.dryRun
			keys, err := trustedKeys(signedBy)
			if err != nil {
				return err
			}
			a.trusted = append(a.trusted, keys...)
			switch {
			case (len(args) == 0) != (logged != ""):
				return usage("expected an archive, or --check-log without one, found %s", count(int64(len(args)), "argument"))
			case logged != "":
				return a.checkLog(logged, a.trusted)
			case o.Quick && sums != "" || o.Sample.Loss > 0 && (o.Quick || sums != ""):
				return usage("expected one of --quick, --sample and --sums")
			case repairs && (from == "" || out != "" && inPlace || out == "" && !inPlace && !a.dryRun || len(args) != 1 || o.Quick || o.Sample.Loss > 0 || sums != ""):
				return usage("expected one archive with --repair-from, and one of -o OUT, --in-place and --dry-run")
			case log != "" && (repairs || sums != ""):
				return usage("--log is for checks, not for --sums and --repair-from")
			case key != "" && log == "":
				return usage("--key signs lines of a log: expected --log")
			case repairs:
				return a.repairFrom(ctx, args[0], from, out, inPlace)
			}
			if o.Sample.Loss > 0 {
				steadyGC(25) // most of the memory is lists of files
			}
			check := func(address string) (bool, error) {
				sum, err := a.verify(ctx, address, o)
				return sum.Errors+sum.Warnings > 0, err
			}
			if log != "" {
				if err := fixity.Ready(ctx, log); err != nil { // before anything is read
					return err
				}
				var secret *minisign.Secret
				if key = cmp.Or(key, os.Getenv("HOLDALL_SIGN_KEY")); key != "" {
					s, err := secretKey(key, password)
					if err != nil {
						return err
					}
					secret = &s
				}
				o.Root = true
				check = func(address string) (bool, error) { return a.logged(ctx, log, address, o, secret) }
			}
			if sums != "" {
				check = func(address string) (bool, error) { return a.sums(ctx, address, sums) }
			}
			bad := false
			err = all(args, func(address string) error {
				found, err := check(address)
				bad = bad || found
				return err
			})
			if a.lastLine != "" {
				a.tell(fixity.Checked{Log: log, Last: a.lastLine}, func() { fmt.Fprintf(a.out, "%s: the last line is %s\n", log, a.lastLine) })
			}
			return cmp.Or(err, answer(bad))
		}),
	}
	cmd.Flags().StringVar(&log, "log", "", "add a line for each archive to this log of checks")
	keyFlags(cmd, &key, &password)
	cmd.Flags().StringVar(&logged, "check-log", "", "check that the lines of this log fit each other")
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "check only the structure, not the content")
	cmd.Flags().BoolVarP(&a.inFull, "verbose", "v", false, "on a terminal: print each problem on one line, with whole digests and names")
	cmd.Flags().StringVar(&from, "repair-from", "", "repair the archive with pieces of this other copy")
	cmd.Flags().StringVarP(&out, "output", "o", "", "with --repair-from: write the repaired archive to this file")
	cmd.Flags().BoolVar(&inPlace, "in-place", false, "with --repair-from: replace the archive, and keep the old one as ARCHIVE.bak")
	cmd.Flags().BoolVarP(&a.dryRun, "dry-run", "n", false, "with --repair-from: "+dryRunUsage)
	a.forceFlag(cmd.Flags())
	cmd.Flags().Var((*sampleFlag)(&o), "sample", "read only as many random blocks as it takes: loss=0.01%,confidence=99.99%")
	cmd.Flags().StringSliceVar(&signedBy, "signed-by", nil, "public key, or a file of one, that must have signed the archive")
	cmd.Flags().Var(newChoice(&sums, "", "sha256", "blake3"), "sums", "print the digest of each file, as sum does: sha256 or blake3")
	return cmd
}

func (a *app) verify(ctx context.Context, address string, how holdall.VerifyOptions) (fixity.Result, error) {
	sum := fixity.Result{Archive: store.Redact(address)}
	st, name, err := a.locateIn(ctx, address)
	if err != nil {
		return sum, err
	}
	m := &holdall.Meter{}
	stop := a.showProgress(m, "checked")
	o := a.openOptions()
	if a.index != "" || st.Can().Near { // looking beside it would take a request
		o.Index = a.useIndex()
		o.Index.Folder = nil // the cached index has no digests
	}
	how.OpenOptions, how.Meter = o.In(st), m
	sum.Verified, err = holdall.Verify(ctx, name, how, a.tellProblem)
	stop()
	if err != nil {
		return sum, err
	}
	if sum.Verdict = sum.Verified.Verdict(); a.json {
		a.printJSON(sum)
		return sum, nil
	}
	c, verdict := a.colours(a.stdout, "", ""), "sound"
	if sum.Verdict == "unproven" {
		verdict = "warning"
	}
	var found []string
	if sum.Errors > 0 {
		found = append(found, c.paint("error", count(sum.Errors, "error")))
	}
	if sum.Warnings > 0 {
		found = append(found, c.paint("warning", count(sum.Warnings, "warning")))
	}
	line := fmt.Sprintf("%s: %s; %s", sum.Archive, cmp.Or(strings.Join(found, ", "), c.paint(verdict, verdicts[sum.Verdict])), count(sum.Entries, "entry"))
	by := map[string]int64{"digest": sum.Proven.Digest, "checksum": sum.Proven.Checksum, "decoding": sum.Proven.Decoding, "nothing": sum.Unproven}
	maps.DeleteFunc(by, func(_ string, n int64) bool { return n == 0 })
	if !how.Quick {
		line += ", " + a.humanSize(sum.Bytes) + provenBy(by)
	}
	if sum.SignedBy != "" {
		line += "; signed by " + sum.SignedBy
	}
	if sum.BeingWritten {
		line += "; being written by another program"
	}
	fmt.Fprintln(a.out, line)
	if sum.Verdict == "unproven" {
		a.sentence("%s: nothing wrong was found, but damage in %s would go unnoticed: 'holdall index --chunk-digests' or 'holdall protect' makes later damage visible", sum.Archive, count(sum.Doubtful(), "file"))
	}
	if s := sum.Sampled; s != nil {
		what := fmt.Sprintf("read %s of %s %ss", thousands(s.Read), thousands(s.Of), s.Unit)
		if s.Wrong > 0 {
			what += fmt.Sprintf(", %s of them wrong", thousands(s.Wrong))
		} else if s.Of > 0 {
			what += fmt.Sprintf(": if %s or more of them were wrong, this would have found it with %s confidence", percent(s.Loss), percent(s.Confidence))
		}
		a.sentence("%s: %s", sum.Archive, what)
	}
	a.printParity(sum.Archive, sum.Parity, how.Quick || sum.Sampled != nil)
	return sum, nil
}

// logged verifies an archive, and adds the result to a log. That an archive cannot be checked is a
// result, too.
func (a *app) logged(ctx context.Context, log, address string, o holdall.VerifyOptions, key *minisign.Secret) (bad bool, err error) {
	sum, err := a.verify(ctx, address, o)
	if ctx.Err() != nil {
		return false, err // nothing is known
	}
	if err != nil {
		sum.Verdict, sum.Error = "error", err.Error()[:min(len(err.Error()), 1<<10)]
	}
	l := fixity.Line{By: whoami(), Tool: "holdall " + versionString(), Result: sum}
	last, lerr := fixity.Append(ctx, log, l, key)
	a.lastLine = cmp.Or(last, a.lastLine)
	return sum.Errors+sum.Warnings > 0, cmp.Or(err, lerr)
}

// whoami returns USER@HOST.
func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + cmp.Or(host, "unknown")
}

// checkLog reports whether the lines of a log fit each other.
func (a *app) checkLog(path string, trusted []string) error {
	keys, err := minisign.ParseKeys(trusted)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := fixity.Check(f, keys)
	if c.Log = path; err != nil {
		return err
	}
	a.tell(c, func() {
		fmt.Fprintf(a.out, "%s: %s in order, %d torn; the last line is %s\n", path, count(c.Lines, "line"), c.Torn, cmp.Or(c.Last, "none"))
		if c.Wrong > 0 {
			fmt.Fprintf(a.out, "%s: line %d does not fit: %s\n", path, c.Wrong, c.Why)
		}
	})
	return answer(c.Wrong > 0)
}

// sampleFlag is how much a sample is to find. A seed repeats it.
type sampleFlag holdall.VerifyOptions

func (s *sampleFlag) Type() string   { return "sample" }
func (s *sampleFlag) String() string { return "" }

func (s *sampleFlag) Set(v string) error {
	const shares, end = "loss=%g%%,confidence=%g%%", " ."
	l, c := &s.Sample.Loss, &s.Sample.Confidence
	if _, err := fmt.Sscanf(v+end, shares+end, l, c); err != nil {
		if _, err = fmt.Sscanf(v+end, shares+",seed=%d"+end, l, c, &s.Sample.Seed); err != nil {
			*l = -1
		}
	}
	if *l, *c = *l/100, *c/100; !(*l > 0 && *l <= 1 && *c > 0 && *c < 1) {
		return errors.New("expected loss=0.01%,confidence=99.99%, with shares above 0 and a confidence below 100%")
	}
	return nil
}

func percent(share float64) string { return strconv.FormatFloat(share*100, 'g', 10, 64) + "%" }

// verdicts are the words for archives without errors and warnings.
var verdicts = map[string]string{"sound": "sound", "structure-sound": "the structure is sound", "sample-sound": "the sample is sound", "unproven": "unproven"}

// printParity prints what protects an archive, and how much more loss it could
// repair.
func (a *app) printParity(shown string, r *holdall.ParityReport, quick bool) {
	if r == nil || r.NotUsed != "" {
		return
	}
	a.printBeyond(r)
	by := "protected by " + r.At
	if r.Objects > 1 && r.Looked < r.Blocks && !quick {
		by += ", if the other files of the set are sound"
	}
	more := fmt.Sprintf(" (%s)", shareText(r.Share))
	if r.Share > 1.001*float64(r.Spare)/float64(r.Blocks) {
		more = fmt.Sprintf(", or %s in one run,", shareText(r.Share))
	}
	switch {
	case quick:
		a.sentence("%s: %s", shown, by)
	case r.Beyond() > 0:
		a.sentence("%s: %s of %d bytes damaged, %d of them too many for %s", shown, count(r.Damaged, "block"), r.Block, r.Beyond(), r.At)
	case r.Harmed():
		a.sentence("%s: %s of %d bytes damaged, and can be healed with %s; any %s more%s could be lost", shown, count(r.Damaged, "block"), r.Block, r.At, count(r.Spare, "block"), more)
	default:
		a.sentence("%s: %s; any %s of %d bytes%s could be lost", shown, by, count(r.Spare, "block"), r.Block, more)
	}
}

// printBeyond names the files that are damaged beyond the parity.
func (a *app) printBeyond(r *holdall.ParityReport) {
	for _, name := range r.Files {
		fmt.Fprintf(a.out, "%s %s\n", a.colours(a.stdout, "", "").paint("error", "cannot be healed:"), quoteEmpty(format.Escape(name)))
	}
	if more := r.FilesBeyond - int64(len(r.Files)); more > 0 {
		fmt.Fprintf(a.out, "cannot be healed: %s more\n", count(more, "file"))
	}
}

type healedJSON struct {
	repairedJSON
	Damaged int64 `json:"damaged"`
	Healed  int64 `json:"healed"`
	Fetched int64 `json:"fetched_bytes"`
}

func (a *app) repairFrom(ctx context.Context, address, from, out string, inPlace bool) error {
	return a.locked(ctx, address, inPlace && !a.dryRun, func(st store.Store, name string) error {
		o := a.openOptions()
		o.Index = a.useIndex()
		o.Index.Folder = nil // it has no digests
		m := &holdall.Meter{}
		stop := a.showProgress(m, "checked")
		plan, err := holdall.Repair(ctx, name, holdall.RepairOptions{OpenOptions: o.In(st), From: from, Force: a.force, Meter: m})
		stop()
		if err != nil {
			return err
		}
		defer plan.Close()
		r := healedJSON{repairedOf(plan, out), plan.Damaged, plan.Healed, plan.Fetched}
		if r.Changed {
			r.Notes = append(r.Notes, fmt.Sprintf("%s of %s damaged, %s fetched", count(r.Healed, "piece"), count(r.Damaged, "piece"), a.humanSize(r.Fetched)))
		}
		if err := a.carryOut(ctx, address, plan, st, name, &r.repairedJSON); err != nil {
			return err
		}
		a.tell(r, func() { a.printRepaired(r.repairedJSON) })
		return answer(plan.Partial)
	})
}

type sumJSON struct {
	pathJSON
	Size   int64  `json:"size"`
	Digest string `json:"digest"`
}

// sums writes a line a file, as sha256sum -c and b3sum -c read it.
func (a *app) sums(ctx context.Context, address, algo string) (bad bool, err error) {
	in, err := a.open(ctx, address, false)
	if err != nil {
		return false, err
	}
	defer a.close(ctx, in)
	m := &holdall.Meter{}
	stop := a.showProgress(m, "read")
	defer stop()
	return bad, in.Sums(ctx, algo, m, func(e holdall.Entry, d format.Digest, err error) error {
		if err != nil {
			bad = true
			a.report(err)
			return nil
		}
		if a.json {
			a.printJSON(sumJSON{pathOf(e.Name), e.Size, d.String()})
			return nil
		}
		_, err = a.out.WriteString(sumLine(e.Name, d))
		return err
	})
}

// sumLine returns a line of a list of checksums. A leading backslash shows
// that the name has characters escaped that would end the line.
func sumLine(name string, d format.Digest) string {
	mark := ""
	if strings.ContainsAny(name, "\\\n\r") {
		mark, name = `\`, root.Escapes.Replace(name)
	}
	return fmt.Sprintf("%s%s  %s\n", mark, hex.EncodeToString([]byte(d.Sum)), name)
}
