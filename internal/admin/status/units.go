package status

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// none stands for an unknown value.
const none = "–"

// number returns a value with three significant digits, and narrow blanks between thousands.
func number(x float64) string {
	switch {
	case math.IsNaN(x):
		return none
	case x == 0:
		return "0"
	case x < .01:
		return "< 0.01"
	case x < 10:
		return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(x, 'f', 2, 64), "0"), ".")
	case x < 100:
		return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
	}
	return count(int64(math.Round(x)))
}

// count returns a whole number of any type with narrow blanks between thousands.
func count(n any) string {
	text := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return sign + text
}

// Plural returns a count with its noun: one is the format for a count of 1, many for any other.
func Plural(n int, one, many string) i18n.Text {
	if n == 1 {
		return i18n.Sprintf(one, "1")
	}
	return i18n.Sprintf(many, count(n))
}

// Bytes returns a number of bytes as the status page shows it.
func Bytes(n int64) string { return size(float64(n)) }

// size returns a number of bytes with a unit; KB are 1024 bytes, as in the configuration.
func size(n float64) string {
	if math.IsNaN(n) {
		return none
	}
	for _, unit := range []struct {
		name string
		size float64
	}{{"TB", 1 << 40}, {"GB", 1 << 30}, {"MB", 1 << 20}, {"KB", 1 << 10}} {
		if n >= unit.size {
			return number(n/unit.size) + " " + unit.name
		}
	}
	return number(math.Round(n)) + " B"
}

// percent returns a share from 0 to 1 in percent. Only a share of 1 is 100 %, and only a share of 0
// is 0 %.
func percent(share float64) string {
	switch {
	case math.IsNaN(share) || share < 0:
		return none
	case share > 0 && share < .001:
		return "< 0.1 %"
	case share < 1 && share > .999:
		return "> 99.9 %"
	}
	return strings.TrimSuffix(strconv.FormatFloat(100*share, 'f', 1, 64), ".0") + " %"
}

// seconds returns a time in the unit that fits, from microseconds to seconds.
func seconds(s float64) string {
	switch {
	case math.IsNaN(s) || s < 0:
		return none
	case s < .001:
		return number(math.Round(s*1e6)) + " µs"
	case s < 1:
		return number(s*1e3) + " ms"
	}
	return number(s) + " s"
}

// Age returns a time in one or two units, from seconds to days.
func Age(d time.Duration) i18n.Text {
	const day = 24 * time.Hour
	d = max(d, 0)
	days, hours, minutes, seconds := d/day, d/time.Hour, d/time.Minute, d/time.Second
	switch {
	case days >= 10 || days > 0 && hours%24 == 0:
		return i18n.Sprintf("%d d", days)
	case days > 0:
		return i18n.Sprintf("%d d %d h", days, hours%24)
	case hours >= 10 || hours > 0 && minutes%60 == 0:
		return i18n.Sprintf("%d h", hours)
	case hours > 0:
		return i18n.Sprintf("%d h %d min", hours, minutes%60)
	case minutes >= 10 || minutes > 0 && seconds%60 == 0:
		return i18n.Sprintf("%d min", minutes)
	case minutes > 0:
		return i18n.Sprintf("%d min %d s", minutes, seconds%60)
	}
	return i18n.Sprintf("%d s", seconds)
}
