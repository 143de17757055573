package web

// Address returns the named object's address, without what may be a secret in it.
func (st *Store) Address(name string) string {
	u, err := st.resolve(name)
	if err != nil {
		return ""
	}
	plain := *u
	plain.User, plain.RawQuery, plain.ForceQuery, plain.Fragment, plain.RawFragment = nil, "", false, "", ""
	return plain.String()
}
