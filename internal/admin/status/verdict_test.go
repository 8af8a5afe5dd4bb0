package status

import (
	"testing"
	"time"

	"fastdfs-gateway/internal/i18n"

	"github.com/stretchr/testify/require"
)

func TestVerdict(t *testing.T) {
	good := Server{Group: "group1", Address: "a:1", State: Good, Text: i18n.Plain("replies")}
	dead := Server{Group: "group1", Address: "b:1", State: Bad, Text: i18n.Plain("does not reply")}
	idle := Server{Group: "group2", Address: "c:1", State: Idle}
	busy := func(failed float64) Traffic { return Traffic{Minute: Point{Requests: 100, Failed: failed}} }
	for name, c := range map[string]struct {
		s     Snapshot
		state State
		title string
		says  string
		more  int
	}{
		"a store alone": {Snapshot{}, Good, "Healthy", "Files of this host are served.", 0},
		"an edge": {Snapshot{Storages: []Server{good, idle}, Trackers: []Server{{Address: "t:1"}},
			Fleet:   &Fleet{Gateways: []Gateway{{Live: true, Self: true}, {Live: true}}},
			Traffic: Traffic{Now: Point{Begin: start, Requests: 12}}},
			Good, "Healthy",
			"1 tracker and 2 storages without a failure, 2 gateways in the fleet, 12 requests a second.", 0},
		"not ready": {Snapshot{NotReady: i18n.Plain("stopping")}, Bad, "Not ready",
			"Requests cannot be served: stopping.", 0},
		"few failures": {Snapshot{Traffic: busy(.5)}, Good, "Healthy", "served", 0},
		"failures": {Snapshot{Traffic: busy(2)}, Warn, "Degraded", "2 % of the responses of the last minute",
			0},
		"many failures": {Snapshot{Traffic: busy(20)}, Bad, "Failing", "20 % of the responses", 0},
		"a dead storage": {Snapshot{Storages: []Server{good, dead, idle}}, Warn, "Degraded",
			"1 of 2 storages of group1: b:1 does not reply.", 0},
		"all storages dead": {Snapshot{Storages: []Server{dead, idle}}, Bad, "Failing", "1 of 1 storage of group1", 0},
		"a storage of a link": {Snapshot{Storages: []Server{good, {Group: Unlisted, Address: "x:1", State: Bad,
			Text: i18n.Plain("has failed")}}}, Warn, "Degraded",
			"1 of 1 storage, named by file ids: x:1 has failed.", 0},
		"a tracker is away": {Snapshot{Trackers: []Server{{Address: "t:1", State: Warn}, {Address: "u:1"}}}, Warn,
			"Degraded", "1 of 2 trackers cannot be reached: t:1.", 0},
		"redis is away": {Snapshot{Fleet: &Fleet{RedisDown: true, Redis: "r:1"}}, Warn, "Degraded",
			"Redis (r:1) cannot be reached", 0},
		"a gateway is away": {Snapshot{At: start, Fleet: &Fleet{Gateways: []Gateway{{Name: "g",
			Seen: start.Add(-time.Minute)}}}}, Warn, "Degraded", "Gateway g has not been heard of for 1 min.", 0},
		"a gateway has left": {Snapshot{At: start, Fleet: &Fleet{Gateways: []Gateway{{Name: "g",
			Seen: start.Add(-2 * time.Hour)}}}}, Good, "Healthy", "", 0},
		"another is not well": {Snapshot{Fleet: &Fleet{Gateways: []Gateway{{Name: "g", Live: true,
			Announcement: Announcement{Version: "1", State: Bad, Why: "Its disk."}}}}},
			Warn, "Degraded", "Gateway g is not well: Its disk.", 0},
		"the cache's disk": {Snapshot{Budgets: []Budget{{Name: i18n.Plain("Disk"), State: Warn,
			Text: i18n.Plain("has failed")}}}, Warn,
			"Degraded", "Disk: has failed.", 0},
		"a certificate has ended": {Snapshot{At: start, Certificates: []Certificate{
			{Name: "b.example", Expires: start.Add(time.Hour)}, {Name: "a.example", Expires: start.Add(-time.Second)}}},
			Bad, "", "The certificate of a.example has ended", 1},
		"a certificate ends": {Snapshot{At: start, Certificates: []Certificate{
			{Name: "a.example", Expires: start.Add(expiresSoon - time.Second)}}}, Warn, "Degraded",
			"The certificate of a.example ends in 13 ", 0},
		"a certificate is good": {Snapshot{At: start, Certificates: []Certificate{
			{Name: "a.example", Expires: start.Add(expiresSoon)}}}, Good, "Healthy", "", 0},
		"a bug": {Snapshot{Panics: 1}, Warn, "Degraded", "1 panic was contained", 0},
		"the worst first": {Snapshot{Panics: 2, NotReady: i18n.Plain("no disk"), Traffic: busy(2)}, Bad,
			"Not ready", "no disk", 2},
	} {
		t.Run(name, func(t *testing.T) {
			v := c.s.Verdict()
			require.Equal(t, c.state, v.State)
			require.Contains(t, v.Title.String(), c.title)
			require.Contains(t, v.Sentence.String(), c.says)
			require.Len(t, v.More, c.more)
		})
	}
}
