package attack

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/certtest"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// attackers is the number of workers, each with one connection at a time.
const attackers = 48

// attack is one attempt of a worker. Its random numbers depend on the seed, the worker and the
// number of the attempt.
type attack struct {
	r     *rand.Rand
	g     *target
	c     *contents
	tls   bool
	where string // worker and attempt, for messages
}

// run attacks the gateway with all workers. It requires that no attempt finds a fault, that the
// resource usage stays within bounds, and that the gateway recovers afterwards.
func run(t *testing.T, g *target, c *contents, secure bool, maxMemory int, kinds ...func(*attack) error) {
	t.Helper()
	t.Logf("-attack.seed=%d", *seedFlag)
	for i := range c.files { // the baseline includes the cost of cached files
		a := attack{g: g, c: c, tls: secure}
		require.NoError(t, a.whole(&c.files[i]))
	}
	base := g.settles(t)
	t.Logf("before: %v", base)
	stop, watched := make(chan struct{}), make(chan error, 1)
	var peak usage
	go func() {
		var err error
		peak, err = g.watch(stop)
		watched <- err
	}()
	var attempts atomic.Int64
	var workers sync.WaitGroup
	until := time.Now().Add(lasts(6 * time.Second))
	for w := range attackers {
		workers.Go(func() {
			for n := 0; time.Now().Before(until) && !t.Failed(); n++ {
				a := attack{r: rand.New(rand.NewPCG(*seedFlag, uint64(w)<<32|uint64(n))), g: g, c: c, tls: secure,
					where: fmt.Sprintf("worker %d, attempt %d", w, n)}
				if err := kinds[a.r.IntN(len(kinds))](&a); err != nil {
					t.Errorf("-attack.seed=%d, %s: %v", *seedFlag, a.where, err)
				}
				attempts.Add(1)
			}
		})
	}
	workers.Wait()
	close(stop)
	require.NoError(t, <-watched)
	t.Logf("%d attempts; at most: %v", attempts.Load(), peak)
	require.NotZero(t, attempts.Load())
	require.Less(t, peak.memory, maxMemory)
	require.Less(t, peak.goroutines, base.goroutines+20*attackers)
	require.Less(t, peak.descriptors, base.descriptors+20*attackers)
	g.recovers(t, base)
	for i := range c.files {
		a := attack{g: g, c: c, tls: secure}
		require.NoError(t, a.whole(&c.files[i]), "after the attack")
	}
}

// TestMutations: under attack a gateway with a store has no panic, sends no wrong byte and nothing
// from outside the store, and recovers afterwards.
func TestMutations(t *testing.T) {
	s := storetest.New(t)
	c := localFiles(t, s)
	g := start(t, s.Config(), "read_timeout = 500ms", "idle_timeout = 500ms")
	run(t, g, c, false, 400<<20, (*attack).request, (*attack).request, (*attack).bytes, (*attack).slow,
		(*attack).abort, (*attack).pipeline, (*attack).onAdmin)
}

