package doctor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/tracker"
)

// maxList bounds the reply of a tracker in bytes.
const maxList = 4 << 20

// trackers requests the groups from each tracker.
func (d *doctor) trackers(ctx context.Context) {
	const area = "tracker"
	if len(d.cfg.TrackerServers) == 0 {
		d.addResult(area, "tracker_server", OK, "", "none is configured")
		return
	}
	var asking sync.WaitGroup
	for _, t := range d.cfg.TrackerServers {
		for _, address := range t.Addresses {
			asking.Go(func() {
				began := time.Now()
				body, err := d.call(ctx, address, fdfs.CmdListGroups, maxList)
				var groups []fdfs.GroupInfo
				if err == nil {
					groups, err = fdfs.ParseGroups(body)
				}
				f := Finding{Area: area, Subject: address, Status: OK, Millis: millisOf(time.Since(began)),
					Text: i18n.Sprintf("replies, %s", status.Plural(len(groups), "%s group", "%s groups"))}
				if err != nil {
					f.Status = Fail
					f.Text, f.Advice = unreachable(err, i18n.Sprintf("%s", "fdfs_trackerd"),
						i18n.Plain("or correct tracker_server"))
				}
				d.put(f)
			})
		}
	}
	asking.Wait()
	replied := slices.ContainsFunc(d.findings, func(f Finding) bool { return f.Status == OK })
	for i := range d.findings {
		if f := &d.findings[i]; replied && f.Status == Fail { // the other trackers replace it
			f.Status = Warn
		}
	}
}

// call sends one request without a body on a new connection.
func (d *doctor) call(ctx context.Context, address string, cmd fdfs.Command, limit int64) ([]byte, error) {
	pool := fdfs.NewPool(address, fdfs.PoolOptions{ConnectTimeout: d.cfg.ConnectTimeout,
		NetworkTimeout: d.cfg.NetworkTimeout})
	defer pool.Close()
	return pool.Call(ctx, cmd, 0, nil, limit)
}

// beatEvery is the longest time between two heartbeats of a running storage. They are usual every
// 30 s; a tracker takes a storage for dead after 120 s.
const beatEvery = 2 * time.Minute

// storages sends a request to every storage that a tracker lists, in the way in which files are
// fetched.
func (d *doctor) storages(ctx context.Context) {
	const area = "storage"
	if len(d.cfg.TrackerServers) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 4*examineTime)
	defer cancel()
	groups, err := d.upstreams.Trackers.Groups(ctx)
	if err != nil {
		return // the findings about the trackers have the reason
	}
	d.upstreams.Await()
	for _, text := range d.upstreams.WrongGroups(d.cfg) {
		d.addResult("config", "group_name", Fail, "write the group of this host, as in its storage.conf", "%s", text)
	}
	var asking sync.WaitGroup
	var beat int64 // the last heartbeat of any storage
	for _, g := range groups {
		list, err := d.upstreams.Trackers.Storages(ctx, g.Name)
		if err != nil {
			status := Fail
			if errors.Is(err, tracker.ErrEmpty) { // such as a group whose storages were deleted
				status = Warn
			}
			d.addResult(area, g.Name, status, "look into the log of the tracker", "no list of its storages: %v", err)
			continue
		}
		for _, info := range list {
			beat = max(beat, info.HeartBeat)
			asking.Go(func() { d.storage(ctx, g.Name, info) })
		}
	}
	asking.Wait()
	d.trackerClock(beat)
}

