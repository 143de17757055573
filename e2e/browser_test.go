package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdall/holdall/internal/testkit"
)

// findChromium returns a browser of Chromium's family. Where there is none a test is skipped.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("HOLDALL_CHROMIUM"), "headless-shell", "chromium-headless-shell", "chromium", "google-chrome"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	testkit.Missing(t, "browser", "there is no Chromium: apt-get install chromium-headless-shell, or name one by HOLDALL_CHROMIUM")
	return ""
}

var browser struct {
	once sync.Once
	ctx  context.Context
	stop func()
}

func TestMain(m *testing.M) {
	testkit.Main(m, func() error {
		if browser.stop != nil {
			browser.stop()
		}
		if builtIn != "" {
			return os.RemoveAll(builtIn)
		}
		return nil
	})
}

// chromium returns the browser of all tests: each has a tab of its own.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path := findChromium(t)
	browser.once.Do(func() {
		dir, err := os.MkdirTemp("", "holdall-e2e-")
		if err != nil {
			t.Fatal(err)
		}
		opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.Env("TMPDIR="+dir), chromedp.WindowSize(1280, 800), chromedp.Flag("autoplay-policy", "no-user-gesture-required"))
		alloc, endAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
		ctx, end := chromedp.NewContext(alloc)
		browser.ctx, browser.stop = ctx, func() { end(); endAlloc(); os.RemoveAll(dir) }
		if err := chromedp.Do(ctx); err != nil {
			t.Fatal(err)
		}
	})
	return browser.ctx
}

// A tab is an open page. Its test fails if the page writes an error to its console or sends a
// request to a foreign host.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	complain []string
	expected []string // parts of errors that are meant
}

func open(t *testing.T, srv *server) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium(t))
	b := &tab{t: t, ctx: ctx, url: srv.url}
	var watching sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		watching.Wait()
		for _, c := range b.complain {
			t.Error(c)
		}
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	messages, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	watching.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleException {
				b.wrong("the console says: " + m.Text + " at " + m.URL)
			}
		}
	})
	watching.Go(func() {
		for r, err := range requests {
			if err != nil {
				return
			}
			if u := r.Request.URL; !strings.HasPrefix(u, srv.url+"/") && !strings.HasPrefix(u, "data:") && !strings.HasPrefix(u, "blob:") && u != "about:blank" {
				b.wrong("it asks another host: " + u)
			}
		}
	})
	b.size(1280, 800)
	b.media("light")
	return b
}

func (b *tab) wrong(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.expected {
		if strings.Contains(what, e) {
			return
		}
	}
	b.complain = append(b.complain, what)
}

// expect lets errors of the console pass that are meant.
func (b *tab) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, part)
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) size(w, h int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(w, h))
}

// media sets whether the page is light or dark. It asks for no motion.
func (b *tab) media(scheme string) { b.t.Helper(); b.emulate(scheme, "reduce") }

func (b *tab) emulate(scheme, motion string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion}}})
	if err != nil {
		b.t.Fatal(err)
	}
}

// go to a place of the page, and wait until it is shown.
func (b *tab) visit(hash string) {
	b.t.Helper()
	if strings.HasPrefix(b.text("location.href"), b.url) {
		b.run("document.body.dataset.ready = ''; location.hash = " + quote(hash))
	} else {
		b.do(chromedp.Navigate(b.url + "/" + hash))
	}
	b.ready()
}

func (b *tab) ready() { b.t.Helper(); b.wait("document.body.dataset.ready === '1'") }

// eval asks the page.
func eval[T any](b *tab, js string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](js, func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }))
	if err != nil {
		b.t.Fatalf("%s: %v", js, err)
	}
	return v
}

func (b *tab) text(js string) string { b.t.Helper(); return eval[string](b, "String("+js+")") }
func (b *tab) run(js string)         { b.t.Helper(); eval[chromedp.Void](b, "(() => { "+js+" })()") }

// patience is for pages that hang. A slow machine needs far less.
const patience = 2 * time.Minute

// wait waits until the page says so.
func (b *tab) wait(js string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(8 * time.Millisecond) {
		if eval[bool](b, "!!("+js+")") {
			return
		}
		if time.Now().After(deadline) {
			b.shot("failed-" + strings.ReplaceAll(b.t.Name(), "/", "-"))
			b.t.Fatalf("never so: %s\nstate: %s\nmain: %.600s\ndetail: %.400s", js, b.text("JSON.stringify(document.body.dataset)"), b.text("document.getElementById('main').innerText"), b.text("document.getElementById('detail').innerText"))
		}
	}
}

// key presses keys.
func (b *tab) key(keys string) { b.t.Helper(); b.do(chromedp.KeyEvent(keys)) }

func (b *tab) down(n int) { b.t.Helper(); b.key(strings.Repeat(kb.ArrowDown, n)) }

// find types into the search. The driver sends a slash though the page took its key.
func (b *tab) find(q string) {
	b.t.Helper()
	b.key("/")
	b.wait("document.activeElement.id === 'q'")
	b.run("document.getElementById('q').value = ''")
	b.key(q)
}

type rect struct{ X, Y, W, H float64 }

func (b *tab) rect(sel string) rect {
	b.t.Helper()
	return eval[rect](b, `(r => ({X: r.x, Y: r.y, W: r.width, H: r.height}))(document.querySelector(`+quote(sel)+`).getBoundingClientRect())`)
}

// click clicks into the middle of an element.
func (b *tab) click(sel string) {
	b.t.Helper()
	r := b.rect(sel)
	b.do(chromedp.MouseClickXY(r.X+r.W/2, r.Y+r.H/2))
}

func (b *tab) hover(x, y float64) {
	b.t.Helper()
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
}

// wheel turns the wheel, by real events.
func (b *tab) wheel(x, y, delta float64) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseWheel, X: x, Y: y, DeltaX: 0.01, DeltaY: delta})
	if err != nil {
		b.t.Fatal(err)
	}
}

// shot keeps a picture of the page, if there is a place for artefacts.
func (b *tab) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("HOLDALL_ARTIFACTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+".png"), png.Data, 0o644))
	}
	if err != nil {
		b.t.Error(err)
	}
}

// accessible checks the page by axe-core, where it is installed.
func (b *tab) accessible(what string) {
	b.t.Helper()
	script := axe(b.t)
	if script == "" {
		return
	}
	if !eval[bool](b, "!!window.axe") {
		eval[chromedp.Void](b, script+"\n;void 0")
	}
	b.run(`window.axeSays = '', axe.run(document, {resultTypes: ['violations']}).then(r => { window.axeSays = 'done' + r.violations.map(v => '\n' + v.id + ' (' + v.impact + '): ' + v.help + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + ' ' + (n.any[0]?.message ?? '')).join(' | ')).join(''); }, e => { window.axeSays = 'done\n' + e; })`)
	b.wait("window.axeSays")
	if says := strings.TrimPrefix(b.text("window.axeSays"), "done"); says != "" {
		b.t.Errorf("%s: axe-core finds%s", what, says)
	}
}

var axeOnce = sync.OnceValues(func() (string, error) {
	path := os.Getenv("HOLDALL_AXE")
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	return string(b), err
})

func axe(t *testing.T) string {
	t.Helper()
	script, err := axeOnce()
	if err != nil {
		t.Fatal(err)
	}
	if script == "" && testkit.Required("HOLDALL_AXE") {
		t.Fatal("HOLDALL_AXE: expected the path of axe.min.js, found nothing; interop/install axe fetches it")
	}
	return script
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
