package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/stampede"
)

// front is a program between the clients and the storage: one row of the table.
type front struct {
	name    string
	install string // the command that installs the program
	proxy   bool   // not a gateway
	rival   bool   // the gateways are compared with it
	serve   func(w *world) error
}

// world is the running servers of one row.
type world struct {
	urls     []string // of the file, one for each node
	content  []byte
	counts   func() counts
	reset    func()
	kill     func() // kills the storage
	cleanups []func()
}

// counts are the downloads, the metadata requests and the sent bytes of the storage.
type counts struct{ downloads, questions, bytes int64 }

func (w *world) defers(f func()) { w.cleanups = append(w.cleanups, f) }

// end stops the servers, the newest first.
func (w *world) end() {
	for i := len(w.cleanups) - 1; i >= 0; i-- {
		w.cleanups[i]()
	}
}

// freshFor is the time for which an entry is fresh in the scenarios with expiry. HTTP counts in
// whole seconds.
const freshFor = time.Second

// fronts returns the fronts of all rows.
func fronts(s *settings, storages *storages, dir string) []front {
	var list []front
	for _, n := range s.nodes {
		list = append(list, front{name: "gateway x " + strconv.Itoa(n), install: "apt-get install redis-server",
			serve: func(w *world) error { return serveGateways(w, s, storages, n, dir) }})
	}
	if !s.proxies {
		return list
	}
	nginx := func(cache bool) func(string, string) (*lab.Process, error) {
		return func(dir, origin string) (*lab.Process, error) { return lab.StartNginx(dir, origin, cache) }
	}
	add := func(name, install string, rival bool, nodes int, start func(dir, origin string) (*lab.Process, error)) {
		list = append(list, front{name: name, install: install, proxy: true, rival: rival,
			serve: func(w *world) error { return serveProxies(w, s, nodes, dir, start) }})
	}
	if s.scenario == cold {
		add("nginx proxy, no cache", "apt-get install nginx-light", false, 1, nginx(false))
	}
	for n := 1; n <= 2; n++ {
		add(fmt.Sprintf("nginx proxy_cache + proxy_cache_lock x %d", n), "apt-get install nginx-light", false, n,
			nginx(true))
	}
	for n := 1; n <= 2; n++ {
		add(fmt.Sprintf("Varnish x %d", n), "apt-get install varnish", true, n, lab.StartVarnish)
	}
	return list
}

// serveGateways starts gateways that share a new Redis.
func serveGateways(w *world, s *settings, storages *storages, n int, dir string) error {
	dir, err := os.MkdirTemp(dir, "gateways-")
	if err != nil {
		return err
	}
	redis, err := lab.StartRedis(dir)
	if err != nil {
		return err
	}
	w.defers(redis.Stop)
	o := lab.GatewayOptions{Binary: s.gateway, Dir: dir, Trackers: storages.cluster.Trackers(), Redis: redis.Addr}
	if s.scenario != cold {
		o.Cache = []string{fmt.Sprintf("ttl = %v", freshFor)}
	}
	for range n {
		g, err := lab.StartGateway(o)
		if err != nil {
			return err
		}
		w.defers(g.Stop)
		w.urls = append(w.urls, "http://"+g.Addr+"/"+storages.id.String())
	}
	w.content, w.counts, w.reset, w.kill = storages.content, storages.counts, storages.reset, storages.kill
	w.defers(storages.revive)
	storages.slow(s)
	return nil
}

// serveProxies starts proxies in front of a web server.
func serveProxies(w *world, s *settings, n int, dir string,
	start func(dir, origin string) (*lab.Process, error)) error {
	maxAge := time.Hour
	if s.scenario != cold {
		maxAge = freshFor
	}
	content := contentOf(s.size)
	o, err := startOrigin(content, s.delay, s.spread, int(maxAge.Seconds()))
	if err != nil {
		return err
	}
	w.defers(o.stop)
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	for range n {
		p, err := start(dir, o.addr)
		if err != nil {
			return err
		}
		w.defers(p.Stop)
		w.urls = append(w.urls, "http://"+p.Addr+"/file")
	}
	w.content, w.reset, w.kill = content, o.resetCounts, o.stop
	w.counts = func() counts { return counts{o.downloads.Load(), o.questions.Load(), o.bytes.Load()} }
	return nil
}

// errWarm is the error for a front that fails to send the file to one client for each node.
var errWarm = errors.New("it cannot be warmed")

// measure returns the row of the front.
func (f *front) measure(s *settings) (row, error) {
	w := &world{}
	defer w.end()
	if err := f.serve(w); err != nil {
		return row{}, err
	}
	if s.scenario != cold {
		warm := stampede.Run(stampede.Options{Clients: len(w.urls), URLs: w.urls, Want: w.content})
		if warm.Count(stampede.Whole) != len(w.urls) {
			return row{}, fmt.Errorf("%w: %s", errWarm, warm)
		}
		time.Sleep(freshFor + freshFor/2)
		if s.scenario == dead {
			w.kill()
		}
	}
	w.reset()
	report := stampede.Run(stampede.Options{Clients: s.clients, URLs: w.urls, Want: w.content})
	time.Sleep(s.delay + freshFor/2) // requests in the background count too
	return row{front: f, size: s.size, nodes: len(w.urls), counts: w.counts(), report: report}, nil
}
