package crowd_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"fastdfs-gateway/tests/crowd"
	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers every connection with the same bytes and closes it.
func server(t *testing.T, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			_, _ = c.Read(buf)
			_, _ = c.Write([]byte(answer))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String() + "/x"
}

// TestOutcomes: the crowd tells apart what has to be told apart.
func TestOutcomes(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nx-cache: HIT\r\nContent-Length: %d\r\n\r\n%s"
	for name, test := range map[string]struct {
		answer string
		want   crowd.Outcome
	}{
		"whole":                {fmt.Sprintf(ok, 5, "hello"), crowd.Whole},
		"cut":                  {fmt.Sprintf(ok, 5, "hell"), crowd.Cut},
		"cut before the body":  {fmt.Sprintf(ok, 5, ""), crowd.Cut},
		"clean and short":      {fmt.Sprintf(ok, 4, "hell"), crowd.Wrong},
		"clean and empty":      {fmt.Sprintf(ok, 0, ""), crowd.Wrong},
		"too long":             {fmt.Sprintf(ok, 6, "hello!"), crowd.Wrong},
		"other bytes":          {fmt.Sprintf(ok, 5, "hallo"), crowd.Wrong},
		"other bytes, and cut": {fmt.Sprintf(ok, 5, "ha"), crowd.Wrong},
		"no length":            {"HTTP/1.1 200 OK\r\n\r\nhello", crowd.Wrong},
		"another status":       {"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n", crowd.Refused},
		"no head":              {"hello\r\n\r\n", crowd.Failed},
		"nothing":              {"", crowd.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			r := crowd.Run(crowd.Options{Clients: 3, URLs: []string{server(t, test.answer)}, Want: []byte("hello"),
				Timeout: time.Minute})
			require.Equal(t, 3, r.Count(test.want), r)
			if test.want == crowd.Whole {
				require.Equal(t, "HIT", r[0].XCache)
			}
		})
	}
}

// TestRange: each client asks for its own part and gets it.
func TestRange(t *testing.T) {
	url := server(t, "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\n\r\nll")
	r := crowd.Run(crowd.Options{Clients: 2, URLs: []string{url}, Want: []byte("hello"),
		Range: func(i int) (int64, int64) { return int64(2 + i), 2 }})
	require.Equal(t, crowd.Whole, r[0].Outcome, r)
	require.Equal(t, crowd.Wrong, r[1].Outcome, "the other one wanted lo")
}

// TestNothingListens: where nothing listens all clients fail.
func TestNothingListens(t *testing.T) {
	r := crowd.Run(crowd.Options{Clients: 2, URLs: []string{"http://" + lab.Address(lab.Port()) + "/", "not a URL"},
		Want: []byte("x")})
	require.Equal(t, 2, r.Count(crowd.Failed), r)
}
