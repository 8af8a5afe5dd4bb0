package fleet

import (
	"fmt"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/stampede"
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
	// A gateway whose replies take longer than 450 ms counts as dead. A busy machine takes part of
	// these.
	late(150*time.Millisecond, 150*time.Millisecond),
	late(10*time.Millisecond, 150*time.Millisecond),
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
// client gets the exact bytes. The bytes of the file are downloaded once; once for each gateway if
// all take all others for dead.
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
	case n.Bytes > int64(most)*size+size/10: // a link that is as late as a dead one lets a download begin, and end soon
		return fmt.Errorf("%d downloads of %d bytes, want %d at most", n.Downloads, n.Bytes, most)
	case r.Whole(1) > e2e.Prompt:
		return fmt.Errorf("the file was whole after %v", r.Whole(1))
	}
	return nil
}
