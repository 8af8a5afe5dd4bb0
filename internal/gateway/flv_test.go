package gateway

import (
	"testing"

	"fastdfs-gateway/internal/httpserver/httprange"

	"github.com/stretchr/testify/require"
)

func TestFLVSpan(t *testing.T) {
	const size = 1000
	tests := []struct {
		name, start, end string
		want             httprange.Span
		bad              bool
	}{
		{"neither", "", "", httprange.Span{Length: size}, false},
		{"start", "250", "", httprange.Span{Start: 250, Length: 750}, false},
		{"start and end", "250", "260", httprange.Span{Start: 250, Length: 10}, false},
		{"start 0", "0", "", httprange.Span{Length: size}, false},
		{"one byte", "0", "1", httprange.Span{Length: 1}, false},
		{"end past the end", "250", "5000", httprange.Span{Start: 250, Length: 750}, false},
		{"end beyond 64 bits", "250", "99999999999999999999", httprange.Span{Start: 250, Length: 750}, false},
		{"end alone", "", "10", httprange.Span{Length: size}, false},
		{"no number", "abc", "", httprange.Span{Length: size}, false},
		{"letters behind a number", "250x", "", httprange.Span{Length: size}, false},
		{"end no number", "250", "x", httprange.Span{Start: 250, Length: 750}, false},
		{"at the end", "1000", "", httprange.Span{}, true},
		{"beyond 64 bits", "99999999999999999999", "", httprange.Span{}, true},
		{"end before start", "250", "240", httprange.Span{}, true},
		{"end 0", "250", "0", httprange.Span{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			span, err := flvSpan([]byte(tt.start), []byte(tt.end), size)
			require.Equal(t, tt.bad, err != nil)
			require.Equal(t, tt.want, span)
		})
	}
}
