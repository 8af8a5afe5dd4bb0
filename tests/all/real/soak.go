package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	soakFiles    = 60
	soakWorkers  = 64
	soakSlowest  = 5 * time.Second  // limit of the time of a response
	strikeEvery  = 20 * time.Second // kills a storage; every third time pauses one
	strikeBreak  = 5 * time.Second
	purgeEvery   = time.Second
	soakErrorsNo = 5 // number of printed errors
)

// soak is the results of one soak.
type soak struct {
	asked, strikes atomic.Int64
	mu             sync.Mutex // guards all below
	errors         []string
	count          int
	times          []time.Duration
}

// soakPart requests files from all gateways all the time, while the storages of group1 are killed
// and started in turn.
func (w *world) soakPart() {
	if w.s.soak <= 0 {
		w.report.skip("soak", "-soak 0")
		return
	}
	files, err := w.soakFiles()
	if w.report.failed("soak", err) {
		return
	}
	s := &soak{}
	stop := make(chan struct{})
	var disturbing sync.WaitGroup
	disturbing.Go(func() { w.strike(s, stop) })
	disturbing.Go(func() { w.purgeAlways(stop) })
	w.ask(s, files)
	close(stop)
	disturbing.Wait()
	w.report.failed("soak", w.waitReady())

	slices.Sort(s.times)
	slowest := s.times[len(s.times)-1]
	seen := fmt.Sprintf("%d requests in %v, %d disturbances: %d errors, 99 %% within %v, slowest %v", s.asked.Load(),
		w.s.soak,
		s.strikes.Load(), s.count, s.times[len(s.times)*99/100].Round(time.Millisecond),
		slowest.Round(time.Millisecond))
	w.report.check("soak", s.count == 0 && slowest <= soakSlowest, "%s %v", seen, s.errors)
}

// soakFiles makes files of some sizes and kinds.
func (w *world) soakFiles() ([]*file, error) {
	var files []*file
	for i := range soakFiles {
		n := w.storages[i%3]
		f, err := w.upload("soak", n, 0, "bin", w.content([]int{900, 20000, 300 << 10, 2 << 20}[i%4]))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	for _, f := range files {
		if err := w.waitSame(f); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// ask sends requests at a steady rate until the soak is over.
func (w *world) ask(s *soak, files []*file) {
	servers := []string{w.edge.url, w.byHTTP.url, w.redirecting.url}
	for _, n := range w.storages {
		servers = append(servers, w.gatewayAt(n))
	}
	jobs := make(chan int)
	var workers sync.WaitGroup
	for range soakWorkers {
		workers.Go(func() {
			for range jobs {
				f, server := files[rand.IntN(len(files))], servers[rand.IntN(len(servers))]
				s.note(f, server, get(server+"/"+f.id))
			}
		})
	}
	ticks := time.NewTicker(time.Second / time.Duration(w.s.rate))
	defer ticks.Stop()
	end := time.After(w.s.soak)
	for i := 0; ; i++ {
		select {
		case <-end:
			close(jobs)
			workers.Wait()
			return
		case <-ticks.C:
			jobs <- i
		}
	}
}

func (s *soak) note(f *file, server string, r response) {
	s.asked.Add(1)
	wrong := f.whole(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times = append(s.times, r.took)
	if wrong == "" {
		return
	}
	if s.count++; len(s.errors) < soakErrorsNo {
		s.errors = append(s.errors, fmt.Sprintf("\n    %s/%s: %s", server, f.id, wrong))
	}
}

// strike kills s1 and s2 in turn, and starts them again; every third time it pauses one instead.
func (w *world) strike(s *soak, stop <-chan struct{}) {
	every := min(strikeEvery, w.s.soak/3)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(every / 2):
		}
		n := w.storages[i%2]
		begin, end := w.kill, w.startStorage
		if i%3 == 2 {
			begin = func(n *node) error { return w.signal(n, syscall.SIGSTOP) }
			end = func(n *node) error { return w.signal(n, syscall.SIGCONT) }
		}
		s.strikes.Add(1)
		w.report.failed("soak", begin(n))
		time.Sleep(min(strikeBreak, every/2))
		w.report.failed("soak", end(n))
		time.Sleep(max(0, every/2-strikeBreak))
	}
}

// purgeAlways keeps the caches of the edge cold.
func (w *world) purgeAlways(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(purgeEvery):
			for _, s := range []*server{w.edge, w.byHTTP} {
				if err := w.purge(s, "all=1"); err != nil {
					w.report.failed("soak", err)
					return
				}
			}
		}
	}
}
