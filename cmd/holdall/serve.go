package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/autopsy"
	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
)

func (a *app) serveCommand() *cobra.Command {
	var o serving
	cmd := &cobra.Command{
		Use:   "serve ARCHIVE|FOLDER|PREFIX...",
		Short: "Serve archives to browsers, HTTP clients and S3 clients",
		Long: `Serves the content of archives over HTTP, read-only, until you interrupt it:
files and ranges of files, folder listings, folders as zip, and Zarr arrays. If
a folder or a prefix in a bucket is not an archive itself, all archives in it
are served, also those added later. They are opened at the first request.

An archive is at /f/NAME/, where NAME is the last element of its address; a
second x.caf is x.caf-2.

By default only this machine can connect, and requests with another host name
are refused; --addr sets another address. Tokens and secrets have at least 8
characters. Give them as @FILE: other users of the machine may see a command
line.`,
		Example: `  holdall serve docs.caf
  holdall serve --addr 127.0.0.1:0 a.caf b.caf /data/archives s3://bucket/archives/
  holdall serve --addr 0.0.0.0:7070 --token @token.txt --tls-cert cert.pem --tls-key key.pem docs.caf
  holdall serve --s3 --s3-key ID:SECRET docs.caf`,
		RunE: run(func(ctx context.Context, args []string) error {
			if len(args) == 0 && o.catalog == "" && o.write == "" {
				return usage("expected an archive, --catalog or --write")
			}
			if o.write != "" && !o.s3 {
				return usage("--write needs --s3")
			}
			if o.durable != "disk" && o.durable != "bucket" {
				return usage("--durable %s: expected disk or bucket", o.durable)
			}
			if o.write == "" && (o.log != "" || o.protect > 0 || o.durable != "disk" || o.public != "" || o.takeOver) {
				return usage("--durable, --log, --protect, --write-url and --take-over need --write")
			}
			switch write := o.write != ""; {
			case write && len(a.trusted) > 0:
				return usage("--trusted: what clients write is not signed, so --write does not go with it")
			case len(a.through) > 0 && (o.catalog != "") == write:
				return usage("--through needs either --catalog or --write")
			case write && len(a.through) > 0 && (len(a.through) > 1 || !isBook(strings.TrimRight(o.write, "/"))):
				return usage("--through with --write: expected one address, and one CATALOG to write into")
			case o.adopt && !write:
				return usage("--adopt needs --write")
			case write && len(a.through) > 0:
				o.through, a.through = a.through[0], nil
			}
			if err := a.checkServing(&o); err != nil {
				return &usageError{err}
			}
			return a.serve(ctx, args, o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.addr, "addr", "127.0.0.1:7070", "HOST:PORT to listen on; port 0 takes a free one")
	f.StringSliceVar(&o.cors, "cors", nil, "let web pages of these origins read the archives; --cors alone allows all")
	f.Lookup("cors").NoOptDefVal = "*"
	f.BoolVar(&o.files, "files", false, "serve the files of a plain folder, not the archives in it")
	f.BoolVar(&o.s3, "s3", false, "also serve S3 clients, at --s3-addr")
	f.StringVar(&o.s3Addr, "s3-addr", "127.0.0.1:7071", "HOST:PORT to listen on for S3 clients")
	f.StringVar(&o.s3Key, "s3-key", "", "ID:SECRET that S3 clients must sign with, or @FILE (default $HOLDALL_SERVE_S3_KEY, or none)")
	f.StringVar(&o.write, "write", "", "take what S3 clients write into the catalogue, or those in the folder, at this `address`")
	f.StringVar(&o.durable, "durable", "disk", "with --write: what answers wait for: `disk`, a log on this machine, or bucket, an archive and a commit there")
	f.StringVar(&o.log, "log", "", "with --write: folder for what is not packed yet (default: that of the catalogues)")
	f.Var(&o.protect, "protect", "with --write: write parity beside each archive that can restore this share of it: 5%")
	f.StringVar(&o.public, "write-url", "", "with --write: the `URL` at which other gateways reach this one")
	f.BoolVar(&o.adopt, "adopt", false, "with --write: also pack what was read from the bucket of --through")
	f.BoolVar(&o.takeOver, "take-over", false, "with --write: continue without the log of another gateway, which is lost")
	f.StringVar(&o.token, "token", "", "TOKEN that requests must send, or @FILE or $HOLDALL_SERVE_TOKEN")
	f.StringVar(&o.cert, "tls-cert", "", "file with the TLS certificate, in PEM")
	f.StringVar(&o.key, "tls-key", "", "file with the key of the certificate, in PEM")
	f.StringVar(&o.catalog, "catalog", "", "serve the original buckets of the archives in this catalogue")
	f.StringArrayVar(&a.through, "through", nil, "also show objects of this `bucket`: with --catalog, those that are not packed yet; may be repeated. With --write, those that were never here; none ends this for good")
	f.IntVar(&o.maxRequests, "max-requests", 512, "requests to answer at once")
	f.IntVar(&o.maxOpen, "max-open", 32, "unused archives of folders to keep open")
	f.BoolVar(&o.logRequests, "log-requests", false, "log every request to standard error")
	return cmd
}

type serving struct {
	addr        string
	cors        []string
	files       bool
	s3          bool
	s3Addr      string
	s3Key       string
	token       string
	cert, key   string
	maxRequests int
	maxOpen     int
	logRequests bool
	browse      bool // a browser is to be started
	catalog     string
	write       string
	durable     string
	log         string
	public      string
	protect     shareFlag
	takeOver    bool
	through     string // of what is written
	adopt       bool

	signed serve.Key
}

// minToken is the minimum length of a token: shorter ones could be guessed.
const minToken = 8

// checkServing checks flags before anything is opened, and reads secrets from
// files.
func (a *app) checkServing(o *serving) (err error) {
	for flag, at := range map[string]string{"addr": o.addr, "s3-addr": o.s3Addr} {
		if _, _, err := net.SplitHostPort(at); err != nil {
			return fmt.Errorf("--%s %s: expected HOST:PORT", flag, at)
		}
	}
	for _, origin := range o.cors {
		if err := serve.CheckOrigin(origin); err != nil {
			return fmt.Errorf("--cors %s: %w", origin, err)
		}
	}
	if (o.cert == "") != (o.key == "") {
		return errors.New("--tls-cert and --tls-key: expected both or neither")
	}
	if o.maxRequests < 1 || o.maxOpen < 1 {
		return errors.New("--max-requests and --max-open: expected at least 1")
	}
	if o.token, err = secretOf(o.token, "HOLDALL_SERVE_TOKEN"); err != nil {
		return fmt.Errorf("--token: %w", err)
	}
	if o.token != "" && (len(o.token) < minToken || strings.ContainsFunc(o.token, func(r rune) bool { return r <= ' ' || r >= 0x7f })) {
		return fmt.Errorf("--token: expected at least %d ASCII characters without spaces", minToken)
	}
	key, err := secretOf(o.s3Key, "HOLDALL_SERVE_S3_KEY")
	if err != nil {
		return fmt.Errorf("--s3-key: %w", err)
	}
	if key != "" {
		id, secret, ok := strings.Cut(key, ":")
		if !ok || id == "" || len(secret) < minToken {
			return fmt.Errorf("--s3-key: expected ID:SECRET with a secret of at least %d characters", minToken)
		}
		o.signed = serve.Key{ID: id, Secret: secret}
	}
	if o.s3 && o.token != "" && key == "" {
		return errors.New("--s3 with --token needs --s3-key: S3 clients send no token")
	}
	return nil
}

// secretOf returns a secret from a flag, from the file that the flag names, or
// from the environment.
func secretOf(flag, variable string) (string, error) {
	if flag == "" {
		return os.Getenv(variable), nil
	}
	name, isFile := strings.CutPrefix(flag, "@")
	if !isFile {
		return flag, nil
	}
	b, err := os.ReadFile(name)
	text := strings.TrimSpace(string(b))
	if err == nil && text == "" {
		err = fmt.Errorf("%s: expected a secret, found nothing", name)
	}
	return text, err
}

type exploreJSON struct {
	Explore string `json:"explore"`
	Token   string `json:"token,omitempty"` // "needed": in the query, once
}

type servedJSON struct {
	Archive string     `json:"archive"`
	URL     string     `json:"url"`
	Error   *errorJSON `json:"error,omitempty"` // why it cannot be read now
}

// shutdownGrace is how long requests may continue when the server is to end.
const shutdownGrace = 1500 * time.Millisecond

func (a *app) logTo(w io.Writer) slog.Handler {
	if a.json {
		return slog.NewJSONHandler(w, nil)
	}
	return slog.NewTextHandler(w, nil)
}

func (a *app) serve(ctx context.Context, addresses []string, o serving) (done error) {
	leanGC(32 << 20)
	logs := a.logTo(a.stderr)
	log := slog.New(logs)
	ctx, stop := context.WithCancel(ctx)
	set := serve.NewSet(serve.SetOptions{MaxOpen: o.maxOpen, Log: log})
	defer func() {
		stop()
		set.Close()
	}()
	shown, err := a.fillSet(ctx, set, addresses, o)
	if err != nil {
		return err
	}
	var keeper serve.Keeper
	if o.write != "" {
		g, err := a.openGateway(ctx, set, o, log)
		if err != nil {
			return err
		}
		defer func() { done = errors.Join(done, closeGateway(g)) }()
		keeper = g
		shown = append(shown, servedJSON{Archive: store.Redact(o.write), URL: "/"})
	}
	var doors []*entrance
	near := func() bool { return doors[0].at.IP.IsLoopback() }
	page := explore.New(set, explore.Options{Log: log, Near: near, Extra: a.extraOf})
	defer page.Close()
	// Otherwise the server would wait for event streams, such as that of a check.
	defer context.AfterFunc(ctx, func() { page.Close() })()
	site := serve.NewSite(set, serve.SiteOptions{Page: page, CORS: o.cors, Token: o.token, TLS: o.cert != "", MaxRequests: o.maxRequests, Log: log, LogRequests: o.logRequests, Version: versionString()})
	doors = []*entrance{{addr: o.addr, handler: site, open: o.token == ""}}
	if o.s3 {
		doors = append(doors, &entrance{addr: o.s3Addr, handler: serve.NewS3(site, serve.S3Options{Key: o.signed, Keeper: keeper}), open: o.signed.ID == "", writes: o.write != ""})
	}
	if err := a.listen(ctx, doors, o); err != nil {
		return err
	}
	door := doors[0].url(o, "/")
	a.sayWhere(door, o)
	for _, x := range shown {
		x.URL = doors[0].url(o, x.URL)
		if x.Error != nil && !a.json {
			continue // it has been reported
		}
		a.say(x, "serving %s at %s\n", printable(x.Archive), x.URL)
	}
	if o.s3 {
		at := doors[1].url(o, "")
		a.say(map[string]any{"s3": at}, "serving buckets at %s\n", at)
	}
	if err := a.out.Flush(); err != nil {
		return errors.Join(err, closeAll(doors))
	}
	var browser sync.WaitGroup
	defer browser.Wait()
	if o.browse {
		browser.Go(func() { a.openBrowser(ctx, door+"?token="+o.token) })
	}
	return answerAt(ctx, doors, slog.NewLogLogger(logs, slog.LevelWarn))
}

// without reports an error that concerns one of several archives, so that a verb
// that stays goes on without it. If that cannot be, it returns the error.
func (a *app) without(ctx context.Context, err error, archives int) (*errorJSON, error) {
	if err == nil || archives == 1 || ctx.Err() != nil {
		return nil, err
	}
	a.report(err)
	said := describe(err)
	return &said, nil
}

// fillSet finds the archives to serve, and reports where each will be, by its
// path alone. An archive that cannot be opened now is opened when it is requested.
func (a *app) fillSet(ctx context.Context, set *serve.Set, addresses []string, o serving) (shown []servedJSON, err error) {
	ready := o.catalog != "" || o.write != ""
	for _, address := range addresses {
		p, err := a.whatToServe(ctx, address, o.files)
		if err != nil {
			return nil, err
		}
		if p.folder != nil {
			set.AddFolder(*p.folder)
			ready = true
			shown = append(shown, servedJSON{Archive: store.Redact(address), URL: "/"})
			continue
		}
		p.source.Keep = true
		name := set.Add(p.source)
		// Open it now: what cannot be served is reported before serving starts.
		in, err := set.Use(ctx, name, "")
		several := len(addresses)
		if o.browse && (errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrUnknown)) {
			if left, lerr := set.Use(ctx, name, autopsy.Bytes); lerr == nil { // the page shows what is left of it
				left.Release()
				ready, several = true, several+1
			}
		}
		if err == nil {
			ready = true
			in.Release()
		}
		said, err := a.without(ctx, err, several)
		if err != nil {
			return nil, err
		}
		shown = append(shown, servedJSON{store.Redact(address), "/f/" + name + "/", said})
	}
	if !ready && len(addresses) > 0 {
		return nil, errSaid
	}
	a.address = "" // from here on, errors are about no archive in particular
	if o.catalog != "" {
		p, err := a.bucketsToServe(ctx, o.catalog)
		if err != nil {
			return nil, err
		}
		set.AddFolder(*p.folder)
		shown = append(shown, servedJSON{Archive: shownCatalog(o.catalog), URL: "/"})
	}
	_, err = set.List(ctx)
	return shown, err
}

// say reports events: to people on standard error, to programs as results.
func (a *app) say(result any, text string, args ...any) {
	if a.json {
		a.printJSON(result)
	} else if !a.quiet {
		fmt.Fprintf(a.stderr, text, args...)
	}
}

// sayWhere prints the address of the explorer and how to log in. It does not
// print a token that the user chose, but does print a generated one.
func (a *app) sayWhere(door string, o serving) {
	said, how := exploreJSON{Explore: door}, ""
	switch {
	case o.browse:
		said.Explore += "?token=" + o.token
	case o.token != "":
		said.Token, how = "needed", " (the first time with ?token=...)"
	}
	if a.json {
		a.printJSON(said)
	} else if !a.quiet || o.browse {
		fmt.Fprintf(a.stderr, "explore at %s%s\n", said.Explore, how)
	}
}

type entrance struct {
	addr    string
	handler http.Handler
	open    bool // to everyone
	writes  bool
	ln      net.Listener
	at      *net.TCPAddr
}

// url returns the address of a path for clients on this machine.
func (d *entrance) url(o serving, path string) string {
	u := url.URL{Scheme: "http", Host: d.at.IP.String(), Path: path}
	if o.cert != "" {
		u.Scheme = "https"
	}
	if d.at.IP.IsUnspecified() {
		u.Host = "localhost"
	}
	u.Host = net.JoinHostPort(u.Host, strconv.Itoa(d.at.Port))
	return u.String()
}

func closeAll(doors []*entrance) (errs error) {
	for _, d := range doors {
		if d.ln != nil {
			errs = errors.Join(errs, d.ln.Close())
		}
	}
	return errs
}

// listen opens the listeners, and warns who can connect to them.
func (a *app) listen(ctx context.Context, doors []*entrance, o serving) error {
	var crypto *tls.Config
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return fmt.Errorf("--tls-cert: %w", err)
		}
		crypto = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	for _, d := range doors {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", d.addr)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", d.addr, err), closeAll(doors))
		}
		d.at = ln.Addr().(*net.TCPAddr)
		if d.ln = serve.Joined(ln); crypto != nil {
			d.ln = tls.NewListener(d.ln, crypto)
		}
		switch {
		case d.at.IP.IsLoopback():
			d.handler = serve.LocalOnly(d.handler)
		case d.open && d.writes:
			return errors.Join(usage("--write at %s needs --s3-key: anyone who can reach this machine could write and delete", d.at), closeAll(doors))
		case d.open:
			a.warn("listening at %s: anyone who can reach this machine can read everything served", d.at)
		case crypto == nil:
			a.warn("listening at %s without encryption: others on the network can read the traffic", d.at)
		}
	}
	return nil
}

