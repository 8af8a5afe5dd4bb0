package app

import (
	"fmt"
	"strings"
	"testing"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// everyCount has a different value in each count.
var everyCount = counts{
	storages: client.Stats{Resumes: 1, Hedges: 2, WrongReplies: 3, CRCErrors: 4},
	files:    local.FileCacheStats{Hits: 5, Misses: 6, Files: 7, Bodies: 8, Bytes: 9, Descriptors: 10},
	cache: &cache.Stats{
		Memory: tier.Stats{Bytes: 11, Evicted: 12},
		Disk:   tier.Stats{Bytes: 13, Evicted: 14, Failed: 15, Skipped: 16, Corrupt: 17},
		Fills:  18, RecordBytes: 19, StaleServed: 20, MemoryHits: 21, DiskHits: 22, Misses: 23,
		PeerBytes: 24, PeerServed: 25,
	},
	fleet: fleet.Stats{
		Up: true, Acquired: 26, Held: 27, Failed: 28, Lost: 29,
		PeerFetches: map[string]int64{"ok": 30, "changed": 31}, PeerRequests: map[int]int64{200: 32, 503: 33},
	},
	lostLines: map[string]uint64{"main": 34, "access": 35},
	origin:    origin.Stats{Fetched: 36, NotFound: 37, Timeouts: 38, Failed: 39, Bytes: 40, TrunkMismatches: 1000},
}

// everyMetric is the page of metrics for everyCount, without the metrics that are 0.
const everyMetric = `
cache_bytes{tier=disk} 13
cache_bytes{tier=memory} 11
cache_bytes{tier=records} 19
cache_disk_damaged_total 17
cache_disk_failures_total 15
cache_disk_skipped_total 16
cache_evictions_total{tier=disk} 14
cache_evictions_total{tier=memory} 12
cache_flights 18
cache_hits_total{tier=disk} 22
cache_hits_total{tier=memory} 21
cache_misses_total 23
crc_errors_total 1004
file_cache_bodies 8
file_cache_bytes 9
file_cache_files 7
file_cache_hits_total 5
file_cache_misses_total 6
lock_acquire_total{result=error} 28
lock_acquire_total{result=held} 27
lock_acquire_total{result=ok} 26
lock_lost_total 29
log_lines_lost_total{log=access} 35
log_lines_lost_total{log=main} 34
origin_bytes_total 40
origin_fetches_total{result=error} 39
origin_fetches_total{result=not_found} 37
origin_fetches_total{result=ok} 36
origin_fetches_total{result=timeout} 38
origin_hedges_total 2
origin_resumes_total 1
origin_wrong_answers_total 3
peer_bytes_total 24
peer_fetches_total{result=changed} 31
peer_fetches_total{result=ok} 30
peer_requests_total{code=200} 32
peer_requests_total{code=503} 33
peer_served_total 25
redis_up 1
stale_served_total 20
store_descriptors 10
`

func TestCollectorShowsEveryCount(t *testing.T) {
	snapshots := 0
	r := prometheus.NewRegistry()
	require.NoError(t, r.Register(collector(func() counts { snapshots++; return everyCount })))
	snapshots = 0
	page := scrape(t, r)
	require.Equal(t, 1, snapshots, "of one scrape")
	require.Contains(t, page, fmt.Sprintf("panics_total %d", panics.Total()))
	var got []string
	for _, line := range page {
		if !strings.HasPrefix(line, "panics_total ") && !strings.HasSuffix(line, " 0") {
			got = append(got, line)
		}
	}
	require.Equal(t, strings.Split(strings.TrimSpace(everyMetric), "\n"), got)
}

// scrape lists the series of a registry in the order of the page: name, labels and value.
func scrape(t *testing.T, r *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			line := strings.TrimPrefix(family.GetName(), "fdfs_gateway_")
			for _, label := range m.GetLabel() {
				line += "{" + label.GetName() + "=" + label.GetValue() + "}"
			}
			lines = append(lines, fmt.Sprint(line, " ", m.GetCounter().GetValue()+m.GetGauge().GetValue()))
		}
	}
	return lines
}
