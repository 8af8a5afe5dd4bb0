package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"fastdfs-gateway/internal/process/panics"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// TestBugsAreContained: a panic is counted and closes the connection, and the next request is
// served.
func TestBugsAreContained(t *testing.T) {
	s := httptest.NewServer(New(Options{Metrics: prometheus.NewRegistry(),
		Explain: func(context.Context, string) fmt.Stringer { panic("test") }}))
	defer s.Close()
	before := panics.Total()
	_, err := s.Client().Get(s.URL + "/explain?url=x")
	require.Error(t, err)
	require.EqualValues(t, before+1, panics.Total())
	resp, err := s.Client().Get(s.URL + "/healthz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}
