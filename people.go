package holdall

import (
	"os/user"
	"strconv"
	"sync"
)

// people remembers the names of users and groups by number, and the other way
// round: systems read a file each time they are asked. It may be used in
// parallel.
type people struct {
	mu            sync.Mutex
	users, groups map[int]string
	uids, gids    map[string]int // -1 where there is none of the name
}

// user returns a user's name, or the number as text if there is none.
func (p *people) user(uid int) string {
	return p.name(&p.users, uid, func(id string) (string, error) {
		u, err := user.LookupId(id)
		if err != nil {
			return "", err
		}
		return u.Username, nil
	})
}

// group returns a group's name, or the number as text if there is none.
func (p *people) group(gid int) string {
	return p.name(&p.groups, gid, func(id string) (string, error) {
		g, err := user.LookupGroupId(id)
		if err != nil {
			return "", err
		}
		return g.Name, nil
	})
}

func (p *people) name(known *map[int]string, n int, lookup func(string) (string, error)) string {
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

// uid returns the number of a user's name, or of a number, and false if there is
// none.
func (p *people) uid(name string) (int, bool) {
	return p.number(&p.uids, name, func(n string) (string, error) {
		u, err := user.Lookup(n)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
}

// gid is uid for groups.
func (p *people) gid(name string) (int, bool) {
	return p.number(&p.gids, name, func(n string) (string, error) {
		g, err := user.LookupGroup(n)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
}

func (p *people) number(known *map[string]int, name string, lookup func(string) (string, error)) (int, bool) {
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
