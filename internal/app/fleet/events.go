package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
)

const (
	// maxEvents is the maximum length of a notification, or of an array of them.
	maxEvents = 64 << 20

	// maxWraps is how many messages may be within each other.
	maxWraps = 8
)

// An event is a notification, or a message that has one. Names of members match in upper and lower case.
type event struct {
	Records  []json.RawMessage // of S3 and MinIO, or of queues
	Messages []json.RawMessage // of SQS
	Message  string            // of SNS
	Body     string            // of SQS
	Sns      json.RawMessage
	S3       *eventObject
	Detail   *eventObject // of EventBridge
	Event    string
}

type eventObject struct {
	Bucket struct{ Name string }
	Object struct{ Key string }
}

var errNoEvent = errors.New("expected the notification of an event, as JSON")

// parseEvent calls do with the bucket and key of each object that a notification names.
func parseEvent(b []byte, wraps int, do func(bucket, key string) error) error {
	if !utf8.Valid(b) {
		return errors.New("expected UTF-8")
	}
	if wraps == maxWraps {
		return fmt.Errorf("more than %d messages within each other", maxWraps)
	}
	var e event
	var err error
	if b = bytes.TrimLeft(b, " \t\r\n"); len(b) > 0 && b[0] == '[' {
		err = json.Unmarshal(b, &e.Records)
	} else {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		return err
	}
	within := append(e.Records, e.Messages...)
	for _, text := range []string{e.Message, e.Body, string(e.Sns)} {
		if text != "" {
			within = append(within, json.RawMessage(text))
		}
	}
	for _, b := range within {
		if err := parseEvent(b, wraps+1, do); err != nil {
			return err
		}
	}
	of := e.S3
	if of == nil {
		of = e.Detail
	}
	switch {
	case of != nil && (of.Bucket.Name == "" || of.Object.Key == "" || len(of.Object.Key) > maxLine):
		return fmt.Errorf("expected the names of a bucket and an object, found %.100q and %.100q", of.Bucket.Name, of.Object.Key)
	case of != nil && of == e.S3:
		key, err := url.QueryUnescape(of.Object.Key)
		if err != nil {
			return fmt.Errorf("expected a key, found %.200q", of.Object.Key)
		}
		return do(of.Bucket.Name, key)
	case of != nil:
		return do(of.Bucket.Name, of.Object.Key)
	case len(within) == 0 && e.Records == nil && e.Messages == nil && e.Event != "s3:TestEvent":
		return errNoEvent
	}
	return nil
}

// readEvents reads the notifications of a file. They are hints: what they say of an object is not used.
func (l *list) readEvents(ctx context.Context, address string) error {
	bucket, prefix, err := l.bucket()
	if err != nil {
		return err
	}
	in, err := openWhole(ctx, address)
	if err != nil {
		return err
	}
	defer in.Close()
	return eachEvent(in, address, func(of, key string) error {
		if of != bucket {
			l.skipped.Outside++
			return nil
		}
		return l.addKey(key, prefix, -1, "")
	})
}

// eachEvent calls do with the objects of notifications that follow each other.
func eachEvent(in io.Reader, address string, do func(bucket, key string) error) error {
	of := &io.LimitedReader{R: in}
	for d := json.NewDecoder(of); ; {
		off := d.InputOffset()
		of.N = maxEvents // besides what it has read
		var b json.RawMessage
		err := d.Decode(&b)
		switch {
		case err != nil && of.N <= 0:
			err = fmt.Errorf("more than %d bytes", maxEvents)
		case err == io.EOF:
			return nil
		case err == nil:
			err = parseEvent(b, 0, do)
		}
		if err != nil {
			return fmt.Errorf("%s at %d: %w", format.Escape(address), off, err)
		}
	}
}
