package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/tools/demo/storewriter"
)

// configured writes the two configurations and the files to which they refer.
func (s Store) configured(opts Options) (Store, error) {
	conf, base := filepath.Join(s.Dir, "conf"), filepath.Join(s.Dir, "base")
	s.Config = filepath.Join(conf, "mod_fastdfs.conf")
	s.TokenConfig = filepath.Join(conf, "mod_fastdfs-token.conf")
	// The lines of a usual log would be in the middle of the printed URLs, and its warnings twice.
	module := func(level, http, listen, admin string) []byte {
		return fmt.Appendf(nil, string(asset("mod_fastdfs.conf")), base, s.StorePaths[0], s.StorePaths[1], Group,
			level, http, listen, admin)
	}
	tokens := filepath.Join(conf, "http-token.conf")
	for name, text := range map[string][]byte{
		s.Config:                              module("warn", "http.conf", opts.Listen, opts.AdminListen),
		s.TokenConfig:                         module("error", "http-token.conf", opts.TokenListen, ""),
		tokens:                                fmt.Appendf(nil, string(asset("http-token.conf")), Secret),
		filepath.Join(conf, "http.conf"):      asset("http.conf"),
		filepath.Join(conf, "refused.html"):   asset("refused.html"),
		filepath.Join(base, "logs", "README"): []byte("base_path of the demonstration store\n"),
	} {
		if err := storewriter.Replace(name, text, time.Now()); err != nil {
			return Store{}, i18n.Errorf("cannot write configuration: %w", err)
		}
	}
	if err := os.Chmod(tokens, 0o600); err != nil { // it holds a secret
		return Store{}, i18n.Errorf("cannot write configuration: %w", err)
	}
	return s, nil
}
