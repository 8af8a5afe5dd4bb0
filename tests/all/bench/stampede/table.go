package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"fastdfs-gateway/tests/stampede"
)

const tableHead = "| front | downloads | metadata requests | origin bytes / size | first byte p50 / p99 | " +
	"whole body p50 / p99 | errors | wrong bodies |\n| --- | --- | --- | --- | --- | --- | --- | --- |"

// row is the result of one front.
type row struct {
	front  *front
	size   int
	nodes  int
	counts counts
	report stampede.Report
}

// median returns the row with the median of the times, and with the highest counts. A row in which
// a client did not get the file precedes all others.
func median(rows []row) row {
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.report.Whole(.99), b.report.Whole(.99)) })
	m := rows[len(rows)/2]
	for _, r := range rows {
		if r.report.Count(stampede.Whole) < len(r.report) {
			m = r
		}
	}
	for _, r := range rows {
		m.counts.downloads, m.counts.questions = max(m.counts.downloads, r.counts.downloads),
			max(m.counts.questions, r.counts.questions)
		m.counts.bytes = max(m.counts.bytes, r.counts.bytes)
	}
	return m
}

// String returns the row of the table.
func (r row) String() string {
	wrong := r.report.Count(stampede.Wrong)
	return fmt.Sprintf("| %s | %d | %d | %.2f | %s / %s | %s / %s | %d | %d |", r.front.name, r.counts.downloads,
		r.counts.questions,
		float64(r.counts.bytes)/float64(r.size), text(r.report.FirstByte(.5)), text(r.report.FirstByte(.99)),
		text(r.report.Whole(.5)), text(r.report.Whole(.99)), len(r.report)-r.report.Count(stampede.Whole)-wrong, wrong)
}

func text(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// errMissed is the error for an experiment with an unexpected result.
var errMissed = errors.New("not as wanted")

// judge returns errMissed if a client of a gateway did not get the file, or a segment was
// downloaded more often than needed. Times are no failure, since they depend on the machine.
func judge(s *settings, rows []row) error {
	most := int64(0) // content of a file that is only expired is never downloaded again
	if s.scenario == cold {
		most = (int64(s.size) + segmentSize - 1) / segmentSize
	}
	var errs []error
	for _, r := range rows {
		if r.front.proxy {
			continue
		}
		if r.report.Count(stampede.Whole) < len(r.report) {
			errs = append(errs, fmt.Errorf("%w: %s: %s", errMissed, r.front.name, r.report))
		}
		if r.counts.downloads > most {
			errs = append(errs, fmt.Errorf("%w: %s: %d downloads, one for each segment are %d", errMissed, r.front.name,
				r.counts.downloads, most))
		}
	}
	compare(rows)
	return errors.Join(errs...)
}

// compare prints the times of the gateways against those of one node of the rival.
func compare(rows []row) {
	i := slices.IndexFunc(rows, func(r row) bool { return r.front.rival && r.nodes == 1 })
	if i < 0 {
		return
	}
	rival := rows[i].report
	fmt.Println()
	for _, r := range rows {
		if !r.front.proxy {
			fmt.Printf("%s against %s, p99: first byte %+d ms, whole body %+.0f %%\n", r.front.name, rows[i].front.name,
				(r.report.FirstByte(.99) - rival.FirstByte(.99)).Milliseconds(),
				100*(float64(r.report.Whole(.99))/float64(rival.Whole(.99))-1))
		}
	}
}

// segmentSize is the size of the segments that a gateway fetches.
const segmentSize = 4 << 20
