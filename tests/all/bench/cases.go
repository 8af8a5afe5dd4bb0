package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/certtest"
	"fastdfs-gateway/tests/fdfstest"
)

// testCase is one row of the table.
type testCase struct {
	name    string
	flavour flavour
	gateway ask
	nginx   ask    // default: as gateway
	note    string // how the sides differ
	status  int    // of the responses; default 200
	want    object // content of the first response
	byBytes int64  // requests are the received bytes divided by this size; 0 = the responses
	tagged  bool   // requests carry the entity-tag and date of a first response
}

// world is shared by all cases: the files, the storages of other hosts, and the folder for
// everything.
type world struct {
	dir     string
	memory  string // folder for caches: in memory where the system has one, so that no disk is measured
	store   *store
	cluster *fdfstest.Cluster
	dead    *fdfstest.Cluster // a tracker, whose storages do not run
	origin  *process          // nginx behind nginx; nil until it is needed
	cert    string            // file of TLS listeners, with key
	key     string
}

// tmpfs is the folder whose files Linux keeps in memory (shm_overview(7)).
const tmpfs = "/dev/shm"

// newWorld makes the store, and starts storages that have no files yet.
func newWorld(dir string) (*world, error) {
	w := &world{dir: dir, memory: dir, store: newStore(filepath.Join(dir, "store"))}
	if err := os.MkdirAll(filepath.Join(w.store.root, "data"), 0o755); err != nil {
		return nil, err
	}
	var err error
	if _, missing := os.Stat(tmpfs); missing == nil {
		if w.memory, err = os.MkdirTemp(tmpfs, "bench-"); err != nil {
			return nil, err
		}
	}
	c, err := certtest.Make(certtest.Order{Hosts: []string{"bench"}})
	if err != nil {
		return nil, err
	}
	w.cert, w.key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := c.Save(w.cert, w.key); err != nil {
		return nil, err
	}
	two := fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: group, Count: 2}}}
	if w.cluster, err = fdfstest.Start(two); err != nil {
		return nil, err
	}
	if w.dead, err = fdfstest.Start(two); err != nil {
		return nil, err
	}
	for _, s := range w.dead.Storages() {
		s.Kill()
	}
	return w, nil
}

