package config

import (
	"io/fs"
	"log/slog"
	"math"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
)

// field is the parser of a value with its destination.
type field struct {
	parse       func(value string) *parseError
	secret      bool             // messages do not show the value
	paths       func() []*string // the files or folders that the value names; nil for other values
	holdsSecret bool             // each of these files holds a secret
}

// resolve makes the paths of a field relative to the folder of the file with the key.
func (f field) resolve(at position) {
	if f.paths != nil {
		for _, name := range f.paths() {
			*name = resolve(*name, at)
		}
	}
}

// parseError is the reason for which a value is invalid. With the severity Warning another value is
// used.
type parseError struct {
	severity Severity
	what     i18n.Text // continues "key = value "
	fix      i18n.Text
}

// invalid returns an Error. fix is a constant, or an i18n.Text.
func invalid(fix any, what string, args ...any) *parseError {
	return &parseError{Error, i18n.Sprintf(what, args...), i18n.Of(fix)}
}

// questionable returns a Warning.
func questionable(fix any, what string, args ...any) *parseError {
	return &parseError{Warning, i18n.Sprintf(what, args...), i18n.Of(fix)}
}

// shown returns a value for a message: quoted, short, without the user and password of a URL.
func shown(value string) string {
	if i := strings.LastIndexByte(value, '@'); i >= 0 {
		value = "..." + value[i:]
	}
	if len(value) > 80 {
		value = value[:77] + "..."
	}
	return strconv.Quote(value)
}

// then returns f with a further check of the values that it accepts.
func (f field) then(check func(v string) *parseError) field {
	parse := f.parse
	f.parse = func(v string) *parseError {
		if r := parse(v); r != nil {
			return r
		}
		return check(v)
	}
	return f
}

// parsed parses a value by a function; an empty value is the default.
func parsed[T any](p *T, fix any, what string, parse func(v string) (T, bool)) field {
	return field{parse: func(v string) *parseError {
		if v == "" {
			return nil
		}
		value, ok := parse(v)
		if !ok {
			return invalid(fix, "%s", i18n.Plain(what))
		}
		*p = value
		return nil
	}}
}

// commaList parses a list of values with commas between them.
func commaList[T any](p *[]T, parse func(part string) (T, *parseError)) field {
	return field{parse: func(v string) *parseError {
		*p = nil
		for _, part := range splitList(v) {
			value, r := parse(part)
			if r != nil {
				return r
			}
			*p = append(*p, value)
		}
		return nil
	}}
}

func text(p *string) field { return field{parse: func(v string) *parseError { *p = v; return nil }} }

// header parses a text that an HTTP header field can have.
func header(p *string) field {
	return text(p).then(func(v string) *parseError {
		if hasControl(v) {
			return invalid("remove them", "holds control characters and cannot be sent as a header")
		}
		return nil
	})
}

// headerName parses the name of an HTTP header field (RFC 9110 section 5.6.2).
func headerName(p *string) field {
	return token(p, "!#$%&'*+-.^_`|~", "write a name such as X-Gate-Pass", "is not the name of a header")
}

// charset parses the name of a character set (RFC 2978 section 2.3).
func charset(p *string) field {
	return token(p, "!#$%&'+-^_`{}~", "write a name such as utf-8 or gbk", "is not the name of a charset")
}

// token parses a text of letters, digits and some marks.
func token(p *string, marks, fix, what string) field {
	return text(p).then(func(v string) *parseError {
		for _, c := range []byte(v) {
			if !isAlnum(c) && strings.IndexByte(marks, c) < 0 {
				return invalid(fix, "%s", i18n.Plain(what))
			}
		}
		return nil
	})
}

// hosts parses a comma list of host names, and stores them in lower case.
func hosts(p *[]string) field {
	return commaList(p, func(part string) (string, *parseError) {
		if !fdfs.ValidHost(part) || strings.Contains(part, ":") {
			return "", invalid("write names such as gateway.example with commas between them",
				"holds %s, which is no name of a host", shown(part))
		}
		return strings.ToLower(strings.TrimSuffix(part, ".")), nil
	})
}

// fileMode parses the permissions of a file, in octal digits.
func fileMode(p *fs.FileMode) field {
	const fix = "write permissions in octal digits, such as 0600 or 0660"
	return parsed(p, fix, "is no mode of a file", func(v string) (fs.FileMode, bool) {
		n, err := strconv.ParseUint(v, 8, 32)
		return fs.FileMode(n), err == nil && n <= 0o777
	})
}

// members parses a comma list of values that are not empty.
func members(p *[]string) field {
	return commaList(p, func(part string) (string, *parseError) {
		if part == "" {
			return "", invalid("remove the comma too many", "has an empty member")
		}
		return part, nil
	})
}

// path parses the name of a file or a folder; empty and "-" name none.
func path(p *string) field {
	f := text(p)
	f.paths = func() []*string {
		if *p == "" || *p == "-" {
			return nil
		}
		return []*string{p}
	}
	return f
}