// answerAt serves until ctx ends, and returns the reason. Running requests
// then have a moment to finish.
func answerAt(ctx context.Context, doors []*entrance, errs *log.Logger) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var archives sync.RWMutex // held for reading by requests; locked before they are closed
	failed := make(chan error, len(doors))
	var servers []*http.Server
	for _, d := range doors {
		srv := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !archives.TryRLock() {
					panic(http.ErrAbortHandler)
				}
				defer archives.RUnlock()
				d.handler.ServeHTTP(w, r)
			}),
			ReadHeaderTimeout: 10 * time.Second,
			// There is no ReadTimeout and no WriteTimeout: they would end long downloads.
			// Each piece of a response has a deadline of its own.
			IdleTimeout:    2 * time.Minute,
			MaxHeaderBytes: 64 << 10,
			ErrorLog:       errs,
			BaseContext:    func(net.Listener) context.Context { return requests },
			ConnContext:    serve.JoinedContext,
		}
		servers = append(servers, srv)
		go func() { failed <- srv.Serve(d.ln) }()
	}
	var err error
	left := len(doors)
	select {
	case err = <-failed:
		left--
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	grace, cancel := context.WithTimeout(requests, shutdownGrace)
	defer cancel()
	var shut sync.WaitGroup
	for _, srv := range servers {
		shut.Go(func() {
			if srv.Shutdown(grace) != nil {
				end()
				srv.Close()
			}
		})
	}
	shut.Wait()
	for range left {
		<-failed
	}
	archives.Lock()
	return err
}
