package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/stampede"

	"github.com/stretchr/testify/require"
)

// link is a set of connections of a fleet, each through a relay. The first gateway is the owner of
// the file.
type link struct {
	name   string
	relays func(f *e2e.Fleet) []*redistest.Relay
}

var (
	redisLinks = link{"redis links", func(f *e2e.Fleet) (list []*redistest.Relay) {
		for _, m := range f.Gateways {
			list = append(list, m.RedisRelay)
		}
		return list
	}}
	peerLinks = link{"peer links", func(f *e2e.Fleet) (list []*redistest.Relay) {
		for _, m := range f.Gateways {
			list = append(list, m.PeerRelay)
		}
		return list
	}}
)

// linkFault is a fault of the connections of a relay. The client of a connection is the gateway
// that sends requests; its target is Redis or another gateway.
type linkFault struct {
	name    string
	begin   func(r *redistest.Relay)
	end     func(r *redistest.Relay) // nil: the fault concerns only the connections that were open
	unknown bool                     // the client detects the fault by a timeout only
}

func late(least, most time.Duration) linkFault {
	return linkFault{
		name:  fmt.Sprintf("late by %v to %v each way", least, most),
		begin: func(r *redistest.Relay) { r.DelayBoth(least, most) },
		end:   func(r *redistest.Relay) { r.DelayBoth(0, 0) },
	}
}

var linkFaults = []linkFault{
	{name: "half-closed towards the client", begin: func(r *redistest.Relay) { r.HalfClose(redistest.Client) }},
	{name: "half-closed towards the target", begin: func(r *redistest.Relay) { r.HalfClose(redistest.Target) }},
	{name: "dead for the client alone", begin: func(r *redistest.Relay) { r.Strand(redistest.Client) }},
	{name: "dead for the target alone", begin: func(r *redistest.Relay) { r.Strand(redistest.Target) }, unknown: true},
	{name: "black", begin: (*redistest.Relay).Hang, end: (*redistest.Relay).Restore, unknown: true},
	// A peer connection ends if a ping gets no reply within a second. A busy machine takes part of
	// that second.
	late(200*time.Millisecond, 200*time.Millisecond),
	late(10*time.Millisecond, 200*time.Millisecond),
}

// linkCase is a fault of a link, before or during a fill.
type linkCase struct {
	link
	linkFault
	inTheFill bool // the fault begins in the middle of the fill; otherwise before the fill
}

func (c linkCase) String() string {
	when := "before the fill"
	if c.inTheFill {
		when = "in the fill"
	}
	return c.link.name + ", " + c.linkFault.name + ", " + when
}

func (c linkCase) begins(f *e2e.Fleet) {
	for _, r := range c.relays(f) {
		c.begin(r)
	}
}

func (c linkCase) ends(f *e2e.Fleet) {
	for _, r := range c.relays(f) {
		if c.end != nil {
			c.end(r)
		}
	}
}

// linkCases returns all faults of the links. Each one begins either before the fill or in it.
func linkCases() (list []linkCase) {
	for i, l := range []link{redisLinks, peerLinks} {
		for j, fault := range linkFaults {
			list = append(list, linkCase{l, fault, (i+j)%2 == 1})
		}
	}
	return list
}

// linkTTL is the ttl of leases. A quarter of it is longer than a round trip on the slowest link.
const linkTTL = 5 * time.Second

// linkFleet are the options of a fleet with relays on all links.
var linkFleet = e2e.FleetOptions{Gateways: 3, Storages: 1, Relayed: true,
	Lines: []string{"[lock]", "ttl = " + linkTTL.String()}}

// TestFleetLinks: with any fault of the connections to Redis or between running gateways, every
// client gets the exact bytes. The file is downloaded once; once for each gateway if all take all
// others for dead.
func TestFleetLinks(t *testing.T) {
	t.Parallel()
	e2e.OnFleets(t, 2, linkFleet, linkCases(), linkCase.play)
}