// storage examines one storage.
func (d *doctor) storage(ctx context.Context, group string, info fdfs.StorageInfo) {
	const area = "storage"
	server, ok := d.upstreams.Trackers.Members().ByAddr(group, info.Addr)
	if !ok {
		return // deleted, or without an address yet
	}
	at := d.upstreams.Sources.Server(server)
	began := time.Now()
	err := d.reach(ctx, at.Host, at.Addr())
	f := Finding{Area: area, Subject: at.Addr() + " (" + group + ")", Status: OK, Millis: millisOf(time.Since(began)),
		Text: i18n.Plain("replies")}
	if info.Version != "" {
		f.Text = i18n.Sprintf("replies, FastDFS %s", info.Version)
	}
	switch {
	case info.Status != fdfs.StatusActive:
		f.Status = Warn
		f.Text, f.Advice = inactive(info.Status)
	case err != nil:
		f.Status = Fail
		f.Text, f.Advice = unreachable(err, d.fileServer(),
			i18n.Plain("or map the address in [address_map]"))
	}
	d.put(f)
}

// inactive returns text and advice for a storage that the tracker lists with another status than
// StatusActive.
func inactive(status byte) (text, advice i18n.Text) {
	name := i18n.Plain("an unknown status")
	if int(status) < len(statusNames) {
		name = i18n.Sprintf("%s", statusNames[status])
	}
	switch status {
	case 0, 1, 2:
		advice = i18n.Plain("wait until it has the files of its group")
	case fdfs.StatusOnline:
		advice = i18n.Plain("wait, trackers take up to a minute; if it stays so, look into the log of " +
			"fdfs_storaged there")
	default:
		advice = i18n.Plain("start fdfs_storaged there, or let it reach the trackers")
	}
	return i18n.Sprintf("the tracker lists it as %s (status %d)", name, status), advice
}

// statusNames are FastDFS's names of the values of StorageInfo.Status.
var statusNames = [...]string{"INIT", "WAIT_SYNC", "SYNCING", "IP_CHANGED", "DELETED", "OFFLINE", "ONLINE", "ACTIVE"}

// web reports whether web servers send the files: to this gateway, or to clients that it redirects.
func (d *doctor) web() bool {
	return d.cfg.Gateway.Upstream == "http" || d.cfg.ResponseMode == "redirect"
}

// fileServer returns the name of the program from which files are fetched.
func (d *doctor) fileServer() i18n.Text {
	if d.web() {
		return i18n.Plain("the web server")
	}
	return i18n.Sprintf("%s", "fdfs_storaged")
}

// unreachable returns text and advice for a server whose request failed with err. A server that
// accepts connections has its port open.
func unreachable(err error, program, other i18n.Text) (text, advice i18n.Text) {
	said := i18n.ErrorText(err)
	var op *net.OpError
	timeout := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case errors.As(err, &op) && op.Op == "dial" && errors.Is(err, syscall.ECONNREFUSED):
		return said, i18n.Sprintf("start %s there, %s", program, other)
	case errors.As(err, &op) && op.Op == "dial":
		return said, i18n.Sprintf("start the host, open the port for this host, %s", other)
	case timeout:
		return i18n.Sprintf("accepts connections, but does not reply: %v", err),
			i18n.Sprintf("look at %s there: it hangs, as with a disk that does not respond", program)
	}
	return said, i18n.Sprintf("look into the log of %s there, %s", program, other)
}

// reach sends a request to a storage by the FastDFS protocol, or to its web server if files are
// fetched from it or clients are redirected to it.
func (d *doctor) reach(ctx context.Context, host, address string) error {
	if !d.web() {
		_, err := d.call(ctx, address, fdfs.CmdActiveTest, 0)
		return err
	}
	port := d.cfg.Gateway.UpstreamHTTPPort
	if d.cfg.ResponseMode == "redirect" {
		port = d.cfg.Gateway.RedirectPort
	}
	port = cmp.Or(port, app.ListenPort(d.cfg))
	if err := askWeb(ctx, net.JoinHostPort(host, strconv.Itoa(port))); err != nil {
		return i18n.Errorf("its web server: %w", err)
	}
	return nil
}

