package config

import (
	"math"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

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
