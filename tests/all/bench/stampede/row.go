package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/stampede"
)

// freshFor is the time for which an entry is fresh in the scenarios with expiry. HTTP counts in
// whole seconds.
const freshFor = time.Second

// segmentSize is the size of the segments that a gateway fetches.
const segmentSize = 4 << 20

// row is the result for a number of gateways.
type row struct {
	nodes, size                 int
	downloads, questions, bytes int64 // of the storages
	report                      stampede.Report
}

// errWarm is the error for gateways that fail to send the file to one client each.
var errWarm = errors.New("they cannot be warmed")

// measure starts slow storages with one file and n gateways that share a new Redis, and sends the
// requests.
func measure(s *settings, n int, dir string) (row, error) {
	dir, err := os.MkdirTemp(dir, "gateways-")
	if err != nil {
		return row{}, err
	}
	cluster, err := fdfstest.Start(fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 2}}})
	if err != nil {
		return row{}, err
	}
	defer cluster.Close()
	content := make([]byte, s.size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // never fails
	id, err := cluster.Put(fdfstest.FileSpec{Group: "group1", Content: content, Ext: "bin",
		Created: time.Now().Add(-24 * time.Hour)})
	if err != nil {
		return row{}, err
	}
	redis, err := lab.StartRedis(dir)
	if err != nil {
		return row{}, err
	}
	defer redis.Stop()
	o := lab.GatewayOptions{Binary: s.gateway, Dir: dir, Trackers: cluster.Trackers(), Redis: redis.Addr}
	if s.scenario != cold {
		o.Cache = []string{fmt.Sprintf("ttl = %v", freshFor)}
	}
	ask := stampede.Options{Clients: n, Want: content}
	for range n {
		g, err := lab.StartGateway(o)
		if err != nil {
			return row{}, err
		}
		defer g.Stop()
		ask.URLs = append(ask.URLs, "http://"+g.Addr+"/"+id.String())
	}
	slow(s, cluster)
	if s.scenario != cold {
		if warm := stampede.Run(ask); warm.Count(stampede.Whole) != n {
			return row{}, fmt.Errorf("%w: %s", errWarm, warm)
		}
		time.Sleep(freshFor + freshFor/2)
	}
	for _, one := range cluster.Storages() {
		if s.scenario == dead {
			one.Kill()
		}
		one.ResetCounts()
	}
	ask.Clients = s.clients
	r := row{nodes: n, size: s.size, report: stampede.Run(ask)}
	time.Sleep(s.delay + freshFor/2) // requests in the background count too
	files := cluster.Downloads(id)
	r.downloads, r.bytes = int64(files.Downloads), files.Bytes
	for _, one := range cluster.Storages() {
		r.questions += int64(one.Counts().Requests[fdfstest.CmdFileInfo])
	}
	return r, nil
}

// slow sets the delay and the rate of the storages.
func slow(s *settings, cluster *fdfstest.Cluster) {
	rate := 0
	if s.spread > 0 {
		rate = max(1, int(float64(s.size)/s.spread.Seconds()))
	}
	for _, one := range cluster.Storages() {
		one.SetFaults(
			fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Delay: s.delay, Rate: rate},
			fdfstest.Faults{Commands: []byte{fdfstest.CmdFileInfo}, Delay: s.delay},
		)
	}
}

// String returns the row of the table.
func (r row) String() string {
	ms := func(d time.Duration) int64 { return d.Round(time.Millisecond).Milliseconds() }
	return fmt.Sprintf("| %d | %d | %d | %.2f | %d / %d ms | %d / %d ms | %s |", r.nodes, r.downloads, r.questions,
		float64(r.bytes)/float64(r.size), ms(r.report.FirstByte(.5)), ms(r.report.FirstByte(.99)),
		ms(r.report.Whole(.5)), ms(r.report.Whole(.99)), r.report)
}

// errMissed is the error for an unexpected result.
var errMissed = errors.New("not as wanted")

// judge returns errMissed if a client did not get the file, or a segment was downloaded more often
// than needed. Times are no failure, since they depend on the machine.
func (r row) judge(s *settings) error {
	most := int64(0) // content of a file that is only expired is never downloaded again
	if s.scenario == cold {
		most = (int64(s.size) + segmentSize - 1) / segmentSize
	}
	if r.report.Count(stampede.Whole) < len(r.report) || r.downloads > most {
		return fmt.Errorf("%w: %d gateways: %s; %d downloads, one for each segment are %d", errMissed, r.nodes,
			r.report, r.downloads, most)
	}
	return nil
}
