// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest_test

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/reconciletest"
)

const protobufType = "application/vnd.kubernetes.protobuf"

func coreScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// clientOver is controller-runtime's own client, whose bodies for built-in types are protobuf.
func clientOver(t *testing.T, rt http.RoundTripper) client.Client {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := client.New(&rest.Config{Host: "https://server"}, client.Options{
		HTTPClient: &http.Client{Transport: rt}, Scheme: coreScheme(t), Mapper: mapper,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func encodeProtobuf(t *testing.T, obj runtime.Object) []byte {
	t.Helper()
	s := coreScheme(t)
	var b bytes.Buffer
	if err := protobuf.NewSerializer(s, s).Encode(obj, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func settings() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"},
		Data:       map[string]string{"a": "b"},
	}
}

// TestLawsReadWhatRealClientsSend uses controller-runtime's client, because the encoding it chooses is not ours.
func TestLawsReadWhatRealClientsSend(t *testing.T) {
	t.Parallel()
	uid, rv := types.UID("u1"), "7"
	tests := map[string]struct {
		reason string
		do     func(client.Client) error
		want   []reconciletest.Law
	}{
		"update without a resourceVersion": {
			reason: "protobuf body without identity",
			do:     func(c client.Client) error { return c.Update(t.Context(), settings()) },
			want:   []reconciletest.Law{reconciletest.WriteIdentity},
		},
		"update with a resourceVersion": {
			reason: "protobuf body with one",
			do: func(c client.Client) error {
				cm := settings()
				cm.ResourceVersion = "7"
				return c.Update(t.Context(), cm)
			},
		},
		"plain delete": {
			reason: "what a reconciler usually writes",
			do:     func(c client.Client) error { return c.Delete(t.Context(), settings()) },
			want:   []reconciletest.Law{reconciletest.DeletePolicy, reconciletest.DeletePreconditions},
		},
		"fenced delete": {
			reason: "policy and both preconditions in protobuf",
			do: func(c client.Client) error {
				return c.Delete(t.Context(), settings(), client.PropagationPolicy(metav1.DeletePropagationBackground),
					client.Preconditions{UID: &uid, ResourceVersion: &rv})
			},
		},
		"delete of all": {
			reason: "one call, many objects",
			do: func(c client.Client) error {
				return c.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace("shop"))
			},
			want: []reconciletest.Law{reconciletest.DeleteCollection},
		},
		"merge patch": {
			reason: "the usual patch helper",
			do: func(c client.Client) error {
				changed := settings()
				changed.Data["a"] = "c"
				return c.Patch(t.Context(), changed, client.MergeFrom(settings()))
			},
			want: []reconciletest.Law{reconciletest.WriteIdentity},
		},
		"merge patch with a lock": {
			reason: "the lock puts the resourceVersion into the body",
			do: func(c client.Client) error {
				old := settings()
				old.ResourceVersion = "7"
				changed := old.DeepCopy()
				changed.Data["a"] = "c"
				return c.Patch(t.Context(), changed, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
			},
		},
		"apply": {
			reason: "an apply configuration without identity",
			do: func(c client.Client) error {
				u := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings", "namespace": "shop"},
				}}
				return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("me"))
			},
			want: []reconciletest.Law{reconciletest.WriteIdentity},
		},
		"status update": {
			reason: "a put on status",
			do: func(c client.Client) error {
				cm := settings()
				cm.ResourceVersion = "7"
				return c.Status().Update(t.Context(), cm)
			},
			want: []reconciletest.Law{reconciletest.StatusPut},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			reply := settings()
			reply.UID, reply.ResourceVersion = "u1", "8"
			asJSON := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"shop","uid":"u1"}}`
			rt := reconciletest.NewLawTransport(nil, &server{answer: func(r *http.Request) (int, string, string) {
				if strings.Contains(r.Header.Get("Accept"), "protobuf") {
					return http.StatusOK, protobufType, string(encodeProtobuf(t, reply))
				}
				return http.StatusOK, jsonType, asJSON
			}})
			if err := tc.do(clientOver(t, rt)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, broken(rt)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestLawDeleteOnceLearnsFromProtobuf(t *testing.T) {
	t.Parallel()
	gone := settings()
	gone.UID, gone.DeletionTimestamp = "u1", &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
	event := &metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: encodeProtobuf(t, gone)}}
	frame, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	stream := append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	list := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Items: []corev1.ConfigMap{*gone}}

	const maps = "/api/v1/namespaces/shop/configmaps"
	tests := map[string]struct {
		reason, line string
		reply        []byte
	}{
		"object": {"one object", "GET " + maps + "/settings", encodeProtobuf(t, gone)},
		"list":   {"metadata is the first field of every item", "GET " + maps, encodeProtobuf(t, list)},
		"watch":  {"frames with a length in front", "GET " + maps + "?watch=true", stream},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := reconciletest.NewLawTransport(nil, &server{answer: func(r *http.Request) (int, string, string) {
				return http.StatusOK, protobufType + ";stream=watch", string(tc.reply)
			}})
			if got := send(t, rt, tc.line, "", ""); got != string(tc.reply) {
				t.Errorf("%s: the reply changed on its way", tc.reason)
			}
			send(t, rt, "DELETE "+maps+"/settings", jsonType, fencedDelete)
			if diff := cmp.Diff([]reconciletest.Law{reconciletest.DeleteOnce}, broken(rt)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestWrapFitsRestConfig compiles the line of the documentation and runs a request through it.
func TestWrapFitsRestConfig(t *testing.T) {
	t.Parallel()
	laws := reconciletest.NewLawTransport(nil, nil)
	config := &rest.Config{Host: "https://server", Transport: &server{}}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return laws.Wrap(rt) })
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	send(t, h.Transport, "PUT "+orders, jsonType, `{}`)
	if got := broken(laws); len(got) != 1 {
		t.Errorf("got %v, want one violation", got)
	}
}

func FuzzLawTransport(f *testing.F) {
	f.Add("DELETE", orders, jsonType, []byte(fencedDelete))
	f.Add("PATCH", orders+"/status", applyType, []byte("metadata: {uid: u1}"))
	f.Add("PATCH", "/api/v1/namespaces/a/b", patchType, []byte(`[{"op":"test","path":"/metadata/uid","value":1}]`))
	f.Add("PUT", "/apis/a/v1/b/c", protobufType, []byte("k8s\x00\x0a\x00"))
	f.Add("GET", "/apis//v1//", "", []byte(nil))
	f.Fuzz(func(t *testing.T, method, path, media string, body []byte) {
		r, err := http.NewRequestWithContext(t.Context(), method, "https://server", bytes.NewReader(body))
		if err != nil {
			t.Skip()
		}
		r.URL.Path = path
		r.Header.Set("Content-Type", media)
		s := &server{answer: func(*http.Request) (int, string, string) { return http.StatusOK, media, string(body) }}
		resp, err := reconciletest.NewLawTransport(nil, s).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if len(s.bodies) != 1 || s.bodies[0] != string(body) {
			t.Errorf("sent %q, arrived %q", body, s.bodies)
		}
	})
}
