package glob

import "testing"

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		glob, name string
		want       bool
	}{
		{"*.md", "a/b/c.md", true}, {"*.md", "c.mdx", false}, {"a/*", "a/b", true}, {"a/*", "a/b/c", false},
		{"a/**", "a/b/c", true}, {"**/c", "c", true}, {"**/c", "a/b/c", true}, {"a/**/c", "a/c", true}, {"a/**/c", "a/x/y/c", true},
		{"?.txt", "a.txt", true}, {"?.txt", "ab.txt", false}, {"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false},
		{"*.{jpg,png}", "d/x.png", true}, {"*.{jpg,png}", "d/x.gif", false}, {`\*`, "*", true}, {`\*`, "a", false}, {"a.b", "axb", false}, {"x\ny", "x\ny", true},
	} {
		p, err := Compile(tt.glob, false)
		if err != nil {
			t.Errorf("%s: %v", tt.glob, err)
		} else if got := p.Match(tt.name); got != tt.want {
			t.Errorf("%s matches %s: %v", tt.glob, tt.name, got)
		}
	}
}

func TestPatternsThatAreNone(t *testing.T) {
	for _, s := range []string{"[", "a/[", `x\`, "[a-", "{a,b", "[z-a]"} {
		if _, err := Compile(s, false); err == nil {
			t.Errorf("%q is taken for a pattern", s)
		}
		if _, err := NewFilter(nil, []string{"fine", s}); err == nil {
			t.Errorf("%q is taken for a pattern", s)
		}
	}
}

func TestFilter(t *testing.T) {
	for _, tt := range []struct {
		include, exclude []string
		name             string
		want             bool
	}{
		{nil, nil, "a", true},
		{[]string{"*.md"}, nil, "d/a.md", true}, {[]string{"*.md"}, nil, "d/a.txt", false},
		{[]string{"d"}, nil, "x/d/a.txt", true}, {[]string{"/d"}, nil, "x/d/a.txt", false}, {[]string{"d/"}, nil, "d/a.txt", true},
		{nil, []string{"tmp"}, "x/tmp/a", false}, {nil, []string{"tmp"}, "x/tmpa", true}, {nil, []string{"/tmp"}, "x/tmp", true},
		{[]string{"d/**"}, []string{"*.o"}, "d/e/a.o", false}, {[]string{"d/**"}, []string{"*.o"}, "d/e/a.c", true},
	} {
		f, err := NewFilter(tt.include, tt.exclude)
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
		} else if got := f.Wants(tt.name); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
