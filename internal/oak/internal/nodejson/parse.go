package nodejson

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/holdall/holdall/format/kit/jsontext"
)

// A parser reads a line of JSON. It supports only what an export has: objects and arrays of known
// shapes, strings, counts, and true.
type parser struct{ jsontext.Scanner }

func parserOf(line []byte) parser {
	return parser{jsontext.Scanner{Buf: line, Depth: 8, UTF8: true}}
}

// fail notes an error, unless there is one.
func (p *parser) fail(err error) {
	if err != nil {
		p.Stop(err)
	}
}

// object calls do with each key of an object, once it is at its value.
func (p *parser) object(do func(key string)) {
	var seen keys
	for p.Begin('{'); p.Next('}'); {
		key := p.unquote(p.Key())
		if p.Err == nil && !seen.add(key) {
			p.fail(fmt.Errorf("%.100q: expected once, found again", key))
		}
		if p.Err != nil {
			return
		}
		if do(key); p.Err != nil {
			p.Err = fmt.Errorf("%.100q: %w", key, p.Err)
		}
	}
}

// keys are the keys of an object that were read so far. Nearly all objects have few.
type keys struct {
	few  [8]string
	n    int // of few
	many map[string]bool
}

func (k *keys) add(key string) (added bool) {
	if k.n < len(k.few) {
		added = !slices.Contains(k.few[:k.n], key)
		k.few[k.n] = key
		k.n++
		return added
	}
	if k.many == nil {
		k.many = map[string]bool{}
		for _, other := range k.few {
			k.many[other] = true
		}
	}
	added = !k.many[key]
	k.many[key] = true
	return added
}

// unquote converts the bytes between the quotes of a string to the string.
func (p *parser) unquote(raw []byte) string {
	if p.Err != nil || !p.Escaped {
		return string(raw)
	}
	b, half := jsontext.AppendText(make([]byte, 0, len(raw)), raw, false)
	if half { // it has no meaning in UTF-8
		p.fail(fmt.Errorf("string: expected surrogates in pairs, found %.60q", raw))
	}
	return string(b)
}

func (p *parser) text() string { return p.unquote(p.String()) }

func (p *parser) base64() string {
	raw := p.String()
	if p.Escaped {
		p.fail(errors.New("expected base64 as it is"))
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
	n, err := base64.StdEncoding.Strict().Decode(b, raw)
	p.fail(err)
	return string(b[:n])
}

func (p *parser) number() int64 {
	n, ok := p.Whole()
	if !ok {
		p.Fail("expected a number of at least 0")
	}
	return n
}

func (p *parser) yes() {
	if p.Word() != "true" {
		p.Fail("expected true")
	}
}
