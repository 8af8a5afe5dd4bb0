package main

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// conf is a configuration file: lines of key=value. A key may stand there more than once.
type conf map[string][]string

func readConf(path string) (conf, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := conf{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		key, value, found := strings.Cut(lines.Text(), "=")
		if key = strings.TrimSpace(key); found && !strings.HasPrefix(key, "#") {
			c[key] = append(c[key], strings.TrimSpace(value))
		}
	}
	return c, lines.Err()
}

func (c conf) get(key string) string {
	if len(c[key]) == 0 {
		return ""
	}
	return c[key][0]
}

func (c conf) number(key string, otherwise int) int {
	if n, err := strconv.Atoi(c.get(key)); err == nil {
		return n
	}
	return otherwise
}

// megabytes reads a size such as 4MB.
func (c conf) megabytes(key string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(strings.TrimSuffix(c.get(key), "MB"), 10, 64); err == nil {
		return n << 20
	}
	return otherwise
}

func (c conf) truth(key string) bool { return c.get(key) == "true" }

// inWindow tells whether storages replicate at this time of day: from sync_start_time to the end of
// the minute sync_end_time, always without these keys. Text of the form 15:04 sorts like the time.
func (c conf) inWindow(now time.Time) bool {
	start, end, at := c.get("sync_start_time"), c.get("sync_end_time"), now.Format("15:04")
	switch {
	case start == "" || end == "":
		return true
	case start <= end:
		return start <= at && at <= end
	}
	return at >= start || at <= end // over midnight
}

// wantsIPv6 is what address_family says.
func (c conf) wantsIPv6() bool { return c.get("address_family") == "IPv6" }

// ownAddress is the first address of this host that is not loopback.
func ownAddress(v6 bool) (netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && !prefix.Addr().IsLoopback() && !prefix.Addr().IsLinkLocalUnicast() &&
			prefix.Addr().Is6() == v6 {
			return prefix.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("this host has no address (IPv6: %v)", v6)
}

// idLine is a line of storage_ids.conf: id, group, address with or without a port.
type idLine struct {
	id    uint32
	group string
	addr  netip.Addr
}

func readIDs(path string) ([]idLine, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []idLine
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		id, err := strconv.ParseUint(fields[0], 10, 24)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		host := fields[2]
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, idLine{uint32(id), fields[1], addr})
	}
	return list, nil
}
