package serve

import (
	"encoding/xml"
	"net/http"
)

// Access does not follow from ACLs: everything is its owner's, as in Amazon's
// buckets that have BucketOwnerEnforced, which is usual there.

var errACL = fault("AccessControlListNotSupported", "")

type grantee struct {
	Space string `xml:"xmlns:xsi,attr,omitempty"`
	Type  string `xml:"xsi:type,attr,omitempty"`
	s3Owner
}

type grant struct {
	Grantee    grantee
	Permission string
}

type accessControl struct {
	XMLName xml.Name `xml:"AccessControlPolicy"`
	Owner   s3Owner
	Grants  few[grant] `xml:"AccessControlList>Grant"`
}

// has returns an error unless there is a bucket or object.
func (c *call) has() error {
	if c.key == "" {
		return nil // begin has found it
	}
	o, err := c.object(c.bucket, c.key, c.q.Get("versionId"))
	if err == nil {
		o.release()
	}
	return err
}

func (c *call) acl() error {
	if err := c.has(); err != nil {
		return err
	}
	all := few[grant]{{grantee{"http://www.w3.org/2001/XMLSchema-instance", "CanonicalUser", holdallOwner}, "FULL_CONTROL"}}
	return c.answer("AccessControlPolicy", accessControl{Owner: holdallOwner, Grants: all})
}

// setACL takes the ACL that everything has, and no other.
func (c *call) setACL() error {
	var asked accessControl
	if err := c.has(); err != nil {
		return err
	}
	if empty, err := c.doc(&asked); err != nil {
		return err
	} else if empty && c.r.Header.Get("X-Amz-Acl") == "" {
		return fault("MissingSecurityHeader", "")
	} else if !empty && (len(asked.Grants) != 1 || asked.Grants[0].Grantee.ID != holdallOwner.ID || asked.Grants[0].Permission != "FULL_CONTROL") {
		return errACL
	}
	return c.done(http.StatusOK)
}
