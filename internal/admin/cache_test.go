package admin

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPurgeTarget(t *testing.T) {
	for query, want := range map[string]PurgeTarget{
		"id=group1/M00/00/00/a": {ID: "group1/M00/00/00/a"}, "id=%2Fgroup1/M00": {ID: "group1/M00"},
		"prefix=/group1/": {Prefix: "group1/"}, "all=1": {All: true},
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		got, err := purgeTarget(q)
		require.NoError(t, err, query)
		require.Equal(t, want, got, query)
	}
	// A query with an unknown or invalid part is rejected as a whole, and never counts as "all".
	for _, query := range []string{
		"", "id=", "id=/", "prefix=", "prefix=/", "all=", "all=0", "all=true", "id=a&id=b", "id=a&id=",
		"prefix=a&prefix=b", "id=a&all=1", "all=1&all=1", "all=1&x=1", "ID=a",
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, err = purgeTarget(q)
		require.ErrorIs(t, err, ErrPurgeTarget, query)
	}
}

// TestPrefetchOfABadList: a list that cannot be read to its end is a failure, and its content
// cannot control a terminal.
func TestPrefetchOfABadList(t *testing.T) {
	admin := &Options{Prefetch: func(_ context.Context, id string) (int64, string, error) {
		err := errors.New("file not found")
		if id == "several" {
			err = errors.Join(err, errors.New("storage 2 is down"))
		}
		return 0, "", err
	}}
	long := strings.Repeat("a", maxPrefetchLine+1)
	const tooLong = "error: cannot read the list: bufio.Scanner: token too long\n"
	for list, want := range map[string]string{
		long:                  tooLong + "done: 0 files, 1 failed\n",
		"\x1b[31mred\x07\n\n": "?[31mred? error: file not found\ndone: 1 files, 1 failed\n",
		"several":             "several error: file not found; storage 2 is down\ndone: 1 files, 1 failed\n",
		"a\n" + long:          "a error: file not found\n" + tooLong + "done: 1 files, 2 failed\n",
	} {
		w := httptest.NewRecorder()
		admin.prefetch(w, httptest.NewRequestWithContext(t.Context(), "POST", "/prefetch", strings.NewReader(list)))
		require.Equal(t, want, w.Body.String())
	}
}
