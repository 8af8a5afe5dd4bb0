package containers

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fastdfs-gateway/tests/lab"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const examples = "../../../packaging/examples/"

// manifests are the objects of kubernetes.yaml.
type manifests struct {
	config  corev1.ConfigMap
	secret  corev1.Secret
	peers   corev1.Service
	clients corev1.Service
	budget  policyv1.PodDisruptionBudget
	set     appsv1.StatefulSet
}

// readManifests decodes kubernetes.yaml. A field that the API does not have is an error.
func readManifests(t *testing.T) *manifests {
	t.Helper()
	text, err := os.ReadFile(examples + "kubernetes.yaml")
	require.NoError(t, err)
	m := &manifests{}
	into := map[string]any{"ConfigMap": &m.config, "Secret": &m.secret, "Service fastdfs-gateway-peers": &m.peers,
		"Service fastdfs-gateway": &m.clients, "PodDisruptionBudget": &m.budget, "StatefulSet": &m.set}
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind struct {
			Kind     string
			Metadata struct{ Name string }
		}
		require.NoError(t, yaml.Unmarshal(part, &kind))
		key := kind.Kind
		if key == "Service" {
			key += " " + kind.Metadata.Name
		}
		require.Contains(t, into, key)
		require.NoError(t, yaml.UnmarshalStrict(part, into[key]), key)
		delete(into, key)
	}
	require.Empty(t, into)
	return m
}

// TestKubernetes: the objects are valid in the API, match each other, and stop a gateway
// gracefully.
func TestKubernetes(t *testing.T) {
	m := readManifests(t)
	pod := m.set.Spec.Template
	for _, selector := range []map[string]string{m.set.Spec.Selector.MatchLabels, m.peers.Spec.Selector,
		m.clients.Spec.Selector, m.budget.Spec.Selector.MatchLabels} {
		require.NotEmpty(t, selector)
		require.Subset(t, pod.Labels, selector)
	}
	require.Equal(t, m.peers.Name, m.set.Spec.ServiceName)
	require.Equal(t, corev1.ClusterIPNone, m.peers.Spec.ClusterIP)
	require.Len(t, pod.Spec.Containers, 1)
	c := pod.Spec.Containers[0]
	ports := map[string]int32{}
	for _, port := range c.Ports {
		ports[port.Name] = port.ContainerPort
	}
	for _, s := range []corev1.Service{m.peers, m.clients} {
		for _, port := range s.Spec.Ports {
			require.Contains(t, ports, port.TargetPort.String())
		}
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, v := range m.set.Spec.VolumeClaimTemplates {
		volumes[v.Name] = true
	}
	for _, mount := range c.VolumeMounts {
		require.Contains(t, volumes, mount.Name)
	}
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.True(t, *pod.Spec.SecurityContext.RunAsNonRoot)
	for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
		require.NotNil(t, probe)
	}
	config := m.config.Data["gateway.conf"]
	ready, alive := c.ReadinessProbe.HTTPGet, c.LivenessProbe.HTTPGet
	require.Equal(t, "http", ready.Port.String())
	require.Contains(t, config, "health_path = "+ready.Path+"\n")
	require.Equal(t, "admin", alive.Port.String())
	require.Equal(t, "/healthz", alive.Path, "a gateway without a tracker must not be restarted")
	require.Contains(t, config, "shutdown_timeout = 60s")
	require.Equal(t, int64(60+10+20), *pod.Spec.TerminationGracePeriodSeconds, "more than preStop and shutdown_timeout")
	require.Equal(t, int64(10), c.Lifecycle.PreStop.Sleep.Seconds)
	m.secret.StringData["peer.secret"] = "7f3a9c51e08b4d2690b1e5d7c8f2a346" // check rejects the one of the example
	requireUsable(t, config, m.secret.StringData)
}

// TestServiceMonitor: the ServiceMonitor selects the service of the pods, a port of it, and the
// token of the Secret; the annotations name the port of the admin listener.
func TestServiceMonitor(t *testing.T) {
	m := readManifests(t)
	text, err := os.ReadFile(examples + "servicemonitor.yaml")
	require.NoError(t, err)
	var monitor struct {
		Spec struct {
			Selector  struct{ MatchLabels map[string]string }
			Endpoints []struct {
				Port          string
				Authorization struct{ Credentials struct{ Name, Key string } }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &monitor))
	require.Subset(t, m.peers.Labels, monitor.Spec.Selector.MatchLabels)
	require.Len(t, monitor.Spec.Endpoints, 1)
	e := monitor.Spec.Endpoints[0]
	require.Equal(t, m.secret.Name, e.Authorization.Credentials.Name)
	require.Contains(t, m.secret.StringData, e.Authorization.Credentials.Key)
	ports := map[string]int32{}
	for _, port := range m.peers.Spec.Ports {
		ports[port.Name] = port.Port
	}
	require.Contains(t, ports, e.Port)
	require.Equal(t, strconv.Itoa(int(ports[e.Port])), m.set.Spec.Template.Annotations["prometheus.io/port"])
}

// TestCompose: the file conforms to the Compose specification, and the configuration that the
// gateways share is usable.
func TestCompose(t *testing.T) {
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  examples,
		ConfigFiles: []types.ConfigFile{{Filename: examples + "compose.yaml"}},
		Environment: types.Mapping{"FASTDFS_IMAGE": "fastdfs", "GATEWAY_IMAGE": "fastdfs-gateway", "PEER_SECRET": "x"},
	}, func(o *loader.Options) { o.SetProjectName("fastdfs", true) })
	require.NoError(t, err)
	gateways := 0
	for name, service := range project.Services {
		if strings.HasPrefix(name, "gateway") {
			gateways++
			require.True(t, service.ReadOnly, name)
			require.Equal(t, []string{"ALL"}, service.CapDrop, name)
		}
	}
	require.Equal(t, 3, gateways)
	requireUsable(t, project.Configs["gateway.conf"].Content, map[string]string{
		"peer.secret": "7f3a9c51e08b4d2690b1e5d7c8f2a346"})
}

// requireUsable runs gateway check on the configuration of a container, with the files that it
// names in a temporary folder.
func requireUsable(t *testing.T, config string, secrets map[string]string) {
	t.Helper()
	require.NoError(t, lab.Built())
	require.NotEmpty(t, config)
	dir := t.TempDir()
	for name, text := range secrets {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
	}
	names := regexp.MustCompile(`(?m)^(tracker_server|addresses) = .*:(\d+)$`)
	config = names.ReplaceAllString(config, "$1 = 10.0.0.1:$2")
	config = strings.ReplaceAll(config, "/run/secrets/fastdfs-gateway/", dir+"/")
	config = strings.ReplaceAll(config, "/run/secrets/", dir+"/")
	config = strings.ReplaceAll(config, "/var/cache/fastdfs-gateway", dir+"/cache")
	file := filepath.Join(dir, "gateway.conf")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "cache"), 0o700))
	out, err := exec.Command(lab.Binary, "check", "-c", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
	require.Contains(t, string(out), ":8887 (advertise = auto)")
}
