package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// rootsModule has the certificate authorities of Mozilla, for the image, which has no others. The
// list also has authorities that are trusted only in part.
const rootsModule = "golang.org/x/crypto/x509roots/fallback@v0.0.0-20261030153154-30a33513ff6d"

// authorities returns the certificate authorities in PEM.
func authorities(ctx context.Context) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", rootsModule).Output()
	if err != nil {
		return nil, fmt.Errorf("cannot fetch %s: %w: %s", rootsModule, err, out)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, err
	}
	der, err := os.ReadFile(filepath.Join(m.Dir, "bundle", "bundle.der"))
	if err != nil {
		return nil, err
	}
	all, err := x509.ParseCertificates(der)
	if err != nil {
		return nil, err
	}
	if len(all) < 50 {
		return nil, errors.New(rootsModule + " has too few certificates: its form has changed")
	}
	var b bytes.Buffer
	for _, c := range all {
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
