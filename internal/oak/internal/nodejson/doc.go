// Package nodejson writes nodes of a segment store as lines of JSON, and reads them
// again.
//
// It is for package oak alone: it knows segments, and neither stores nor the command.
//
// A node is one line, whose properties are in the order of the store:
//
//	{"path":"/content/a","properties":{
//	  "jcr:primaryType":{"type":"Name","value":"nt:unstructured"},
//	  "tags":{"type":"String","multiple":true,"values":["x","y"]},
//	  "data":{"type":"Binary","length":3,"base64":"AAEC"},
//	  "elsewhere":{"type":"Binary","blob":"0a1b2c#12345"}}}
//
// Values of all types are the text that is stored, as only that is the same in every
// type; what is not UTF-8 has "base64" in place of "value", and among others it is an
// object with that. An object stands among "values" for all that is no plain text.
//
// A line has about 1 MiB. What does not fit follows in lines of its own, right behind
// the line that announces it with "follows", in the order of announcement:
//
//	"big":{"type":"Binary","length":400000,"follows":true}
//	{"path":"/content/a","property":"big","index":0,"offset":0,"base64":"…"}
//	"names":{"type":"String","multiple":true,"count":20000,"follows":true}
//	{"path":"/content/a","property":"names","from":0,"values":["x","y"]}
//
// A piece of text has "text" in place of "base64" if it is UTF-8. Many properties go
// on in a line with the same path and "more":true. A "length" without "follows" and
// without content says that the content was left out.
//
// What damage took has "lost", the reason, in the place of properties, of a value, or
// of a piece, with the "segment" and the "tar" that are to blame, if they are known.
package nodejson
