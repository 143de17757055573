// Package people converts names of users and groups to numbers, and numbers to names.
package people

import (
	"os/user"
	"strconv"
	"sync"
)

// People remembers the names of users and groups by number, and the reverse, because systems read
// a file for each lookup. It may be used in parallel.
type People struct {
	mu            sync.Mutex
	users, groups map[int]string
	uids, gids    map[string]int // -1 where there is none of the name
}

// User returns a user's name, or the number as text if there is none.
func (p *People) User(uid int) string {
	return p.name(&p.users, uid, func(id string) (string, error) {
		u, err := user.LookupId(id)
		if err != nil {
			return "", err
		}
		return u.Username, nil
	})
}

// Group returns a group's name, or the number as text if there is none.
func (p *People) Group(gid int) string {
	return p.name(&p.groups, gid, func(id string) (string, error) {
		g, err := user.LookupGroupId(id)
		if err != nil {
			return "", err
		}
		return g.Name, nil
	})
}

func (p *People) name(known *map[int]string, n int, lookup func(string) (string, error)) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name, ok := (*known)[n]; ok {
		return name
	}
	id := strconv.Itoa(n)
	name, err := lookup(id)
	if err != nil || name == "" {
		name = id
	}
	if *known == nil {
		*known = map[int]string{}
	}
	(*known)[n] = name
	return name
}

// UID returns the number of a user's name, or of a number, and false if there is
// none.
func (p *People) UID(name string) (int, bool) {
	return p.number(&p.uids, name, func(n string) (string, error) {
		u, err := user.Lookup(n)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
}

// GID is UID for groups.
func (p *People) GID(name string) (int, bool) {
	return p.number(&p.gids, name, func(n string) (string, error) {
		g, err := user.LookupGroup(n)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
}

func (p *People) number(known *map[string]int, name string, lookup func(string) (string, error)) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := (*known)[name]
	if !ok {
		id, err := lookup(name)
		if err != nil {
			id = name
		}
		if n, err = strconv.Atoi(id); err != nil || n < 0 {
			n = -1
		}
		if *known == nil {
			*known = map[string]int{}
		}
		(*known)[name] = n
	}
	return n, n >= 0
}
