package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/google/pprof/profile"
)

// writeProfile writes a profile of the gateway's processor time in all cases for the compiler, each
// for the time of a run (https://go.dev/doc/pgo).
func (w *world) writeProfile(gateway side, s *settings) error {
	cases, err := w.cases(s.pattern.MatchString, int(s.time.Seconds()+1)*coldRate)
	if err != nil {
		return err
	}
	var list []*profile.Profile
	for i := range cases {
		p, err := w.profile(&cases[i], gateway, s)
		if err != nil {
			return fmt.Errorf("%s: %w", cases[i].name, err)
		}
		fmt.Printf("%s: %d samples\n", cases[i].name, len(p.Sample))
		list = append(list, p)
	}
	merged, err := profile.Merge(list)
	if err != nil {
		return fmt.Errorf("cannot merge the profiles: %w", err)
	}
	for _, m := range merged.Mapping {
		m.File, m.BuildID = "", "" // of this machine; the compiler does not use them
	}
	var out bytes.Buffer
	if err := merged.Write(&out); err != nil {
		return err
	}
	return os.WriteFile(s.profile, out.Bytes(), 0o644)
}

// profile returns a profile of the processor time of the gateway in one case.
func (w *world) profile(c *testCase, gateway side, s *settings) (*profile.Profile, error) {
	servers, asks, stop, err := w.begin(c, []side{gateway}, s)
	defer stop()
	if err != nil {
		return nil, err
	}
	loaded := make(chan error, 1)
	go func() {
		_, err := w.sample(c, &asks[0], servers[0], s.time+time.Second, 0) // lasts longer than the profile
		loaded <- err
	}()
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", servers[0].admin, int(s.time.Seconds()))
	resp, err := http.Get(url)
	if errLoad := <-loaded; errLoad != nil {
		return nil, errLoad
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%w: the profile has status %s", errWrong, resp.Status)
	}
	if err != nil {
		return nil, err
	}
	return profile.ParseData(text)
}
