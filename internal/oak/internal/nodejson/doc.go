// Package nodejson writes nodes of a segment store as lines of JSON, and reads them. It uses
// segments, but not stores.
//
// A node is one line, with properties in the order of the store:
//
//	{"path":"/content/a","properties":{
//	  "jcr:primaryType":{"type":"Name","value":"nt:unstructured"},
//	  "tags":{"type":"String","multiple":true,"values":["x","y"]},
//	  "data":{"type":"Binary","length":3,"base64":"AAEC"},
//	  "elsewhere":{"type":"Binary","blob":"0a1b2c#12345"}}}
//
// Values of all types are the stored text, because only that is the same in every type. A value
// that is not UTF-8 has "base64" instead of "value"; in "values" it is an object with "base64".
// Objects in "values" stand for everything that is not plain text.
//
// A line has about 1 MiB. What does not fit follows in lines of its own, directly after the line
// that announces it with "follows", in the order of announcement:
//
//	"big":{"type":"Binary","length":400000,"follows":true}
//	{"path":"/content/a","property":"big","index":0,"offset":0,"base64":"…"}
//	"names":{"type":"String","multiple":true,"count":20000,"follows":true}
//	{"path":"/content/a","property":"names","from":0,"values":["x","y"]}
//
// A piece of text has "text" instead of "base64" if it is UTF-8. If a node has many properties,
// they continue in a line with the same path and "more":true. A "length" without "follows" and
// without content means that the content was left out.
//
// What was lost to damage has "lost" with the reason, in place of properties, of a value or of a
// piece, and the "segment" and the "tar" with the damage, if they are known.
package nodejson
