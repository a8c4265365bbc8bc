// What people do with client-go and controller-runtime, one after another. Run by hand: docs/clients.md.

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}
func eventually(what string, f func() bool) {
	began := time.Now()
	for !f() {
		if time.Since(began) > 20*time.Second {
			panic(what + " did not happen")
		}
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Printf("ok   %-60s %v\n", what, time.Since(began).Round(time.Millisecond))
}
func ok(what string, good bool) {
	if !good {
		panic(what)
	}
	fmt.Printf("ok   %s\n", what)
}

func main() {
	log.SetLogger(logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	cfg.QPS = -1
	for _, ct := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		c := rest.CopyConfig(cfg)
		c.ContentType = ct
		typed(ctx, c, ct)
	}
	dyn(ctx, cfg)
	elect(ctx, cfg)
	manager(ctx, cfg)
	fmt.Println("done")
}

func typed(ctx context.Context, cfg *rest.Config, ct string) {
	cs := kubernetes.NewForConfigOrDie(cfg)
	f := informers.NewSharedInformerFactory(cs, 0)
	inf := f.Core().V1().ConfigMaps().Informer()
	lister := f.Core().V1().ConfigMaps().Lister()
	f.Start(ctx.Done())
	eventually(ct+": informer synced", inf.HasSynced)
	name := "go-" + map[bool]string{true: "json", false: "pb"}[ct == "application/json"]
	cm, err := cs.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "1"}}, metav1.CreateOptions{})
	must(err)
	eventually(ct+": informer sees the creation", func() bool { _, err := lister.ConfigMaps("default").Get(name); return err == nil })
	_, err = cs.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
	ok(ct+": a create with a resourceVersion is refused", err != nil && err.Error() == "resourceVersion should not be set on objects to be created")
	cm.ResourceVersion = ""
	_, err = cs.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
	ok(ct+": IsAlreadyExists", apierrors.IsAlreadyExists(err))
	must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cm, err := cs.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		cm.Data["a"] = "2"
		_, err = cs.CoreV1().ConfigMaps("default").Update(ctx, cm, metav1.UpdateOptions{})
		return err
	}))
	_, err = cs.CoreV1().ConfigMaps("default").Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"data":{"b":"3"}}`), metav1.PatchOptions{})
	must(err)
	_, err = cs.CoreV1().ConfigMaps("default").Apply(ctx, applycore.ConfigMap(name, "default").WithData(map[string]string{"a": "9"}), metav1.ApplyOptions{FieldManager: "go-apply"})
	ok(ct+": IsConflict on apply", apierrors.IsConflict(err))
	_, err = cs.CoreV1().ConfigMaps("default").Apply(ctx, applycore.ConfigMap(name, "default").WithData(map[string]string{"a": "9"}), metav1.ApplyOptions{FieldManager: "go-apply", Force: true})
	must(err)
	eventually(ct+": informer sees the apply", func() bool {
		cm, err := lister.ConfigMaps("default").Get(name)
		return err == nil && cm.Data["a"] == "9" && cm.Data["b"] == "3"
	})
	w, err := cs.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, AllowWatchBookmarks: true})
	must(err)
	e := <-w.ResultChan()
	ok(ct+": a watch begins with what is there", string(e.Type) == "ADDED")
	w.Stop()
	must(cs.CoreV1().ConfigMaps("default").Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(cm.UID))}))
	eventually(ct+": informer sees the deletion", func() bool { _, err := lister.ConfigMaps("default").Get(name); return apierrors.IsNotFound(err) })
	l, err := cs.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 2})
	must(err)
	ok(ct+": lists come in pages", len(l.Items) == 2 && l.Continue != "")
	_, err = cs.AppsV1().Deployments("default").Create(ctx, deployment(name), metav1.CreateOptions{})
	must(err)
	s, err := cs.AppsV1().Deployments("default").GetScale(ctx, name, metav1.GetOptions{})
	must(err)
	s.Spec.Replicas = 5
	_, err = cs.AppsV1().Deployments("default").UpdateScale(ctx, name, s, metav1.UpdateOptions{})
	must(err)
	d, err := cs.AppsV1().Deployments("default").Get(ctx, name, metav1.GetOptions{})
	must(err)
	ok(ct+": scaled", *d.Spec.Replicas == 5)
	d.Status.Replicas = 5
	_, err = cs.AppsV1().Deployments("default").UpdateStatus(ctx, d, metav1.UpdateOptions{})
	must(err)
	must(cs.AppsV1().Deployments("default").Delete(ctx, name, metav1.DeleteOptions{}))
}

func deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": name}}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": name}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
}

func dyn(ctx context.Context, cfg *rest.Config) {
	dc := dynamic.NewForConfigOrDie(cfg)
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	f := dynamicinformer.NewDynamicSharedInformerFactory(dc, 0)
	inf := f.ForResource(gvr).Informer()
	f.Start(ctx.Done())
	eventually("dynamic informer synced", inf.HasSynced)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"generateName": "dyn-"}, "stringData": map[string]any{"a": "b"}}}
	made, err := dc.Resource(gvr).Namespace("default").Create(ctx, u, metav1.CreateOptions{})
	must(err)
	ok("names are generated", len(made.GetName()) == 9)
	eventually("dynamic informer sees it", func() bool { _, found, _ := inf.GetStore().GetByKey("default/" + made.GetName()); return found })
	mc := metadata.NewForConfigOrDie(cfg)
	mf := metadatainformer.NewSharedInformerFactory(mc, 0)
	minf := mf.ForResource(gvr).Informer()
	mf.Start(ctx.Done())
	eventually("metadata informer synced (protobuf)", minf.HasSynced)
	ok("metadata informer has it", len(minf.GetStore().ListKeys()) == 1)
	must(dc.Resource(gvr).Namespace("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	eventually("all informers see the deletion", func() bool { return len(minf.GetStore().ListKeys()) == 0 && len(inf.GetStore().ListKeys()) == 0 })
	di := discovery.NewDiscoveryClientForConfigOrDie(cfg)
	gs, rs, err := di.ServerGroupsAndResources()
	must(err)
	n := 0
	for _, r := range rs {
		n += len(r.APIResources)
	}
	fmt.Printf("ok   discovery: %d groups, %d resources\n", len(gs), n)
	v, err := di.ServerVersion()
	must(err)
	fmt.Println("ok   version", v.GitVersion)
	doc, err := di.OpenAPISchema()
	must(err)
	fmt.Printf("ok   OpenAPI v2 in protobuf: %d definitions, %d paths\n", len(doc.Definitions.AdditionalProperties), len(doc.Paths.Path))
	_, err = di.OpenAPIV3().Paths()
	must(err)
}

func elect(ctx context.Context, cfg *rest.Config) {
	cs := kubernetes.NewForConfigOrDie(cfg)
	ctx, cancel := context.WithCancel(ctx)
	led := make(chan string, 2)
	for _, id := range []string{"one", "two"} {
		lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Name: "go-election", Namespace: "default"}, Client: cs.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: id}}
		go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{Lock: lock, ReleaseOnCancel: true, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { led <- id }, OnStoppedLeading: func() {}}})
	}
	first := <-led
	time.Sleep(700 * time.Millisecond)
	ok("leader election: one leads ("+first+")", len(led) == 0)
	cancel()
}

type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cm corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if cm.Labels["mirror"] == "" {
		return ctrl.Result{}, nil
	}
	if !cm.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&cm, "example.com/f") {
			return ctrl.Result{}, r.Update(ctx, &cm)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&cm, "example.com/f") {
		return ctrl.Result{}, r.Update(ctx, &cm)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: cm.Name, Namespace: cm.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, s, func() error {
		s.StringData = cm.Data
		return controllerutil.SetControllerReference(&cm, s, r.Scheme())
	})
	return ctrl.Result{}, err
}

func manager(ctx context.Context, cfg *rest.Config) {
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Metrics: server.Options{BindAddress: "0"}, LeaderElection: true, LeaderElectionID: "go-manager", LeaderElectionNamespace: "default"})
	must(err)
	must(ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(&reconciler{mgr.GetClient()}))
	go func() { must(mgr.Start(ctx)) }()
	c, err := client.New(cfg, client.Options{})
	must(err)
	began := time.Now()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ctrl", Namespace: "default", Labels: map[string]string{"mirror": "y"}}, Data: map[string]string{"a": "1"}}
	must(c.Create(ctx, cm))
	key := client.ObjectKeyFromObject(cm)
	eventually("controller-runtime: reconciled", func() bool { return c.Get(ctx, key, &corev1.Secret{}) == nil })
	var s corev1.Secret
	must(c.Get(ctx, key, &s))
	before := s.UID
	must(c.Delete(ctx, &s))
	eventually("controller-runtime: what it owns comes back", func() bool { return c.Get(ctx, key, &s) == nil && s.UID != before })
	must(c.Delete(ctx, cm))
	eventually("controller-runtime: finalizer and garbage collection", func() bool {
		return apierrors.IsNotFound(c.Get(ctx, key, &s)) && apierrors.IsNotFound(c.Get(ctx, key, cm))
	})
	fmt.Println("     in all", time.Since(began).Round(time.Millisecond))
	_ = cache.MetaNamespaceKeyFunc
}
