package app

import (
	"cmp"
	"log/slog"
	"runtime"
	"sync"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/logfile"
	"fastdfs-gateway/internal/variant"
)

// addImages adds the rules of [image] for requests, if the section is there.
func addImages(o *gateway.Options, cfg *config.Config) error {
	i := &cfg.Image
	if !i.Enabled {
		return nil
	}
	secrets, err := cfg.AntiSteal.ReadSecrets()
	if err != nil {
		return i18n.Errorf("%w; see secret_files in [antisteal]", err)
	}
	o.Images = variant.NewRules(variant.RulesOptions{Presets: i.Presets, Sizes: i.Sizes, Any: i.Any, Forms: i.Forms,
		Quality: i.Quality, Secrets: secrets, Original: i.OnError == "original"})
	return nil
}

// makerOptions returns the limits of the maker of variants.
func makerOptions(cfg *config.Config, log *slog.Logger) variant.MakerOptions {
	i := &cfg.Image
	return variant.MakerOptions{Makers: cmp.Or(i.Makers, processors()), Queue: i.Queue, Memory: i.Memory,
		SourceMax: i.SourceMax, Pixels: int64(i.PixelsMax), Timeout: i.Timeout, Log: log}
}

// processors is the number of processors for Go at the start.
var processors = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// makerFor makes the maker of variants, or returns the old one if its limits are the same; nil =
// there is no [image].
func (a *App) makerFor(cfg *config.Config, old *components) *variant.Maker {
	if !cfg.Image.Enabled {
		return nil
	}
	if old.maker != nil && makerOptions(cfg, nil) == makerOptions(old.cfg, nil) {
		return old.maker
	}
	o := makerOptions(cfg, logfile.Limit(a.log))
	// Makers compute for long. Go lets each of them run for 10 ms before another goroutine of its
	// processor; the kernel lets a thread that has waited run at once.
	runtime.GOMAXPROCS(processors() + min(o.Makers, processors()))
	return variant.NewMaker(o)
}