// askWeb sends a request to a web server and waits for any byte of a response, or the end of the
// connection.
func askWeb(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: examineTime}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(examineTime)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "HEAD / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// trackerClock compares the clock of this host with the last heartbeat of a storage, by the
// tracker's clock. The protocol has no other time of a tracker.
func (d *doctor) trackerClock(beat int64) {
	const area, subject, advice = "clock", "trackers", "set the clocks of all hosts by NTP"
	if beat == 0 {
		return
	}
	switch behind := time.Since(time.Unix(beat, 0)); {
	case behind < -clockSlack:
		d.addResult(area, subject, Warn, advice, "the clock of this host is at least %s behind that of the trackers",
			status.Age(-behind))
	case behind > beatEvery+clockSlack:
		d.addResult(area, subject, Warn, advice, "the clock of this host is %s ahead of that of the trackers, "+
			"or no storage has been alive for so long", status.Age(behind))
	default:
		d.addResult(area, subject, OK, "", "the last heartbeat of a storage was %s ago", status.Age(behind))
	}
}

// fleet examines Redis and the other gateways.
func (d *doctor) fleet(ctx context.Context) {
	const area = "redis"
	subject := strings.Join(d.cfg.Redis.Addresses, ", ")
	o, err := app.FleetOptions(d.cfg)
	if err == nil && len(o.Addresses) == 0 {
		d.addResult(area, "addresses", OK, "", "none is configured: this gateway is no part of a fleet")
		return
	}
	var f *fleet.Fleet
	if err == nil {
		f, err = fleet.New(o)
	}
	if err != nil {
		d.addResult(area, subject, Fail, "correct the keys of [redis]", "%v", err)
		return
	}
	defer f.Close()
	h, err := f.Examine(ctx)
	if err != nil {
		d.addResult(area, subject, Fail, fleet.Advice(err), "%v", err)
		return
	}
	d.redis(subject, h)
	if d.cfg.Peer.Advertise == config.AdvertiseAuto && h.Self != "" {
		d.addResult("peer", h.Self, OK, "", "advertise = auto: other gateways reach this one there")
	}
	for _, p := range h.Peers {
		found := Finding{Area: "peer", Subject: p.Name, Status: OK,
			Text:   i18n.Plain("responds, and has the same secret"),
			Millis: millisOf(p.Latency)}
		if p.Err != nil {
			found.Status, found.Text = Fail, i18n.ErrorText(p.Err)
			found.Advice = i18n.Plain("give all gateways the same secret in [peer], and let them reach each " +
				"other's [peer] listen")
		}
		d.put(found)
	}
}

// redis adds findings about the state of Redis.
func (d *doctor) redis(subject string, h fleet.Health) {
	const area = "redis"
	f := Finding{Area: area, Subject: subject, Status: OK, Millis: millisOf(h.Latency),
		Text: i18n.Plain("replies")}
	if h.Version != "" {
		f.Text = i18n.Sprintf("replies, Redis %s", h.Version)
	}
	if h.Version != "" && !atLeast(h.Version, 6, 2) {
		f.Status, f.Advice = Fail, i18n.Plain("install Redis 6.2 or later")
	}
	d.put(f)
	switch h.Policy {
	case "":
	case "noeviction":
		d.addResult(area, "maxmemory-policy", OK, "", "%s", h.Policy)
	default:
		d.addResult(area, "maxmemory-policy", Warn, "set maxmemory-policy noeviction in redis.conf",
			"%s: leases and purges can be evicted when memory is short", h.Policy)
	}
	ahead := h.ClockAhead.Round(time.Millisecond)
	status := OK
	if ahead.Abs() > clockSlack {
		status = Warn
	}
	d.addResult("clock", "redis", status, "set the clocks of all hosts by NTP",
		"the clock of Redis is %s ahead of this host's", ahead)
}

// atLeast reports whether a version, such as "7.0.15", is major.minor or later. A version that
// cannot be parsed is.
func atLeast(version string, major, minor int) bool {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return true
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA != nil || errB != nil || a > major || a == major && b >= minor
}
