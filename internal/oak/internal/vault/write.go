package vault

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A Writer writes a document of nodes. Nodes are elements within each other, and
// their properties attributes; a namespace is declared where it is needed.
type Writer struct {
	w     *bufio.Writer
	uri   func(prefix string) (string, bool)
	b     []byte
	names [][]byte // of the elements that have begun
	decls []string // prefixes
	marks []int    // how many of these there were before each element
	begun bool     // the last element may have more attributes
	multi bool     // of the attribute
	some  bool     // it has a value
	first bool     // nothing of the value has been written
	torn  []byte   // the beginning of a character
}

// NewWriter returns a writer. uri returns the namespace of a prefix.
func NewWriter(w io.Writer, uri func(prefix string) (string, bool)) *Writer {
	return &Writer{w: bufio.NewWriterSize(w, 64<<10), uri: uri}
}

// A NameError reports a name that XML cannot represent.
type NameError struct{ Name, Why string }

func (e *NameError) Error() string { return fmt.Sprintf("name %.200q: %s", e.Name, e.Why) }

// Check returns an error if no element or attribute can have a name.
func (w *Writer) Check(name string) error {
	prefix, local := cutName(name)
	switch {
	case !utf8.ValidString(name):
		return &NameError{name, "expected UTF-8"}
	case local == "":
		return &NameError{name, "expected a name after the prefix"}
	case prefix == "":
		return nil
	}
	if string(appendXMLName(nil, prefix)) != prefix && prefix != "xml" {
		return &NameError{name, "expected an XML prefix"}
	}
	if _, ok := w.uri(prefix); !ok {
		return &NameError{name, "no namespace with this prefix in /jcr:system/rep:namespaces"}
	}
	return nil
}

// Start begins an element; the first is that of the document. Its name was checked.
func (w *Writer) Start(name string) {
	w.close()
	own := name
	if len(w.names) == 0 {
		w.w.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n")
		name = "jcr:root"
	}
	w.marks = append(w.marks, len(w.decls))
	full := w.name(name)
	w.w.WriteByte('<')
	w.w.Write(full)
	w.names = append(w.names, full)
	w.begun = true
	if len(w.names) == 1 {
		w.Needs("jcr:")
		w.Needs("nt:")
	}
	w.Needs(own) // the folder of a document has its name
}

func (w *Writer) name(name string) (full []byte) {
	prefix, local := cutName(name)
	if prefix != "" {
		full = append(append(full, prefix...), ':')
	}
	return appendXMLName(full, local)
}

func (w *Writer) close() {
	if w.begun {
		w.w.WriteString(">\n")
		w.begun = false
	}
}

// Needs declares the namespace of a name, unless it is already declared.
func (w *Writer) Needs(name string) {
	prefix, _ := cutName(name)
	if prefix == "" || prefix == "xml" || slices.Contains(w.decls, prefix) {
		return
	}
	if uri, ok := w.uri(prefix); ok {
		w.decls = append(w.decls, prefix)
		fmt.Fprintf(w.w, ` xmlns:%s="`, prefix)
		w.w.Write(AppendXML(nil, uri))
		w.w.WriteByte('"')
	}
}

// Attribute begins a property of the element.
func (w *Writer) Attribute(name string, typ segment.PropertyType, multi bool) {
	w.Needs(name)
	w.w.WriteByte(' ')
	w.w.Write(w.name(name))
	w.w.WriteString(`="`)
	if typ != segment.String && name != "jcr:primaryType" && name != "jcr:mixinTypes" {
		w.w.WriteString("{" + typ.String() + "}")
	}
	if w.multi, w.some = multi, false; multi {
		w.w.WriteByte('[')
	}
}

// Value begins a value of the property. Call Empty if it is the only one and empty.
func (w *Writer) Value() {
	if w.some {
		w.w.WriteByte(',')
	}
	w.some, w.first = true, true
}

// Empty records that the value is empty, and the only one.
func (w *Writer) Empty() {
	if w.multi {
		w.w.WriteString(`\0`)
	}
}

// Write writes a part of a value. The whole value must be UTF-8.
func (w *Writer) Write(p []byte) (int, error) {
	text := p
	if len(w.torn) > 0 {
		text = append(w.torn, p...)
	}
	end := len(text)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
		}
	}
	if end > 0 {
		w.b = appendText(w.b[:0], string(text[:end]), w.first, w.multi)
		w.w.Write(w.b)
		w.first = false
	}
	w.torn = append([]byte(nil), text[end:]...)
	return len(p), nil
}

// EndAttribute ends the property.
func (w *Writer) EndAttribute() {
	if w.multi {
		w.w.WriteByte(']')
	}
	w.w.WriteByte('"')
}

// End ends the element. After the last one it returns any earlier error.
func (w *Writer) End() error {
	last := len(w.names) - 1
	if w.begun {
		w.w.WriteString("/>\n")
		w.begun = false
	} else {
		w.w.WriteString("</")
		w.w.Write(w.names[last])
		w.w.WriteString(">\n")
	}
	w.decls = w.decls[:w.marks[last]]
	w.names, w.marks = w.names[:last], w.marks[:last]
	if last > 0 {
		return nil
	}
	return w.w.Flush()
}
