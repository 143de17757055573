package age

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"filippo.io/age"
)

// The variables that name files with keys. Identities and recipients may be several, as in PATH.
const (
	identityVar   = "HOLDALL_AGE_IDENTITY"
	recipientsVar = "HOLDALL_AGE_RECIPIENTS"
	passphraseVar = "HOLDALL_AGE_PASSPHRASE_FILE"
)

// mostEffort bounds the memory that a passphrase may demand: 1 GiB, four times as much as usual.
const mostEffort = 20

// Keys are what a store reads and writes with.
type Keys struct {
	Identities []age.Identity
	Recipients []age.Recipient

	phrase string
}

// known has the keys of objects by passphrase and header, since the key of a passphrase takes a second.
var known sync.Map

// noKey means that there is no key for something. It matches [fs.ErrPermission].
type noKey string

func (e noKey) Error() string        { return string(e) }
func (e noKey) Is(target error) bool { return target == fs.ErrPermission }

// environment returns the keys that the environment names.
func environment() (*Keys, error) {
	several := func(variable string) []string { return filepath.SplitList(os.Getenv(variable)) }
	ids, err := parsed(identityVar, several(identityVar), age.ParseIdentities)
	to, terr := parsed(recipientsVar, several(recipientsVar), age.ParseRecipients)
	k, file := &Keys{Identities: ids, Recipients: to}, os.Getenv(passphraseVar)
	if err = cmp.Or(err, terr); err != nil || file == "" {
		return k, err
	}
	text, err := parsed(passphraseVar, []string{file}, io.ReadAll)
	if err != nil {
		return nil, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	k.phrase = strings.TrimRight(line, "\r")
	id, err := age.NewScryptIdentity(k.phrase)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", passphraseVar, file, err)
	}
	id.SetMaxWorkFactor(mostEffort)
	k.Identities = append(k.Identities, id)
	if own, err := age.NewScryptRecipient(k.phrase); err == nil && len(to) == 0 {
		k.Recipients = []age.Recipient{own}
	}
	return k, nil
}

// parsed reads the files that a variable names. A recipient may stand in place of a file.
func parsed[T any](variable string, files []string, parse func(io.Reader) ([]T, error)) (all []T, err error) {
	for _, file := range files {
		from := io.Reader(strings.NewReader(file))
		if variable != recipientsVar || !strings.HasPrefix(file, "age1") {
			f, err := os.Open(file)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", variable, err)
			}
			defer f.Close()
			from = io.LimitReader(f, 1<<20)
		}
		some, err := parse(from)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", variable, file, err)
		}
		all = append(all, some...)
	}
	return all, nil
}
