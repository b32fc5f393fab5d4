// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

var (
	conversionObjects = flag.Int("conversion.objects", 2000, "objects beside the one that cannot be converted")
)

// gadgetServer serves gadgets in a group of their own, with our handler behind the real API server's webhook client.
type gadgetServer struct {
	group, namespace string
	converter        *conversion.Converter
	http             *http.Client
	reviews          atomic.Int64
	handler          atomic.Pointer[http.Handler]
}

func serveGadgets(t *testing.T, group string, n int, storage string, opts ...conversion.HandlerOption) *gadgetServer {
	t.Helper()
	g := &gadgetServer{group: group, namespace: namespace(t.Context(), t), converter: newGadgets(t, group, n)}
	h, err := conversion.Handler([]*conversion.Converter{g.converter}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.reviews.Add(1)
		(*g.handler.Load()).ServeHTTP(w, r)
	}))
	g.handler.Store(&h)
	t.Cleanup(webhook.Close)
	g.install(t, n, storage, webhook.URL+"/convert", webhook.Certificate().Raw)
	return g
}

// install makes the definition with a webhook at a URL and waits until it is served.
func (g *gadgetServer) install(t *testing.T, n int, storage, url string, certificate []byte) {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	raw := gadgetCRD(g.group, n, storage, map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []string{"v1"},
		"clientConfig":             map[string]any{"url": url, "caBundle": base64.StdEncoding.EncodeToString(ca)},
	}})
	if err := g.converter.Check(raw); err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := crd.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Client.Delete(context.Background(), crd) })
	var err error
	if g.http, err = rest.HTTPClientFor(rest.CopyConfig(cluster.Config())); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		version := gadgetVersions[i]
		err := lab.Eventually(t.Context(), version+" is served", func(ctx context.Context) error {
			_, err := g.do(ctx, http.MethodGet, version, "", "", nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// do sends one request, as bytes.
func (g *gadgetServer) do(ctx context.Context, method, version, name, contentType string, body []byte) ([]byte, error) {
	url := g.url(version)
	path, query, _ := strings.Cut(name, "?")
	if path != "" {
		url += "/" + path
	}
	if query != "" {
		url += "?" + query
	}
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType == "" {
		contentType = "application/json"
	}
	r.Header.Set("Content-Type", contentType)
	got, err := g.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	out, err := io.ReadAll(got.Body)
	if err == nil && got.StatusCode > 299 {
		err = fmt.Errorf("%s %s at %s: %d %s", method, name, version, got.StatusCode, out)
	}
	return out, err
}

// TestConversionManagers lets two managers apply at different versions, and an old client patch, on one object. Nobody
// loses a field, nobody meets a conflict, and the second identical apply changes nothing.
func TestConversionManagers(t *testing.T) {
	t.Parallel()
	g := serveGadgets(t, "managers.example.com", 3, "v1")
	ctx := t.Context()
	apply := func(manager, version, spec string) string {
		t.Helper()
		body := `{"apiVersion":"` + g.group + `/` + version + `","kind":"Gadget","metadata":{"name":"a","labels":{"by-` + manager + `":"x"}},"spec":` + spec + `}`
		out, err := g.do(ctx, http.MethodPatch, version, "a?fieldManager="+manager, "application/apply-patch+yaml", []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	apply("old", "v1alpha1", `{"replicas":3,"host":"db","legacy":"kept"}`)
	apply("new", "v1", `{"tier":"gold","rules":[{"name":"r","cidr":"10.0.0.0/8","labels":{"a":"b"}}]}`)
	first := apply("old", "v1alpha1", `{"replicas":3,"host":"db","legacy":"kept"}`)
	second := apply("old", "v1alpha1", `{"replicas":3,"host":"db","legacy":"kept"}`)
	if versionOf(first) != versionOf(second) {
		t.Errorf("an identical apply wrote:\n%s\n%s", first, second)
	}
	if _, err := g.do(ctx, http.MethodPatch, "v1alpha1", "a", "application/merge-patch+json", []byte(`{"spec":{"timeoutSeconds":30}}`)); err != nil {
		t.Fatal(err)
	}
	apply("old", "v1alpha1", `{"replicas":5,"host":"db","legacy":"kept"}`)
	// The manager moves to the new version, with an apply that no longer names the host: it owned that alone.
	apply("new", "v1beta1", `{"rules":[{"name":"r","cidr":"10.0.0.0/8"}]}`)
	raw, err := g.Get(ctx, "v1", "a")
	if err != nil {
		t.Fatal(err)
	}
	var got GadgetC
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.Spec.Scale == nil || got.Spec.Scale.Min != 5 || got.Spec.Endpoint == nil || got.Spec.Endpoint.Host != "db" ||
		got.Spec.Timeout == nil || got.Spec.Timeout.Duration != 30*time.Second || len(got.Spec.Rules) != 1 || got.Spec.Rules[0].CIDR != "10.0.0.0/8" {
		t.Errorf("%s", raw)
	}
	old, err := g.Get(ctx, "v1alpha1", "a")
	if err != nil || !strings.Contains(string(old), `"legacy":"kept"`) {
		t.Errorf("%s, %v", old, err)
	}
	if owners, err := conversion.Owners(old); err != nil || len(owners) > 0 {
		t.Errorf("somebody owns the annotation: %v, %v", owners, err)
	}
}

func versionOf(raw string) string {
	var m metav1.PartialObjectMetadata
	_ = json.Unmarshal([]byte(raw), &m)
	return m.ResourceVersion
}

// fill creates n objects at v1alpha1.
func (g *gadgetServer) fill(t *testing.T, n int) {
	t.Helper()
	errs := make(chan error, 8)
	for worker := range 8 {
		go func() {
			var err error
			for i := worker; i < n && err == nil; i += 8 {
				err = g.Create(t.Context(), "v1alpha1", []byte(fmt.Sprintf(`{"apiVersion":"%s/v1alpha1","kind":"Gadget","metadata":{"name":"g%04d"},"spec":{"replicas":2,"host":"db"}}`, g.group, i)))
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// cold changes the definition, which empties the API server's caches of the kind.
func (g *gadgetServer) cold(t *testing.T, description string) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("gadgets." + g.group)
	if err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err := unstructured.SetNestedField(versions[0].(map[string]any), description, "schema", "openAPIV3Schema", "description"); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
}

// TestConversionQuarantine has one object among many that cannot be converted: LIST, GET, watch and namespace deletion
// work, the API server does not refill its cache for ever, and the object is intact.
func TestConversionQuarantine(t *testing.T) {
	// Not parallel: it counts reviews over time.
	g := serveGadgets(t, "quarantine.example.com", 2, "v1alpha1", conversion.WithQuarantine())
	ctx := t.Context()
	n := *conversionObjects
	if testing.Short() {
		n = min(n, 200)
	}
	g.fill(t, n)
	bad := []byte(`{"apiVersion":"` + g.group + `/v1alpha1","kind":"Gadget","metadata":{"name":"bad"},"spec":{"replicas":0,"host":"db","legacy":"broken","tags":{"a":"b"}}}`)
	if err := g.Create(ctx, "v1alpha1", bad); err != nil {
		t.Fatal(err)
	}
	before, err := g.Get(ctx, "v1alpha1", "bad")
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	defer broken.Store(false)

	g.cold(t, "changed")
	time.Sleep(3 * time.Second) // the server serves the old definition for a moment

	var list struct{ Items []json.RawMessage }
	err = lab.Eventually(ctx, "LIST at v1beta1 works", func(ctx context.Context) error {
		raw, err := g.do(ctx, http.MethodGet, "v1beta1", "?resourceVersion=0", "", nil)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, &list)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != n+1 {
		t.Errorf("%d items", len(list.Items))
	}
	copied, err := g.Get(ctx, "v1beta1", "bad")
	if err != nil || !strings.Contains(string(copied), `#from`) || !strings.Contains(string(copied), `"tags":{"a":"b"}`) {
		t.Errorf("GET of the bad one: %s, %v", copied, err)
	}

	// A watch goes on, and nothing is refilled.
	watch, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	events := make(chan string, 16)
	go g.watch(watch, "v1beta1", events)
	time.Sleep(2 * time.Second)
	start := g.reviews.Load()
	time.Sleep(time.Minute)
	// The server checks its cache against what is stored every few minutes, which is n+1 reviews. Without quarantine it
	// fills the cache again and again, which is a multiple of that.
	flat := g.reviews.Load() - start
	if flat > int64(n)+100 {
		t.Errorf("%d reviews in a minute with nobody asking", flat)
	}
	if _, err := g.do(ctx, http.MethodPatch, "v1alpha1", "bad", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)); err != nil {
		t.Fatal(err)
	}
	for seen := false; !seen; {
		select {
		case e := <-events:
			seen = strings.Contains(e, `"seen":"yes"`)
		case <-watch.Done():
			t.Fatal("the watch did not show the change")
		}
	}

	// A client at the new version writes to the copy; the original is what is stored.
	copied, err = g.Get(ctx, "v1beta1", "bad")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Update(ctx, "v1beta1", bytes.Replace(copied, []byte(`"seen":"yes"`), []byte(`"seen":"twice"`), 1)); err != nil {
		t.Fatal(err)
	}
	after, err := g.Get(ctx, "v1alpha1", "bad")
	if err != nil {
		t.Fatal(err)
	}
	var a, b GadgetA
	_ = json.Unmarshal(before, &a)
	_ = json.Unmarshal(after, &b)
	if x, y := specOf(before), specOf(after); x != y || b.Labels["seen"] != "twice" || b.Annotations[conversion.Annotation] != "" {
		t.Errorf("before %s\nafter %s\n%s", x, y, after)
	}
	broken.Store(false)
	if fixed, err := g.Get(ctx, "v1beta1", "bad"); err != nil || !strings.Contains(string(fixed), `"endpoint":{"host":"db"}`) || strings.Contains(string(fixed), "#from") {
		t.Errorf("after the repair: %s, %v", fixed, err)
	}
	if repaired, err := g.Get(ctx, "v1alpha1", "bad"); err != nil || specOf(repaired) != specOf(before) {
		t.Errorf("the bytes after the repair: %s, %v, want those of %s", repaired, err, before)
	}
	broken.Store(true)
	// The namespace controller finds everything, and so nothing is left behind.
	sent, began := g.reviews.Load(), time.Now()
	if err := cluster.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.namespace}}); err != nil {
		t.Fatal(err)
	}
	deadline, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	for {
		err := cluster.Client.Get(deadline, client.ObjectKey{Name: g.namespace}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			break
		}
		if err != nil {
			t.Fatalf("the namespace with an object in quarantine: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	for _, v := range gadgetVersions[:2] {
		raw, err := g.do(ctx, http.MethodGet, v, "", "", nil)
		if err != nil || json.Unmarshal(raw, &list) != nil || len(list.Items) != 0 {
			t.Errorf("%d left at %s: %v", len(list.Items), v, err)
		}
	}
	t.Logf("%d objects and one in quarantine: %d reviews in an idle minute, the namespace gone after %.1f s and %d reviews",
		n, flat, time.Since(began).Seconds(), g.reviews.Load()-sent)
}

func specOf(raw []byte) string {
	var m struct{ Spec json.RawMessage }
	_ = json.Unmarshal(raw, &m)
	return string(m.Spec)
}

func (g *gadgetServer) watch(ctx context.Context, version string, events chan<- string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url(version)+"?watch=true&fieldSelector=metadata.name%3Dbad", nil)
	if err != nil {
		return
	}
	got, err := g.http.Do(r)
	if err != nil {
		return
	}
	defer got.Body.Close()
	lines := bufio.NewScanner(got.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		select {
		case events <- lines.Text():
		case <-ctx.Done():
			return
		}
	}
}
