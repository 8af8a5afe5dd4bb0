package app

import (
	"cmp"
	"log/slog"
	"reflect"
	"runtime"
	"sync"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/process/logfile"
	"fastdfs-gateway/internal/variant"
)

// addImages adds the rules of [image] for requests, if the section is there.
func addImages(o *gateway.Options, cfg *config.Config, secrets []string) {
	if i := &cfg.Image; i.Enabled {
		o.Images = variant.NewRules(variant.RulesOptions{Presets: i.Presets, Sizes: i.Sizes, Any: i.Any,
			Forms: i.Forms, Quality: i.Quality, Secrets: secrets, Original: i.OnError == "original"})
	}
}

// makerOptions returns the limits of the maker of variants.
func makerOptions(cfg *config.Config, log *slog.Logger) variant.MakerOptions {
	i := &cfg.Image
	return variant.MakerOptions{Makers: cmp.Or(i.Makers, processors()), Queue: i.Queue, Memory: i.Memory,
		SourceMax: i.SourceMax, Pixels: int64(i.PixelsMax), Timeout: i.Timeout, Log: log}
}

// making counts the variants that are being made.
var making struct {
	sync.Mutex
	count int
}

// calmAfter is the time without a variant that is made after which Go has its processors only.
const calmAfter = time.Second

// beginMaking gives Go further processors while variants are made, which compute for long: Go lets
// each of them run for 10 ms before another goroutine of its processor, and the kernel lets a
// thread that has waited run at once. Without makers they cost all requests a quarter more
// processor time, since idle ones look for work.
func beginMaking(more int) (end func()) {
	making.Lock()
	defer making.Unlock()
	making.count++
	runtime.GOMAXPROCS(processors() + more)
	return func() {
		making.Lock()
		defer making.Unlock()
		making.count--
		time.AfterFunc(calmAfter, func() {
			making.Lock()
			defer making.Unlock()
			if making.count == 0 {
				runtime.GOMAXPROCS(processors())
			}
		})
	}
}

// processors is the number of processors for Go at the start.
var processors = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// makerFor makes the maker of variants, or returns the old one if its limits are the same; nil =
// there is no [image].
func (a *App) makerFor(cfg *config.Config, old *components) *variant.Maker {
	if !cfg.Image.Enabled {
		return nil
	}
	if old.maker != nil && reflect.DeepEqual(makerOptions(cfg, nil), makerOptions(old.cfg, nil)) {
		return old.maker
	}
	o := makerOptions(cfg, logfile.Limit(a.log))
	o.Begin = func() func() { return beginMaking(min(o.Makers, processors())) }
	if old.maker != nil {
		return old.maker.With(o)
	}
	return variant.NewMaker(o)
}
