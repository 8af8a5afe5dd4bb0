package app

import (
	"fmt"
	"log/slog"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
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
		return fmt.Errorf("%w; see secret_files in [antisteal]", err)
	}
	o.Images = variant.NewRules(variant.RulesOptions{Presets: i.Presets, Sizes: i.Sizes, Any: i.Any, Forms: i.Forms,
		Fit: i.Fit, Quality: i.Quality, Secrets: secrets, Original: i.OnError == "original"})
	return nil
}

// makerOptions returns the limits of the maker of variants.
func makerOptions(cfg *config.Config, log *slog.Logger) variant.MakerOptions {
	i := &cfg.Image
	return variant.MakerOptions{Makers: i.Makers, Queue: i.Queue, Memory: i.Memory, SourceMax: i.SourceMax,
		Pixels: int64(i.PixelsMax), Timeout: i.Timeout, Log: log}
}

// makerFor makes the maker of variants, or returns the old one if its limits are the same; nil =
// there is no [image].
func (a *App) makerFor(cfg *config.Config, old *components) *variant.Maker {
	if !cfg.Image.Enabled {
		return nil
	}
	if old.maker != nil && makerOptions(cfg, nil) == makerOptions(old.cfg, nil) {
		return old.maker
	}
	return variant.NewMaker(makerOptions(cfg, logfile.Limit(a.log)))
}
