package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/base/minisign"
	"github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/internal/write/output"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

type signedJSON struct {
	Archive   string `json:"archive"`
	Signature string `json:"signature"`
	Key       string `json:"key"`
	holdall.Statement
}

func (a *app) signCommand() *cobra.Command {
	var key, made, password string
	noIndex := false
	cmd := &cobra.Command{
		Use:   "sign ARCHIVE...",
		Short: "Sign archives, so that readers know who made them",
		Long: `Reads all of an archive, compares it with its checksums, and writes an index
with digests to ARCHIVE.holdall. Then signs the roots of the archive, which
stand for everything in it, and writes the signature to ARCHIVE.minisig. A
damaged archive is not signed.

Keys and signatures are those of minisign. --new-key makes a key: FILE must stay
secret, and FILE.pub is for your readers. With --trusted FILE.pub, verbs read
nothing that the signature does not cover.

For a catalogue, holdall signs the newest commit, and does not read the
archives.

--no-index writes no index. Readers then compare the list of the archive with
the signature, so each file must have a BLAKE3 digest, as in CAF and RVN.`,
		Example: `  holdall sign --new-key release.key
  holdall sign docs.caf --key release.key
  holdall --trusted release.key.pub cat docs.caf guide/intro.md
  holdall verify --signed-by release.key.pub docs.caf`,
		Args: args(0, -1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			if made != "" {
				if len(args) > 0 || key != "" {
					return usage("expected no archive with --new-key")
				}
				return a.newKey(made)
			}
			key = cmp.Or(key, os.Getenv("HOLDALL_SIGN_KEY"))
			if len(args) == 0 || key == "" {
				return usage("expected an archive and --key FILE")
			}
			secret, err := secretKey(key, password)
			if err != nil {
				return err
			}
			return all(args, func(address string) error { return a.sign(ctx, address, secret, noIndex) })
		}),
	}
	keyFlags(cmd, &key, &password)
	cmd.Flags().StringVar(&made, "new-key", "", "make a key without a password: FILE, and FILE.pub for readers")
	cmd.Flags().BoolVar(&noIndex, "no-index", false, "write no index, and sign only the root of the contents")
	a.forceFlag(cmd.Flags())
	return cmd
}

func keyFlags(cmd *cobra.Command, key, password *string) {
	cmd.Flags().StringVar(key, "key", "", "file of the secret key to sign with (default $HOLDALL_SIGN_KEY)")
	cmd.Flags().Var((*passwordFlag)(password), "key-password-file", "file with the password of the key, in its first line")
}

// secretKey reads a file of a secret key.
func secretKey(name, password string) (s minisign.Secret, err error) {
	file, err := readKey(name)
	if err != nil {
		return s, err
	}
	s, err = minisign.ParseSecret(file, password)
	if errors.Is(err, minisign.ErrPassword) {
		err = fmt.Errorf("%w: --key-password-file names a file with it", err)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return s, err
}

// readKey returns the content of a file of a key.
func readKey(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, minisign.MaxFile+1))
}

