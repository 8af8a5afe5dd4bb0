package lab

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ParseMetrics returns the value of each series in the text of /metrics.
func ParseMetrics(text string) map[string]float64 {
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		blank := strings.LastIndexByte(line, ' ') // labels may contain blanks too
		if v, err := strconv.ParseFloat(line[blank+1:], 64); err == nil && blank > 0 {
			values[line[:blank]] = v
		}
	}
	return values
}

// Metrics requests the metrics of the gateway, over a new connection.
func (g *Gateway) Metrics() (map[string]float64, error) {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + g.Admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the metrics have status %s", resp.Status)
	}
	return ParseMetrics(string(text)), err
}