// close stops the storages and the nginx behind nginx, and removes the folder in memory.
func (w *world) close() error {
	if w.origin != nil {
		w.origin.Stop()
	}
	w.cluster.Close()
	w.dead.Close()
	if w.memory != w.dir {
		return os.RemoveAll(w.memory)
	}
	return nil
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// mixFiles is the number of files of the mix, and mixAsked the number of requests until the mix
// begins again.
const mixFiles, mixAsked = 10_000, 100_000

// cases makes the files and returns the cases. wanted reports whether a case is to be run: others
// need no files.
func (w *world) cases(wanted func(name string) bool, coldFiles int) ([]testCase, error) {
	var list []testCase
	for _, make := range []struct {
		name string
		add  func(c *testCase) error
	}{
		{"4 KiB file", w.file(4 * kib)},
		{"4 KiB trunk slot", w.slot(4 * kib)},
		{"64 KiB file", w.file(64 * kib)},
		{"64 KiB trunk slot", w.slot(64 * kib)},
		{"900 KB trunk slot", w.slot(900_000)},
		{"1 MiB file", w.file(mib)},
		{"100 MiB file", w.huge},
		{"64 KiB range of 100 MiB", w.aRange},
		{"304 (Not Modified)", w.notModified},
		{"404 (Not Found)", w.notFound},
		{"404 of a deleted slot", w.deletedSlot},
		{"404 of 10,000 names", w.missingNames},
		{"404 of a young slave", w.youngSlave},
		{"4 KiB file with token", w.withToken},
		{"4 KiB file, a connection each", w.closing},
		{"4 KiB file by TLS", w.secured(4*kib, false)},
		{"64 KiB file by TLS", w.secured(64*kib, false)},
		{"1 MiB file by TLS", w.secured(mib, false)},
		{"4 KiB file by TLS, a connection each, resumed", w.reconnects},
		{"4 KiB file by HTTP/2", w.secured(4*kib, true)},
		{"64 KiB file by HTTP/2", w.secured(64*kib, true)},
		{"1 MiB file by HTTP/2", w.secured(mib, true)},
		{"Zipf mix of 10,000 files", w.mix},
		{"64 KiB of another host, warm", w.proxied(64*kib, warm, "nginx: proxy_cache in front of a second nginx")},
		{"4 KiB of another host, repeated", w.proxied(4*kib, relayed, noCache)},
		{"1 MiB of another host, repeated", w.proxied(mib, relayed, noCache)},
		{"64 KiB of another host, cold", w.fetched(coldFiles)},
	} {
		if !wanted(make.name) {
			continue
		}
		c := testCase{name: make.name, status: http.StatusOK}
		if err := make.add(&c); err != nil {
			return nil, fmt.Errorf("cannot make files for %q: %w", make.name, err)
		}
		if c.nginx.paths == nil {
			c.nginx = c.gateway
		}
		list = append(list, c)
	}
	return list, nil
}

// same sets the object that the requests to both sides are for.
func (c *testCase) same(o object) {
	c.want, c.gateway.paths = o, []string{o.path}
	if o.size >= mib/2 {
		c.byBytes = o.size
	}
}

func (w *world) file(size int) func(*testCase) error {
	return func(c *testCase) error {
		o, err := w.store.plain(size)
		c.same(o)
		return err
	}
}

func (w *world) slot(size int) func(*testCase) error {
	return func(c *testCase) error {
		content := w.store.content(size)
		o, err := w.store.packed(content)
		if err != nil {
			return err
		}
		plain, err := w.store.plainOf(content)
		c.same(o)
		c.nginx.paths, c.note = []string{plain.path}, "nginx: a plain file of that size"
		return err
	}
}

func (w *world) huge(c *testCase) error {
	o, err := w.store.plain(100 * mib)
	c.same(o)
	c.gateway.connections = 4
	return err
}

func (w *world) aRange(c *testCase) error {
	o, err := w.store.plain(100 * mib)
	c.same(o)
	c.byBytes, c.status = 0, http.StatusPartialContent
	const first = 50 * mib
	c.gateway.header = map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", first, first+64*kib-1)}
	return err
}

func (w *world) notModified(c *testCase) error {
	o, err := w.store.plain(4 * kib)
	c.same(o)
	c.status, c.tagged = http.StatusNotModified, true
	return err
}

func (w *world) withToken(c *testCase) error {
	o, err := w.store.plain(4 * kib)
	c.same(o)
	c.flavour, c.note = tokens, "nginx: no token is checked"
	c.gateway.paths = []string{o.path + "?" + antisteal.Query(secret, o.name, time.Now().Unix())}
	c.nginx.paths = []string{o.path}
	return err
}

func (w *world) closing(c *testCase) error {
	o, err := w.store.plain(4 * kib)
	c.same(o)
	c.gateway.header = map[string]string{"Connection": "close"}
	return err
}

// secured makes a case of a file over TLS; with http2, few connections carry many requests at a
// time.
func (w *world) secured(size int, http2 bool) func(*testCase) error {
	return func(c *testCase) error {
		o, err := w.store.plain(size)
		c.same(o)
		c.flavour, c.gateway.http2 = secured, http2
		return err
	}
}

// reconnects makes a case of a small file over TLS, with a connection for each request. wrk resumes
// the session.
func (w *world) reconnects(c *testCase) error {
	err := w.closing(c)
	c.flavour = secured
	return err
}

func (w *world) mix(c *testCase) error {
	files := make([]object, mixFiles)
	for i := range files {
		var err error
		if files[i], err = w.store.plain(mixSize(i)); err != nil {
			return err
		}
	}
	c.want = files[popular(mixFiles, 1)[0]]
	for _, i := range popular(mixFiles, mixAsked) {
		c.gateway.paths = append(c.gateway.paths, files[i].path)
	}
	return nil
}

// noCache is the note about nginx in cases of the flavour relayed.
const noCache = "nginx: no cache in front of a second nginx, as its module for FastDFS has none; time of the second " +
	"one is not counted"

// proxied makes a case of a file of the storages; the nginx behind nginx has its content in a plain
// file.
func (w *world) proxied(size int, f flavour, note string) func(*testCase) error {
	return func(c *testCase) error {
		objects, plain, err := w.remote(1, size)
		if err != nil {
			return err
		}
		c.flavour, c.note = f, note
		c.same(objects[0])
		c.nginx.paths = []string{plain.path}
		return nil
	}
}

// nginxColdFactor is the factor by which nginx may need more files than coldRate allows the
// gateway.
const nginxColdFactor = 8

// fetched makes a case of count files of the storages: each request is the first one for its file.
func (w *world) fetched(count int) func(*testCase) error {
	return func(c *testCase) error {
		objects, plain, err := w.remote(count, 64*kib)
		if err != nil {
			return err
		}
		c.flavour, c.note, c.want = cold,
			"nginx: likewise; time of the storages and of the second nginx is not counted", objects[0]
		for _, o := range objects {
			c.gateway.paths = append(c.gateway.paths, o.path)
		}
		for i := range count * nginxColdFactor {
			c.nginx.paths = append(c.nginx.paths, plain.path+"?n="+strconv.Itoa(i))
		}
		return nil
	}
}

// remote puts files with the same content into the storages, and one into the store.
func (w *world) remote(count, size int) ([]object, object, error) {
	content := w.store.content(size)
	objects, err := w.remoteOf(content, count)
	if err != nil {
		return nil, object{}, err
	}
	plain, err := w.store.plainOf(content)
	return objects, plain, err
}

// remoteOf puts files with this content into the storages.
func (w *world) remoteOf(content []byte, count int) ([]object, error) {
	objects := make([]object, count)
	for i := range objects {
		id, err := w.cluster.Put(fdfstest.FileSpec{Group: group, Content: content, Ext: "bin", Kind: fdfs.KindNormal,
			Created: created.Add(time.Duration(i) * time.Second)})
		if err != nil {
			return nil, err
		}
		objects[i] = objectOf(id, content)
	}
	return objects, nil
}