// TestTLSMutations: the rules of TestMutations hold with TLS, and with garbage in place of
// handshakes.
func TestTLSMutations(t *testing.T) {
	s := storetest.New(t)
	c := localFiles(t, s)
	dir := t.TempDir()
	certtest.New(t, certtest.Order{}).Write(t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	g := start(t, s.Config(), "read_timeout = 500ms", "idle_timeout = 500ms", "tls_cert = "+dir+"/cert.pem",
		"tls_key = "+dir+"/key.pem")
	run(t, g, c, true, 400<<20, (*attack).request, (*attack).bytes, (*attack).abort, (*attack).pipeline,
		(*attack).noHandshake)
}

// TestRemoteMutations: the rules of TestMutations hold for a gateway without a store, with a cache,
// in front of storages whose replies fail in many ways.
func TestRemoteMutations(t *testing.T) {
	cluster, err := fdfstest.Start(fdfstest.Options{})
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	c := remoteFiles(t, cluster)
	disk := t.TempDir()
	g := start(t,
		fmt.Sprintf(
			"base_path = /nowhere\nstore_path_count = 0\nurl_have_group_name = true\ngroup_name = group1\n"+
				"connect_timeout = 2\n"+
				"network_timeout = 2\nhttp.default_content_type = application/octet-stream\nhttp.mime_types_filename "+
				"= mime.types\ntracker_server = %s\n"+
				"[cache]\nmemory_max = 4MB\ndisk_path = %s\ndisk_max = 6MB\nttl = 1s\n", cluster.Trackers()[0],
			filepath.Join(disk, "cache")),
		"read_timeout = 500ms", "idle_timeout = 500ms")
	g.storages = len(cluster.Storages())
	stop := make(chan struct{})
	var disturbing sync.WaitGroup
	disturbing.Go(func() { disturb(cluster, stop) })
	t.Cleanup(func() { disturbing.Wait() })
	calm := sync.OnceFunc(func() { close(stop); disturbing.Wait() })
	t.Cleanup(calm)
	time.AfterFunc(lasts(6*time.Second)-time.Second, calm) // before run requests all files again
	run(t, g, c, false, 400<<20, (*attack).request, (*attack).request, (*attack).bytes, (*attack).abort,
		(*attack).pipeline, (*attack).onAdmin)
}

// disturb sets random faults of the storages, one after the other, until stop is closed.
func disturb(cluster *fdfstest.Cluster, stop <-chan struct{}) {
	r := rand.New(rand.NewPCG(*seedFlag, 1<<40))
	for {
		at := r.IntN(100000)
		faults := []fdfstest.Faults{{}, {BreakAt: &at}, {ResetAt: &at}, {Garbage: true}, {Status: 2},
			{Status: 22}, {Delay: 50 * time.Millisecond}, {WrongLength: 7}, {WrongLength: -7}, {WrongLength: 2 << 30},
			{Rate: 1 << 20}}
		for _, s := range cluster.Storages() {
			f := faults[r.IntN(len(faults))]
			f.Times = 1 + r.IntN(5)
			s.SetFaults(f)
		}
		select {
		case <-stop:
			for _, s := range cluster.Storages() {
				s.SetFaults()
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// localFiles fills a store. All content that must not be sent has canaries.
func localFiles(t *testing.T, s *storetest.Store) *contents {
	t.Helper()
	secret := append([]byte(canary), bytes.Repeat([]byte{'.'}, 100)...)
	freed := s.Trunk("txt", secret)
	picture := s.Normal("jpg", s.Bytes(20000))
	objects := []storetest.Object{picture, s.Slave(picture, "_150x150", "jpg", s.Bytes(700)), s.Trunk("txt",
		s.Bytes(5000)), s.Trunk("jpg", s.Bytes(70001)),
		s.Appender("log", s.Bytes(9000)), s.Normal("mp4", s.Bytes(3<<20)), s.Normal("txt", nil),
		s.In(storetest.Other, 0, "bin", s.Bytes(999)), s.TrunkLink(picture)}
	s.Free(freed)
	require.NoError(t, os.WriteFile(picture.Path+"-m", secret, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.Root(storetest.Group, 0), "data", "storage_stat.dat"), secret,
		0o600))
	outside := s.Link("jpg", filepath.Join(s.Dir, "canary"))
	files := make([]file, 0, len(objects))
	for _, o := range objects {
		files = append(files, file{o.URL(), o.Content})
	}
	c := newContents(files)
	c.secret = []string{freed.URL(), outside.URL()}
	return c
}

// remoteFiles fills the storages.
func remoteFiles(t *testing.T, cluster *fdfstest.Cluster) *contents {
	t.Helper()
	var files []file
	longAgo := time.Date(2024, 2, 29, 12, 30, 45, 0, time.UTC)
	put := func(spec fdfstest.FileSpec, size int) fdfs.FileID {
		spec.Content = make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{byte(len(files)), byte(size), 7}).Read(spec.Content) // never fails
		if spec.Kind != fdfs.KindSlave {
			spec.Group, spec.Created = choose(rand.New(rand.NewPCG(uint64(size), 0)), "group1", "group2"), longAgo
		}
		id, err := cluster.Put(spec)
		require.NoError(t, err)
		files = append(files, file{"/" + id.String(), spec.Content})
		return id
	}
	master := put(fdfstest.FileSpec{Ext: "jpg"}, 20000)
	put(fdfstest.FileSpec{Master: master, Kind: fdfs.KindSlave, Prefix: "_150x150", Ext: "jpg",
		Modified: longAgo}, 700)
	put(fdfstest.FileSpec{Kind: fdfs.KindTrunk, Ext: "txt"}, 5000)
	put(fdfstest.FileSpec{Kind: fdfs.KindAppender, Ext: "log"}, 9000)
	for i := range 12 {
		put(fdfstest.FileSpec{Ext: "mp4"}, 100<<10*(i+1))
	}
	return newContents(files)
}

// dial opens a connection, with TLS if the listener uses TLS.
func (a *attack) dial(addr string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		return nil, fmt.Errorf("the gateway takes no connection: %w", err)
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if a.tls && addr == a.g.Addr {
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true}),
			nil // the certificate does not matter here
	}
	return c, nil
}

// exchange sends bytes and reads until the gateway closes.
func (a *attack) exchange(addr, b string) ([]byte, error) {
	c, err := a.dial(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_, _ = io.WriteString(c, b) // the gateway may have closed before the end
	stream, err := io.ReadAll(io.LimitReader(c, 64<<20))
	if e, ok := err.(net.Error); ok && e.Timeout() {
		return stream, fmt.Errorf("the gateway neither responds nor closes: %.500q", b)
	}
	return stream, nil
}

// whole requests one file like an ordinary client. It repeats the request for some seconds, since a
// storage may have failed just before.
func (a *attack) whole(f *file) error {
	var stream []byte
	for range 100 {
		var err error
		if stream, err = a.exchange(a.g.Addr,
			"GET "+f.url+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
			return err
		}
		if bytes.HasPrefix(stream, []byte("HTTP/1.1 200 ")) && bytes.HasSuffix(stream, f.content) {
			return a.c.check(stream, "GET", f)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s is not served: %.200q", f.url, stream)
}

func (a *attack) file() *file { return &a.c.files[a.r.IntN(len(a.c.files))] }

// request sends a request for an existing file, with a well-formed request line, random fields and
// a random query.
func (a *attack) request() error {
	f := a.file()
	target := f.url + query(a.r, len(f.content))
	b := choose(a.r, "GET ", "GET ", "GET ", "HEAD ") + target + " HTTP/1.1\r\nHost: h\r\n" + fields(a.r,
		len(f.content), `"x"`) + "Connection: close\r\n\r\n"
	stream, err := a.exchange(a.g.Addr, b)
	if err != nil {
		return err
	}
	if err := a.c.check(stream, methodOf(b), f); err != nil {
		return fmt.Errorf("%w\nrequest: %q", err, b)
	}
	return nil
}

// one returns a request with a random method, path, query, version and fields.
func (a *attack) one() string {
	f := a.file()
	if n := len(a.c.secret); n > 0 && a.r.IntN(8) == 0 {
		f = &file{url: a.c.secret[a.r.IntN(n)]}
	}
	line := choose(a.r, "GET", "GET", "GET", "OPTIONS", "POST", "get", "PURGE") + " " + pathOf(a.r, f.url) +
		query(a.r, len(f.content)) + " HTTP/1." + choose(a.r, "1", "1", "1", "0", "2")
	return line + "\r\nHost: h\r\n" + fields(a.r, len(f.content), `"x"`) + "\r\n"
}

// bytes sends a mutated request.
func (a *attack) bytes() error {
	return a.sendAny(mutate(a.r, a.one(), 4))
}

// pipeline sends several requests at once, with garbage between them.
func (a *attack) pipeline() error {
	var b strings.Builder
	for range 1 + a.r.IntN(8) {
		b.WriteString(a.one())
		if a.r.IntN(4) == 0 {
			b.WriteString(mutate(a.r, "\x00\xff garbage\r\n\r\n", 5))
		}
	}
	return a.sendAny(b.String())
}

func (a *attack) sendAny(b string) error {
	stream, err := a.exchange(a.g.Addr, b)
	if err != nil {
		return err
	}
	if strings.Contains(b, "HEAD") { // the places of bodies are not known
		if bytes.Contains(stream, []byte(canary)) {
			return fmt.Errorf("bytes from outside the store were sent for %q", b)
		}
		return nil
	}
	if err := a.c.check(stream, "GET", nil); err != nil {
		return fmt.Errorf("%w\nrequests: %.3000q", err, b)
	}
	return nil
}

// slow sends a head byte by byte and stops at a random byte.
func (a *attack) slow() error {
	c, err := a.dial(a.g.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	b := a.one()
	for i := range a.r.IntN(min(60, len(b))) {
		if _, err := io.WriteString(c, b[i:i+1]); err != nil {
			return nil // the read timeout of the gateway has ended
		}
		time.Sleep(time.Duration(a.r.IntN(20)) * time.Millisecond)
	}
	if a.r.IntN(2) == 0 {
		_, _ = io.Copy(io.Discard, c) // until the read timeout of the gateway ends
	}
	return nil
}

// abort disconnects in the middle of a response, by a reset or by an ordinary close.
func (a *attack) abort() error {
	c, err := a.dial(a.g.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	f := a.file()
	_, _ = io.WriteString(c, "GET "+f.url+" HTTP/1.1\r\nHost: h\r\n\r\n")
	_, _ = io.CopyN(io.Discard, c, int64(a.r.IntN(len(f.content)+1)))
	if tcp, ok := c.(*net.TCPConn); ok && a.r.IntN(2) == 0 {
		_ = tcp.SetLinger(0)
	}
	return nil
}

// onAdmin sends mutated requests to the admin listener.
func (a *attack) onAdmin() error {
	f := a.file()
	b := choose(a.r, "GET /explain?url="+pathOf(a.r, f.url), "GET /explain?json=1&url=http://h"+pathOf(a.r, f.url),
		"POST /purge?id="+strings.TrimPrefix(pathOf(a.r, f.url), "/"),
		"POST /purge?prefix="+f.url[1:1+a.r.IntN(12)],
		"GET /status", "GET /status.json", "GET /locks", "GET /readyz", "GET /debug/pprof/cmdline",
		"GET /../../etc/passwd", "POST /prefetch", "GET /debug/pprof/goroutine?debug=1") +
		" HTTP/1.1\r\nHost: " + a.g.Admin + "\r\n" + choose(a.r, "", "Content-Length: 30\r\n",
		"Transfer-Encoding: chunked\r\n", "Origin: http://evil.example\r\n") + "Connection: close\r\n\r\n" +
		choose(a.r, "", f.url+"\n", "5\r\nhello\r\n0\r\n\r\n", mutate(a.r, strings.Repeat(f.url+"\n", 3), 5))
	if a.r.IntN(3) == 0 {
		b = mutate(a.r, b, 3)
	}
	c, err := a.dial(a.g.Admin)
	if err != nil {
		return err
	}
	defer c.Close()
	_, _ = io.WriteString(c, b)
	_ = c.(*net.TCPConn).CloseWrite() // else the listener would wait for the rest of a body
	stream, _ := io.ReadAll(c)
	if bytes.Contains(stream, []byte(canary)) {
		return fmt.Errorf("bytes from outside the store were sent for %q", b)
	}
	return nil
}

// noHandshake sends garbage in place of a TLS handshake.
func (a *attack) noHandshake() error {
	c, err := net.DialTimeout("tcp", a.g.Addr, 30*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(c, choose(a.r, a.one(), mutate(a.r, "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 4),
		"\x16\x03\x01\xff\xff"+strings.Repeat("a", a.r.IntN(20000)), "", "\x80\x2e\x01\x03"))
	if a.r.IntN(2) == 0 {
		if _, err := io.Copy(io.Discard, c); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				return fmt.Errorf("the gateway waits for a handshake without end")
			}
		}
	}
	return nil
}
