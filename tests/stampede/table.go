package main

import (
	"errors"
	"fmt"
	"time"

	"fastdfs-gateway/tests/stampede/crowd"
)

const tableHead = `| front | origin GETs | questions | origin bytes / size | first byte p50 / p99 | whole body p50 / p99 | errors | wrong bodies |
| --- | --- | --- | --- | --- | --- | --- | --- |`

// row is what was measured with one front.
type row struct {
	front  *front
	size   int
	nodes  int
	counts counts
	report crowd.Report
}

// String gives the row of the table.
func (r row) String() string {
	wrong := r.report.Count(crowd.Wrong)
	return fmt.Sprintf("| %s | %d | %d | %.2f | %s / %s | %s / %s | %d | %d |", r.front.name, r.counts.downloads, r.counts.questions,
		float64(r.counts.bytes)/float64(r.size), text(r.report.FirstByte(.5)), text(r.report.FirstByte(.99)),
		text(r.report.Whole(.5)), text(r.report.Whole(.99)), len(r.report)-r.report.Count(crowd.Whole)-wrong, wrong)
}

func text(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// errMissed is the error for an experiment that did not show what it is to show.
var errMissed = errors.New("not as wanted")

// judge holds the gateways to what is wanted of them. Times are told and are no failure: they are this machine's.
func judge(s *settings, rows []row) error {
	var errs []error
	var rival *row
	for i := range rows {
		if r := &rows[i]; r.front.rival && (rival == nil || r.nodes == 1) {
			rival = r
		}
	}
	most := int64(1)
	if s.scenario != cold {
		most = 0
	}
	if segments := (int64(s.size) + segmentSize - 1) / segmentSize; s.scenario == cold {
		most = segments
	}
	for _, r := range rows {
		if r.front.proxy {
			continue
		}
		if n := len(r.report) - r.report.Count(crowd.Whole); n > 0 {
			errs = append(errs, fmt.Errorf("%w: %s: %s", errMissed, r.front.name, r.report))
		}
		if r.counts.downloads > most {
			errs = append(errs, fmt.Errorf("%w: %s: %d downloads, one for each segment are %d", errMissed, r.front.name, r.counts.downloads, most))
		}
	}
	if rival != nil {
		fmt.Println()
		for _, r := range rows {
			if !r.front.proxy {
				fmt.Printf("%s against %s: first byte p99 %+d ms, whole body p99 %+.0f %%\n", r.front.name, rival.front.name,
					(r.report.FirstByte(.99) - rival.report.FirstByte(.99)).Milliseconds(),
					100*(float64(r.report.Whole(.99))/float64(rival.report.Whole(.99))-1))
			}
		}
	}
	return errors.Join(errs...)
}

// segmentSize is what a gateway fetches at a time.
const segmentSize = 4 << 20