// play requests a file with many clients. Its error means too many downloads, or too long a time.
func (c linkCase) play(f *e2e.Fleet) error {
	const size = 1 << 20
	const fetchTime = time.Second
	id, content := f.PutOwnedBy(size, f.Gateways[0])
	f.Slow(storageTime, fetchTime, size)
	if !c.inTheFill {
		c.begins(f)
	}
	if c.end != nil && !c.unknown { // gateways wait longer for peers of which they know that replies are late
		other, text := f.PutOwnedBy(1000, f.Gateways[0])
		f.Warm(other, text)
	}
	asked := make(chan stampede.Report)
	go func() { asked <- f.Stampede(30, id, content) }()
	f.Begun(id, size/3)
	if c.inTheFill {
		c.begins(f)
	}
	r := <-asked
	e2e.RequireWhole(f.T, r)
	c.ends(f)
	n := f.Cluster.Downloads(id)
	f.T.Logf("%d downloads of %.2f of the bytes, first byte after %v at most, whole after %v at most",
		n.Downloads, float64(n.Bytes)/size, r.FirstByte(1).Round(time.Millisecond), r.Whole(1).Round(time.Millisecond))
	most := 1
	if c.unknown && c.link.name == peerLinks.name {
		most = len(f.Gateways) // each may take all others for dead
	}
	switch {
	case n.Downloads > most:
		return fmt.Errorf("%d downloads, want %d at most", n.Downloads, most)
	case r.Whole(1) > e2e.Prompt:
		return fmt.Errorf("the file was whole after %v", r.Whole(1))
	}
	return nil
}

// TestFleetLinksPurge: with any fault of the connections, all gateways have applied a purge with a
// successful response. If the response names missing gateways, all others have applied the purge.
// The response comes after 5 s. After the fault, purges reach all gateways.
func TestFleetLinksPurge(t *testing.T) {
	t.Parallel()
	e2e.OnFleets(t, 2, linkFleet, linkCases(), linkCase.playPurges)
}

// playPurges purges a file by each gateway, and requires that purges reach all after the fault.
func (c linkCase) playPurges(f *e2e.Fleet) error {
	for i := range f.Gateways {
		require.NoError(f.T, f.Punctually(func() error {
			defer c.ends(f)
			return c.purge(f, i)
		}))
	}
	f.RequirePurged(func(id string) error {
		status, text := f.Gateways[0].AdminPost("/purge?id="+id, "")
		return e2e.ReachedAll(status == http.StatusOK, text)
	})
	return nil
}

// purge changes a file that all gateways have cached, and purges it by one of them. Its error means
// that the purge took too long, or addressed too few gateways: a gateway is no member after 15 s
// without a heartbeat.
func (c linkCase) purge(f *e2e.Fleet, by int) error {
	t := f.T
	t.Helper()
	file := f.PutChanging()
	f.Warm(file.ID, file.Content)
	old := file.Content
	f.Change(file)
	c.begins(f)
	began := time.Now()
	status, text := f.Gateways[by].AdminPost("/purge?id="+file.ID.String(), "")
	took := time.Since(began)
	t.Logf("the purge took %v: %d %s", took.Round(time.Millisecond), status, text)
	var response struct {
		Gateways int
		Missing  []string
		// Unconfirmed: this gateway may get the old content from the owner of the file, which has
		// not applied the purge.
		Unconfirmed bool
	}
	require.NoError(t, json.Unmarshal([]byte(text), &response), text)
	complete := response.Missing == nil && !response.Unconfirmed
	require.Equal(t, map[bool]int{true: http.StatusOK, false: http.StatusGatewayTimeout}[complete], status, text)
	switch {
	case took > e2e.Prompt:
		return fmt.Errorf("the purge took %v", took)
	case complete && response.Gateways != len(f.Gateways):
		return e2e.ReachedAll(true, text)
	}
	for _, m := range f.Gateways {
		get := func(content []byte) stampede.Report {
			return stampede.Run(stampede.Options{Clients: 3, URLs: e2e.URLs([]*e2e.Member{m}, file.ID), Want: content})
		}
		if slices.Contains(response.Missing, m.Name()) || response.Unconfirmed {
			eventually.True(t, func() bool { // the gateway may apply the purge between two clients
				r, of := get(old), get(file.Content)
				return r.Count(stampede.Whole) == len(r) || of.Count(stampede.Whole) == len(of)
			})
			continue
		}
		e2e.RequireWhole(t, get(file.Content))
	}
	return nil
}