// maxPaths bounds a list of files.
const maxPaths = 256

// paths parses a comma list of file names.
func paths(p *[]string) field {
	f := members(p).then(func(string) *parseError {
		if len(*p) > maxPaths {
			return invalid(i18n.Sprintf("write at most %d", maxPaths), "names too many files")
		}
		return nil
	})
	f.paths = func() (names []*string) {
		for i := range *p {
			names = append(names, &(*p)[i])
		}
		return names
	}
	return f
}

// secretIn returns f as a field whose files hold one secret each.
func secretIn(f field) field {
	f.holdsSecret = true
	return f
}

func resolve(name string, at position) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(at.file), name)
}

// moduleFlag parses a boolean as the module does: true, yes, on and 1 in any case are true, all
// else is false.
func moduleFlag(p *bool) field {
	return field{parse: func(v string) *parseError {
		if *p = isTrue(v); *p || isFalse(v) {
			return nil
		}
		return questionable("write true or false", "is neither true nor false and counts as false")
	}}
}

// flag parses a boolean as moduleFlag does, but other words are an error.
func flag(p *bool) field {
	return field{parse: func(v string) *parseError {
		switch {
		case moduleFlag(p).parse(v) != nil:
			return invalid("write true or false", "is neither true nor false")
		case v == "":
			return questionable("write true or false", "is empty and counts as false")
		}
		return nil
	}}
}

// isTrue reports whether a value of flag is true.
func isTrue(v string) bool {
	return slices.Contains([]string{"true", "yes", "on", "1"}, strings.ToLower(v))
}

// isFalse reports whether a value of flag is false.
func isFalse(v string) bool {
	return slices.Contains([]string{"", "false", "no", "off", "0"}, strings.ToLower(v))
}

// number parses a decimal number from low to high.
func number(p *int, low, high int) field {
	fix := i18n.Sprintf("write a number from %d to %d", low, high)
	return parsed(p, fix, "is not a number in range", func(v string) (int, bool) {
		n, err := strconv.Atoi(v)
		return n, err == nil && n >= low && n <= high
	})
}

// numberOr parses a number, or a word for -1.
func numberOr(p *int, word string, low, high int) field {
	return field{parse: func(v string) *parseError {
		if strings.EqualFold(v, word) {
			*p = -1
			return nil
		}
		r := number(p, low, high).parse(v)
		if r != nil {
			r.fix = i18n.Sprintf("%s, or %s", r.fix, word)
		}
		return r
	}}
}

// moduleNumber parses a number as the module does: it ignores text behind the digits. A number out
// of range has the severity outside; with Warning, the default is used.
func moduleNumber(p *int, low, high int, outside Severity) field {
	return field{parse: func(v string) *parseError {
		if v == "" {
			return nil
		}
		digits := v[:len(v)-len(strings.TrimLeft(v, "0123456789"))]
		fix := i18n.Sprintf("write a plain number from %d to %d", low, high)
		n, err := strconv.Atoi(digits)
		switch {
		case digits == "":
			return invalid(fix, "is not a number")
		case err == nil && low <= n && n <= high:
			*p = n
		case outside == Error:
			return invalid(fix, "is out of range")
		default:
			return questionable(fix, "is out of range, %d is used", *p)
		}
		if digits != v {
			return questionable(fix, "is read as %d, the text behind it is left out", n)
		}
		return nil
	}}
}

// moduleSeconds parses seconds as moduleNumber does.
func moduleSeconds(p *time.Duration, outside Severity) field {
	return field{parse: func(v string) *parseError {
		n := int(*p / time.Second)
		r := moduleNumber(&n, 1, 1<<31, outside).parse(v)
		*p = time.Duration(n) * time.Second
		return r
	}}
}

// duration parses a duration from low to high.
func duration(p *time.Duration, low, high time.Duration) field {
	fix := i18n.Sprintf("write a duration from %s to %s, such as 500ms, 10s, 1h, 1d or plain seconds",
		Written(low), Written(high))
	return parsed(p, fix, "is not a duration in range", func(v string) (time.Duration, bool) {
		d, ok := ParseDuration(v)
		return d, ok && d >= low && d <= high
	})
}

// ParseDuration parses a duration: 500ms, 10s, 1h30m, 1d, 2w, or plain seconds.
func ParseDuration(v string) (time.Duration, bool) {
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		return time.Duration(n) * time.Second, n >= 0 && n <= math.MaxInt64/int64(time.Second)
	}
	var days time.Duration
	if m := dayUnits.FindStringSubmatch(v); m[1]+m[2] != "" {
		weeks, errWeeks := strconv.Atoi("0" + m[1])
		n, errDays := strconv.Atoi("0" + m[2])
		if errWeeks != nil || errDays != nil || weeks > maxDays/7 || n > maxDays {
			return 0, false
		}
		days = time.Duration(7*weeks+n) * 24 * time.Hour
		if v = m[3]; v == "" {
			return days, true
		}
	}
	d, err := time.ParseDuration(v)
	return days + d, err == nil && d <= math.MaxInt64-days
}

