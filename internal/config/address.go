package config

import (
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
)

const maxListeners = 64 // each listener is compared with all others

// listeners parses a comma list of host:port or unix:/path.
func listeners(p *[]string) field {
	return commaList(p, listenAddress).then(func(string) *parseError {
		if len(*p) > maxListeners {
			return invalid(i18n.Sprintf("write at most %d", maxListeners), "names %d addresses", len(*p))
		}
		return nil
	})
}

// needed parses a list of addresses with at least one member.
func needed(list field) field {
	return list.then(func(v string) *parseError {
		if v == "" {
			return invalid("write an address such as :8888", "names no address")
		}
		return nil
	})
}

// listener parses one host:port or unix:/path, or nothing.
func listener(p *string) field {
	return field{parse: func(v string) (r *parseError) {
		if *p = v; v != "" {
			*p, r = listenAddress(v)
		}
		return r
	}}
}

// listenAddress parses host:port, unix:/path, or nginx's form, a port.
func listenAddress(v string) (string, *parseError) {
	if v == "0" {
		return v, invalid("write a port from 1 to 65535, or :0 for any free port, another one after each start",
			"holds 0, which is no port")
	}
	if _, err := strconv.ParseUint(v, 10, 64); err == nil {
		v = ":" + v
	}
	return v, checkListener(v)
}

const listenFix = "write host:port, :port, [IPv6]:port or unix:/path"

func checkListener(v string) *parseError {
	if name, ok := strings.CutPrefix(v, "unix:"); ok {
		if !strings.HasPrefix(name, "/") || len(name) > 107 { // sun_path holds 108 bytes, NUL included
			return invalid(listenFix+" of at most 107 characters",
				"holds %s, which is no absolute socket path", shown(v))
		}
		return nil
	}
	host, port, err := net.SplitHostPort(v)
	if err != nil || !isPort(port, 0) || host != "" && !fdfs.ValidHost(host) {
		return invalid(listenFix, "holds %s, which is no address to listen on", shown(v))
	}
	return nil
}

// redisScheme in front of an address of Redis enables TLS.
const redisScheme = "rediss://"

// redisEndpoints parses a comma list of host:port, all of them with rediss:// or none.
func redisEndpoints(r *Redis) field {
	const fix = "write host:port, or rediss://host:port for TLS, with commas between them"
	return field{parse: func(v string) *parseError {
		r.Addresses, r.rediss = nil, false
		for i, part := range splitList(v) {
			address, secure := strings.CutPrefix(part, redisScheme)
			host, port, err := net.SplitHostPort(address)
			switch {
			case strings.Contains(address, "@"):
				return invalid("write username and password, or password_file, on lines of their own",
					"holds an address with a user")
			case err != nil || !fdfs.ValidHost(host) || !isPort(port, 1):
				return invalid(fix, "holds %s, which is no host:port", shown(part))
			case i > 0 && secure != r.rediss:
				return invalid("write rediss:// in front of every address or of none",
					"holds addresses with and without TLS")
			}
			r.Addresses, r.rediss = append(r.Addresses, address), secure
		}
		return nil
	}}
}

// trackers parses one tracker a line: host[:port], a,b[:port] or [a,b]:port.
func trackers(p *[]Tracker) field {
	return field{parse: func(v string) *parseError {
		if v == "" {
			return nil
		}
		hosts, port, ok := fdfs.ParseHosts(v)
		if !ok {
			return invalid("write host:port, [IPv6]:port, or two addresses of one tracker as a,b:port",
				"is no address of a tracker")
		}
		if port == 0 {
			port = 22122
		}
		var t Tracker
		for _, h := range hosts {
			t.Addresses = append(t.Addresses, net.JoinHostPort(h, strconv.Itoa(port)))
		}
		*p = append(*p, t)
		return nil
	}}
}

// isPort reports whether a text is a number from low to 65535 in plain digits.
func isPort(v string, low int) bool {
	n, err := strconv.ParseUint(v, 10, 16)
	return err == nil && int(n) >= low
}

// prefix parses the path in front of every file id, "" or "/a/b".
func prefix(p *string) field {
	return field{parse: func(v string) *parseError {
		if *p = strings.TrimRight(v, "/"); !isPlainPath(*p) {
			return invalid("write a path such as /files", "is not a plain path")
		}
		return nil
	}}
}

// healthPath parses a plain absolute path, or nothing.
func healthPath(p *string) field {
	return text(p).then(func(v string) *parseError {
		if !isPlainPath(strings.TrimSuffix(v, "/")) {
			return invalid("write a path such as /health", "is not a plain path")
		}
		return nil
	})
}

// isPlainPath reports whether a path is empty, or absolute without anything that a URL escapes.
func isPlainPath(v string) bool {
	return v == "" || filepath.IsAbs(v) && filepath.Clean(v) == v &&
		!strings.ContainsAny(v, "?#%\\ \t") && !hasControl(v)
}

// baseURL parses https://host[:port], AdvertiseAuto, or nothing.
func baseURL(p *string) field {
	return field{parse: func(v string) *parseError {
		v = strings.TrimRight(v, "/")
		if v != "" && v != AdvertiseAuto {
			u, err := url.Parse(v)
			if err != nil || u.Scheme != "https" || !fdfs.ValidHost(u.Hostname()) ||
				u.Port() != "" && !isPort(u.Port(), 1) || u.User != nil || u.Path != "" ||
				strings.ContainsAny(v, "?#") {
				return invalid("write auto, or an https URL with the port of [peer] listen, such as "+
					"https://10.0.0.1:8887", "is not the URL of a peer")
			}
		}
		*p = v
		return nil
	}}
}
