package age

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"filippo.io/age"
)

// The variables that say where keys are. Identities and recipients are several, as in PATH.
const (
	identityVar   = "HOLDALL_AGE_IDENTITY"
	recipientsVar = "HOLDALL_AGE_RECIPIENTS"
	passphraseVar = "HOLDALL_AGE_PASSPHRASE_FILE"
)

// A KeyError means that there is no key to read or write an object with. It matches
// [fs.ErrPermission].
type KeyError struct{ Why string }

func (e *KeyError) Error() string        { return e.Why }
func (e *KeyError) Is(target error) bool { return target == fs.ErrPermission }

// Keys are what a store decrypts and encrypts with.
type Keys struct {
	identities func() ([]age.Identity, error)
	recipients func() ([]age.Recipient, error)

	mu    sync.Mutex
	known map[string][]byte // keys of objects by their headers, since passphrases take a second
}

// NewKeys returns keys.
func NewKeys(identities []age.Identity, recipients []age.Recipient) *Keys {
	return &Keys{
		identities: func() ([]age.Identity, error) { return identities, nil },
		recipients: func() ([]age.Recipient, error) { return recipients, nil },
	}
}

var current struct {
	sync.Mutex
	of   string // the variables
	keys *Keys
}

// environment returns the keys that the environment names.
func environment() *Keys {
	current.Lock()
	defer current.Unlock()
	of := strings.Join([]string{os.Getenv(identityVar), os.Getenv(recipientsVar), os.Getenv(passphraseVar)}, "\x00")
	if current.keys == nil || current.of != of {
		current.of, current.keys = of, &Keys{identities: sync.OnceValues(namedIdentities), recipients: sync.OnceValues(namedRecipients)}
	}
	return current.keys
}

func namedIdentities() (all []age.Identity, err error) {
	for _, file := range filepath.SplitList(os.Getenv(identityVar)) {
		some, err := parsed(file, age.ParseIdentities)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", identityVar, err)
		}
		all = append(all, some...)
	}
	phrase, err := passphrase()
	if err != nil || phrase == "" {
		return all, err
	}
	id, err := age.NewScryptIdentity(phrase)
	return append(all, id), err
}

func namedRecipients() (all []age.Recipient, err error) {
	for _, one := range filepath.SplitList(os.Getenv(recipientsVar)) {
		var some []age.Recipient
		if strings.HasPrefix(one, "age1") {
			some, err = age.ParseRecipients(strings.NewReader(one))
		} else {
			some, err = parsed(one, age.ParseRecipients)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", recipientsVar, err)
		}
		all = append(all, some...)
	}
	if len(all) > 0 {
		return all, nil
	}
	phrase, err := passphrase()
	if err != nil {
		return nil, err
	}
	if phrase == "" {
		return nil, &KeyError{"no recipient to encrypt to: set " + recipientsVar + " to a recipient (age1…) or to a file of them, or " + passphraseVar + " to a file with a passphrase"}
	}
	to, err := age.NewScryptRecipient(phrase)
	return []age.Recipient{to}, err
}

func parsed[T any](file string, parse func(io.Reader) ([]T, error)) ([]T, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := parse(f)
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return all, err
}

// passphrase returns the first line of the file that has it, or "" if there is none.
func passphrase() (string, error) {
	file := os.Getenv(passphraseVar)
	if file == "" {
		return "", nil
	}
	lines, err := parsed(file, func(r io.Reader) ([]string, error) {
		line, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			return nil, cmp.Or(err, errors.New("expected a passphrase in the first line"))
		}
		return []string{line}, nil
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", passphraseVar, err)
	}
	return lines[0], nil
}

// mostKnown bounds the memory for keys of objects.
const mostKnown = 1000

// unwrap returns the key of an object with a header.
func (k *Keys) unwrap(header []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key := k.known[string(header)]; key != nil {
		return key, nil
	}
	with, err := k.identities()
	if err != nil {
		return nil, &KeyError{err.Error()}
	}
	if len(with) == 0 {
		return nil, &KeyError{"it is encrypted: set " + identityVar + " to a file with the secret key, or " + passphraseVar + " to one with the passphrase"}
	}
	key, err := age.DecryptHeader(header, with...)
	if none, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return nil, &KeyError{"no secret key of " + identityVar + " or passphrase fits: it is encrypted to others (" + short(strings.Join(none.StanzaTypes, ", ")) + "), or its header is damaged"}
	}
	if err != nil {
		return nil, &fault{"its header is damaged", err}
	}
	if k.known == nil || len(k.known) >= mostKnown {
		k.known = map[string][]byte{}
	}
	k.known[string(header)] = key
	return key, nil
}