// newKey writes a new key. It replaces no file.
func (a *app) newKey(name string) error {
	secret, err := minisign.NewSecret()
	if err != nil {
		return err
	}
	for _, at := range []string{name, name + ".pub"} { // no key is left without the other one
		if _, err := os.Lstat(at); err == nil {
			return &fs.PathError{Op: "open", Path: at, Err: syscall.EEXIST}
		}
	}
	for _, f := range []struct {
		name string
		mode os.FileMode
		b    []byte
	}{{name, 0o600, secret.File()}, {name + ".pub", 0o644, secret.Public().File()}} {
		w, err := os.OpenFile(f.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
		if err != nil {
			return err
		}
		_, err = w.Write(f.b)
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
	}
	k := secret.Public()
	a.say(map[string]string{"secret": name, "public": name + ".pub", "key": k.ID(), "text": k.String()}, "%s: the secret key %s\n%s.pub: the public key, for --trusted: %s\n", name, k.ID(), name, k)
	return nil
}

func (a *app) sign(ctx context.Context, address string, secret minisign.Secret, noIndex bool) error {
	if err := a.oneByOne(ctx, address); err != nil {
		return err
	}
	st, name, err := a.locateIn(ctx, address)
	if err != nil {
		return err
	}
	roots := func(m *holdall.Meter) (holdall.Statement, error) { return a.roots(ctx, st, name, noIndex, m) }
	if s, is := st.(*shelf.Shelf); is {
		if name != shelf.Tree || noIndex {
			return usage("%s is a catalogue: sign the whole catalogue, without --no-index", format.Escape(a.address))
		}
		st, name = s.Catalog().Store(), s.Catalog().Name()
		roots = func(m *holdall.Meter) (holdall.Statement, error) { return a.catalogRoots(ctx, st, name, m) }
	}
	name = strings.TrimRight(name, "/")
	sig := name + root.Suffix
	g := output.Guard{Kind: "a signature", Ours: func(p format.Probe) bool { return bytes.HasPrefix(p.Head, []byte("untrusted comment: ")) }, Force: a.force}
	if err := g.Check(ctx, st, sig); err != nil {
		return err
	}
	m := &holdall.Meter{}
	stop := a.showProgress(m, "read")
	s, err := roots(m)
	stop()
	if err != nil {
		return err
	}
	file := secret.Sign(s.Text(), s.Comment(fmt.Sprintf("file:%s, time:%s", path.Base(name), time.Now().UTC().Format(time.RFC3339))))
	if _, err := storekit.Write(ctx, st, sig, func(w store.Writer) error {
		_, err := w.Write(file)
		return err
	}); err != nil {
		return err
	}
	id, shown := secret.Public().ID(), store.Redact(address)
	a.say(signedJSON{shown, path.Base(sig), id, s}, "%s: signed with key %s, in %s\n", shown, id, path.Base(sig))
	return nil
}

// roots returns the roots of a sound archive. Unless there is to be none, it writes an index.
func (a *app) roots(ctx context.Context, st store.Store, name string, noIndex bool, m *holdall.Meter) (s holdall.Statement, err error) {
	o := a.openOptions().In(st)
	if noIndex {
		sum, err := holdall.Verify(ctx, name, holdall.VerifyOptions{OpenOptions: o, Meter: m}, a.tellProblem)
		if err == nil && sum.Errors+sum.Warnings > 0 {
			err = errors.New("it is damaged, so it is not signed")
		}
		if err != nil {
			return s, err
		}
		in, err := holdall.Open(ctx, name, o)
		if err != nil {
			return s, err
		}
		defer in.Close()
		return in.Roots(ctx, nil)
	}
	stage := storekit.NewStage(st)
	defer stage.Discard()
	sum, err := holdall.BuildIndex(ctx, name, "", holdall.IndexOptions{OpenOptions: o, To: stage, Chunk: 256 << 10, Force: a.force, OnError: a.tellProblem, Meter: m})
	if err == nil && sum.Unproven > 0 {
		err = fmt.Errorf("%s damaged, so it is not signed", count(sum.Unproven, "file"))
	}
	if err == nil && sum.Contents == "" {
		err = errors.New("some entries cannot be read, so it is not signed")
	}
	if err == nil {
		err = stage.Publish(ctx)
	}
	return sum.Statement, err
}

// catalogRoots returns the roots of a sound catalogue. That of the archive is of its state, which is stored.
func (a *app) catalogRoots(ctx context.Context, st store.Store, name string, m *holdall.Meter) (s holdall.Statement, err error) {
	b, err := book.Open(ctx, st, name, book.Options{Write: true})
	if err != nil {
		return s, err
	}
	sum, err := b.Seal(ctx)
	if err = errors.Join(err, b.Close()); err != nil {
		return s, err
	}
	if b, err = book.Open(ctx, st, name, book.Options{Signed: book.Signed{Sum: sum}}); err != nil {
		return s, err
	}
	defer b.Close()
	in, done, err := a.openTree(ctx, b)
	if err != nil {
		return s, err
	}
	defer done()
	s, err = in.Roots(ctx, m)
	s.Archive = sum
	return s, err
}

// trustsNothing are verbs that read no content of archives, or compare all of it by themselves.
var trustsNothing = []string{"pack", "protect", "sign", "index", "formats", "cache", "version", "man", "help", "completion"}

// trusts reads the keys of --trusted. It returns an error for verbs that would not obey it.
func (a *app) trusts(cmd *cobra.Command) (err error) {
	for cmd.HasParent() && cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	switch name := cmd.Name(); {
	case slices.Contains(trustsNothing, name):
		a.trusted = nil
		return nil
	case !slices.Contains(trustsKeys, name):
		return usage("--trusted: this verb does not check signatures")
	}
	a.trusted, err = trustedKeys(a.trusted)
	return err
}

// trustsKeys are the verbs that read only what is signed.
var trustsKeys = []string{"ls", "tree", "cat", "find", "grep", "extract", "diff", "sum", "convert", "mount", "serve", "browse", "verify"}

// trustedKeys returns the public keys that --trusted names: files, or keys themselves.
func trustedKeys(named []string) (keys []string, err error) {
	for _, name := range named {
		k, err := minisign.ParseKey([]byte(name))
		if err != nil {
			file, ferr := readKey(name)
			if ferr != nil {
				return nil, ferr
			}
			if k, err = minisign.ParseKey(file); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		keys = append(keys, k.String())
	}
	return keys, nil
}

func (a *app) sumCommand() *cobra.Command {
	algo, roots := "", false
	cmd := &cobra.Command{
		Use:   "sum ARCHIVE...",
		Short: "Print the digest of each file, or one for all of an archive",
		Long: `Prints the digest of each file, as lines for b3sum -c or sha256sum -c. Digests
in the archive are used as recorded; other files are read, and come last. Hard
links are left out. The exit code is 1 if something is damaged.

--root prints the roots, digests that stand for the whole archive and that
"holdall sign" signs. The root of the contents covers names, kinds, sizes and
contents, and stays the same if the archive is converted to another format. The
root of the archive covers everything in an index with digests, if there is one.`,
		Example: `  holdall sum --algo sha256 docs.caf > SHA256SUMS
  holdall sum --root docs.caf`,
		Args: args(1, -1, "an archive"),
		RunE: run(func(ctx context.Context, args []string) error {
			if roots && len(args) > 1 {
				return usage("expected one archive with --root")
			}
			bad := false
			err := all(args, func(address string) error {
				if roots {
					return a.printRoots(ctx, address)
				}
				found, err := a.sums(ctx, address, algo)
				bad = bad || found
				return err
			})
			return cmp.Or(err, answer(bad))
		}),
	}
	cmd.Flags().Var(newChoice(&algo, "blake3", "sha256"), "algo", "the digest: blake3 or sha256")
	cmd.Flags().BoolVar(&roots, "root", false, "print the roots of the archive")
	return cmd
}

func (a *app) printRoots(ctx context.Context, address string) error {
	return a.use(ctx, address, false, func(in *holdall.Archive) error {
		m := &holdall.Meter{}
		stop := a.showProgress(m, "read")
		s, err := in.Roots(ctx, m)
		stop()
		if err == nil {
			a.tell(s, func() { a.out.Write(s.Text()) })
		}
		return err
	})
}
