package main

import (
	"net/http"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// The cases of files that are missing. The gateway of all but notFound has a tracker, whose
// storages do not run.

func (w *world) notFound(c *testCase) error {
	o, err := w.store.missing()
	c.absent(o)
	c.flavour = local
	return err
}

// absent sets the objects that both sides are to answer with 404.
func (c *testCase) absent(list ...object) {
	c.flavour, c.status, c.want = replica, http.StatusNotFound, list[0]
	for _, o := range list {
		c.gateway.paths = append(c.gateway.paths, o.path)
	}
}

// deletedSlot makes a case of a packed file whose slot is free, in a trunk file that others use.
func (w *world) deletedSlot(c *testCase) error {
	content := w.store.content(4 * kib)
	o, id, err := w.store.slot(content)
	if err == nil {
		err = w.store.w.WriteSlot(id, fdfs.SlotFree, content)
	}
	c.absent(o)
	c.note = "nginx: a missing file"
	c.nginx.paths = []string{"/group1/M00/00/00/missing.bin"}
	return err
}

// missingNames makes a case of as many missing files as the mix has.
func (w *world) missingNames(c *testCase) error {
	list := make([]object, mixFiles)
	for i := range list {
		var err error
		if list[i], err = w.store.missing(); err != nil {
			return err
		}
	}
	c.absent(list...)
	return nil
}

// youngSlave makes a case of a slave that no storage has, of a file that was just uploaded: the
// gateway has to ask the storages, which do not run.
func (w *world) youngSlave(c *testCase) error {
	f := w.store.w.Fields(fdfs.KindNormal, "bin", []byte("young"))
	f.High, f.Low, f.Created = 0, 0, time.Now().Unix() // in the folder of the first file
	master, err := fdfs.Encode(f)
	if err != nil {
		return err
	}
	id, err := fdfs.EncodeSlave(master, "_150x150", "bin")
	c.absent(objectOf(id, nil))
	return err
}
