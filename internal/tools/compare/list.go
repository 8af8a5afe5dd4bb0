package compare

import (
	"bufio"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	maxLine    = 64 << 10 // bytes of a line of a list
	maxTarget  = 8 << 10  // bytes of a target
	remembered = 1 << 17  // last targets, to recognize repeated ones

	// MaxSample is the largest sample that a List sends.
	MaxSample = 100_000
)

// List reads targets, one a line: file ids, request paths, or lines of an access log in the
// combined form. It leaves out a target that is among the last 131,072 different ones.
type List struct {
	in   *bufio.Reader
	seed maphash.Seed
	seen *lru.Cache[uint64, struct{}]

	// Counted by Next and Send.
	Repeated   int   // lines that were left out
	Unreadable int   // lines without a target
	Why        error // of the first of them, with its number
	line       int
}

// NewList returns a list.
func NewList(in io.Reader) *List {
	seen, err := lru.New[uint64, struct{}](remembered)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return &List{in: bufio.NewReaderSize(in, maxLine), seed: maphash.MakeSeed(), seen: seen}
}

// Next returns the next target, or io.EOF.
func (l *List) Next() (string, error) {
	for {
		line, long, err := l.readLine()
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		target, err := Target(line)
		if long {
			err = errors.New("it is too long")
		}
		if err != nil {
			if l.Unreadable++; l.Why == nil {
				l.Why = i18n.Errorf("line %d: %w", l.line, err)
			}
		} else if found, _ := l.seen.ContainsOrAdd(maphash.String(l.seed, target), struct{}{}); found {
			l.Repeated++
		} else {
			return target, nil
		}
	}
}

// readLine returns the next line, or the start of one that is too long.
func (l *List) readLine() (line string, long bool, err error) {
	text, err := l.in.ReadSlice('\n')
	line = string(text)
	for errors.Is(err, bufio.ErrBufferFull) {
		long = true
		_, err = l.in.ReadSlice('\n')
	}
	l.line++
	if err == io.EOF && line != "" {
		err = nil
	}
	return line, long, err
}

// Send sends the targets until the list or ctx ends: all, or with sample > 0 a sample of that size,
// in which each target has the same chance. sample is at most MaxSample.
func (l *List) Send(ctx context.Context, out chan<- string, sample int) error {
	next := l.Next
	if sample > 0 {
		all, err := l.sample(sample)
		if err != nil {
			return err
		}
		next = func() (string, error) {
			if len(all) == 0 {
				return "", io.EOF
			}
			target := all[0]
			all = all[1:]
			return target, nil
		}
	}
	for {
		target, err := next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case out <- target:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sample returns n targets at random, or all of a list that has no more.
func (l *List) sample(n int) (sample []string, err error) {
	for i := 0; ; i++ {
		target, err := l.Next()
		if err == io.EOF {
			return sample, nil
		}
		if err != nil {
			return nil, err
		}
		if i < n {
			sample = append(sample, target)
			continue
		}
		if j := rand.IntN(i + 1); j < n {
			sample[j] = target
		}
	}
}

// Target returns the target in a line. The target begins with a slash and has no blank or control
// character.
func Target(line string) (string, error) {
	target := strings.TrimSpace(line)
	if _, logged, isLog := strings.Cut(target, `"`); isLog {
		var err error
		if target, err = loggedTarget(logged); err != nil {
			return "", err
		}
	} else if !strings.HasPrefix(target, "/") {
		path, _, _ := strings.Cut(target, "?")
		if !isID(path) {
			return "", errors.New("neither a file id, nor a path, nor a line of an access log")
		}
		target = "/" + target
	}
	if len(target) > maxTarget {
		return "", errors.New("the path is too long")
	}
	if i := strings.IndexFunc(target, func(r rune) bool { return r <= ' ' || r == 0x7f }); i >= 0 {
		return "", i18n.Errorf("%q in a path", target[i])
	}
	return target, nil
}

// isID reports whether a text is a file id, also one without a group.
func isID(text string) bool {
	if _, err := fdfs.Parse(text); err == nil {
		return true
	}
	_, err := fdfs.ParseLogic("group1", text)
	return err == nil
}

// loggedTarget returns the target in the text after the first quote of a log line: METHOD TARGET
// HTTP/1.1"..., with \xXX in place of bytes that would break the line.
func loggedTarget(text string) (string, error) {
	request, ok := unquote(text)
	if !ok {
		return "", errors.New("the request has no end")
	}
	words := strings.Split(request, " ")
	if len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/") || !strings.HasPrefix(words[1], "/") {
		return "", i18n.Errorf("%q is no request for a path", request)
	}
	if words[0] != http.MethodGet && words[0] != http.MethodHead {
		return "", i18n.Errorf("only GET and HEAD are compared, not %s", words[0])
	}
	return words[1], nil
}

// unquote returns the text up to the closing quote; ok means that there is one.
func unquote(text string) (out string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), true
		case c == '\\' && i+3 < len(text) && text[i+1] == 'x':
			if n, err := strconv.ParseUint(text[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
			b.WriteByte(c)
		case c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'): // as Apache writes it
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}
