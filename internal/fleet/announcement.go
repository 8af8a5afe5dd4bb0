package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// What gateways tell about themselves, for their status pages.
const (
	announcementMax  = 1024             // bytes
	announcementKept = 40 * time.Second // a gateway tells it anew before that
)

// Publish tells the other gateways a text about this one, of announcementMax bytes at most. It is
// kept for announcementKept. After HandOver the other process tells.
func (f *Fleet) Publish(ctx context.Context, text string) error {
	if f.handedOver.Load() {
		return nil
	}
	return f.ask(ctx, "tell about this gateway", func(ctx context.Context) error {
		return f.rdb.Set(ctx, f.key("about:"+f.o.Name), text[:min(len(text), announcementMax)], announcementKept).Err()
	})
}

// addAnnounced adds to a list of gateways what each of them tells. What cannot be read is empty.
func (f *Fleet) addAnnounced(ctx context.Context, list []Gateway) {
	var texts []*redis.StringCmd
	_ = f.ask(ctx, "ask what the gateways tell", func(ctx context.Context) error { // the list is good without it
		_, err := f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, g := range list {
				texts = append(texts, p.GetRange(ctx, f.key("about:"+g.Name), 0, announcementMax))
			}
			return nil
		})
		if _, refused := errors.AsType[redis.Error](err); refused {
			return nil // a key of another type: this says nothing about Redis
		}
		return err
	})
	for i, text := range texts {
		list[i].Announcement = text.Val()
	}
}