// dayUnits matches the weeks and days in front of the rest of a duration, which
// time.ParseDuration does not know.
var dayUnits = regexp.MustCompile(`^(?:(\d+)w)?(?:(\d+)d)?(.*)$`)

const maxDays = 36500

// Written returns a duration as people write it: 500ms, 30s, 1h, 365d.
func Written(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d >= unit.length && d%unit.length == 0 {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.name
		}
	}
	return d.String()
}

// choice parses one of a few words, in any case.
func choice(p *string, words ...string) field {
	return parsed(p, i18n.Sprintf("write %s", orList(words)), "is not known", func(v string) (string, bool) {
		i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(v, w) })
		return words[max(i, 0)], i >= 0
	})
}

// moduleChoice parses a choice for which an unknown word means the default.
func moduleChoice(p *string, words ...string) field {
	return field{parse: func(v string) *parseError {
		r := choice(p, words...).parse(v)
		if r == nil {
			return nil
		}
		return questionable(r.fix, "is not known, %q is used", *p)
	}}
}

// logLevel parses a level of syslog, in any case. An unknown one means the default.
func logLevel(p *slog.Level) field {
	levels := map[string]slog.Level{
		"emerg": slog.LevelError + 12, "alert": slog.LevelError + 8, "crit": slog.LevelError + 4,
		"error": slog.LevelError, "err": slog.LevelError,
		"warn": slog.LevelWarn, "warning": slog.LevelWarn,
		"notice": slog.LevelInfo + 2, "info": slog.LevelInfo, "debug": slog.LevelDebug,
	}
	return field{parse: func(v string) *parseError {
		level, known := levels[strings.ToLower(v)]
		if known {
			*p = level
		} else if v != "" {
			return questionable("write emerg, alert, crit, error, warn, notice, info or debug",
				"is not a log level, %v is used", *p)
		}
		return nil
	}}
}

// localNetworks is the word for the networks of this host's interfaces.
const localNetworks = "local-networks"

// sources parses a comma list of networks, and local-networks.
func sources(p *[]netip.Prefix, local *bool) field {
	return networksOr(p, localNetworks, local,
		"write networks such as 10.0.0.0/8, or local-networks, with commas between them")
}

// addresses parses a comma list of IP addresses.
func addresses(p *[]netip.Addr) field {
	return commaList(p, func(part string) (netip.Addr, *parseError) {
		ip, err := netip.ParseAddr(part)
		if err != nil {
			return ip, invalid("write addresses such as 10.0.0.1 with commas between them",
				"holds %s, which is no IP address", shown(part))
		}
		return ip.Unmap(), nil
	})
}

// splitList splits at commas and trims; an empty value has no members.
func splitList(v string) []string {
	if v == "" {
		return nil
	}
	parts := strings.Split(v, ",")
	for i := range parts {
		parts[i] = strings.Trim(parts[i], blanks)
	}
	return parts
}

// orList joins words as `a, b or c`.
func orList(words []string) i18n.Text {
	if len(words) < 2 {
		return i18n.Sprintf("%s", strings.Join(words, ""))
	}
	last := len(words) - 1
	return i18n.Sprintf("%s or %s", strings.Join(words[:last], ", "), words[last])
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// size parses a size: 256KB, 64MB, 10GB (powers of 1024), or plain bytes.
func size(p *int64) field { return sizeFrom(p, 0) }

// sizeFrom parses a size of at least so many bytes.
func sizeFrom(p *int64, least int64) field {
	return parsed(p, "write a size such as 256KB, 64MB, 10GB or plain bytes", "is not a size",
		func(v string) (int64, bool) {
			n, ok := parseSize(v)
			return n, ok && n >= least
		})
}

// budget parses a size of a cache. One below 1 MB is taken for a number without its unit.
func budget(p *int64) field {
	return size(p).then(func(string) *parseError {
		if *p > 0 && *p < 1<<20 {
			return questionable(i18n.Sprintf("write a unit, such as %dMB", *p), "is %d bytes and holds no file", *p)
		}
		return nil
	})
}

func parseSize(v string) (int64, bool) {
	unit := strings.TrimLeft(v, "0123456789")
	digits := v[:len(v)-len(unit)]
	shift, known := map[string]uint{
		"": 0, "B": 0, "K": 10, "KB": 10, "M": 20, "MB": 20, "G": 30, "GB": 30, "T": 40, "TB": 40,
	}[strings.ToUpper(strings.TrimLeft(unit, blanks))]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n > math.MaxInt64>>shift {
		return 0, false
	}
	return n << shift, true
}
