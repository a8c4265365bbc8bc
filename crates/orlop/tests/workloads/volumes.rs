//! Volumes of every kind, and their updates.

use crate::cluster::cluster;

/// Prints files as `cat` does, whether volumes are mounted or linked.
const CAT: &str = "cat $ORLOP_ROOT";

#[test]
fn volumes_follow_their_sources() {
    let cluster = cluster(&[]);
    cluster.kubectl(&[
        "create",
        "configmap",
        "settings",
        "--from-literal=colour=blue",
        "--from-literal=size=1",
    ]);
    cluster.kubectl(&["create", "secret", "generic", "key", "--from-literal=token=s3cret"]);
    let manifest = r#"
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: one}, annotations: {note: "a \"b\""}}
spec:
  containers:
  - name: c
    image: local/sh
    command: [sleep, '1234']
    resources: {requests: {cpu: 250m, memory: 32Mi}}
    volumeMounts:
    - {name: settings, mountPath: /settings}
    - {name: items, mountPath: /items}
    - {name: settings, mountPath: /fixed/colour, subPath: colour}
    - {name: key, mountPath: /key, readOnly: true}
    - {name: about, mountPath: /about}
    - {name: all, mountPath: /all}
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: items, configMap: {name: settings, items: [{key: size, path: deep/size, mode: 0400}]}}
  - {name: key, secret: {secretName: key, defaultMode: 0440}}
  - name: about
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: note, fieldRef: {fieldPath: "metadata.annotations['note']"}}
      - {path: cpu, resourceFieldRef: {containerName: c, resource: requests.cpu, divisor: 1m}}
  - name: all
    projected:
      sources:
      - {configMap: {name: settings, items: [{key: colour, path: colour}]}}
      - {secret: {name: key}}
      - {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
      - {serviceAccountToken: {path: identity, audience: vault, expirationSeconds: 600}}
"#;
    cluster.create(manifest);
    cluster.ready("p");
    let read = |path: &str| cluster.kubectl(&["exec", "p", "--", "sh", "-c", &format!("{CAT}{path}")]);
    for (path, content) in [
        ("/settings/colour", "blue"),
        ("/items/deep/size", "1"),
        ("/fixed/colour", "blue"),
        ("/key/token", "s3cret"),
        ("/about/labels", "app=\"one\""),
        ("/about/note", "a \"b\""),
        ("/about/cpu", "250"),
        ("/all/colour", "blue"),
        ("/all/token", "s3cret"),
        ("/all/name", "p"),
    ] {
        assert_eq!(read(path), content, "{path}");
    }
    assert_eq!(read("/all/identity").split('.').count(), 3);
    let modes = "cd $ORLOP_ROOT/; stat -L -c %a items/deep/size key/token settings/colour";
    assert_eq!(cluster.kubectl(&["exec", "p", "--", "sh", "-c", modes]), "400\n440\n644");

    // Labels are seen at once, ConfigMaps and Secrets within the node's interval; a subPath never.
    cluster.kubectl(&["label", "pod", "p", "app=two", "--overwrite"]);
    let says = |path: &str, content: &'static str| {
        let command = format!("{CAT}{path}");
        cluster.eventually(&["exec", "p", "--", "sh", "-c", &command], |said| said == content);
    };
    says("/about/labels", "app=\"two\"");
    cluster.kubectl(&[
        "patch",
        "configmap",
        "settings",
        "-p",
        r#"{"data": {"colour": "green", "new": "key"}}"#,
    ]);
    cluster.kubectl(&["patch", "secret", "key", "-p", r#"{"stringData": {"token": "other"}}"#]);
    says("/settings/colour", "green");
    assert_eq!(read("/settings/new"), "key");
    says("/key/token", "other");
    says("/all/colour", "green");
    assert_eq!(read("/fixed/colour"), "blue");
    assert_eq!(cluster.field("p", ".status.containerStatuses[0].restartCount"), "0");
}

#[test]
fn missing_sources_are_waited_for() {
    let cluster = cluster(&[]);
    let spec = "{containers: [{name: c, image: local/sh, command: [sleep, '1234'], volumeMounts: [{name: v, mountPath: /v}]}], \
        volumes: [{name: v, configMap: {name: late}}, {name: o, secret: {secretName: never, optional: true}}]}";
    cluster.create(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {spec}}}"));
    cluster.eventually(&["get", "events", "-o", "jsonpath={.items[*].message}"], |events| {
        events.contains("MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found")
    });
    assert_eq!(cluster.field("p", ".status.containerStatuses[0].state.waiting.reason"), "ContainerCreating");
    cluster.kubectl(&["create", "configmap", "late", "--from-literal=a=b"]);
    cluster.ready("p");
}

#[test]
fn host_paths_and_claims_keep_what_is_written() {
    let cluster = cluster(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display();
    let manifest = format!(
        r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Mi}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: writer}}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: local/sh
    command: [sh, -c, 'echo kept > $ORLOP_ROOT/data/file; echo kept > $ORLOP_ROOT/host/file; cat $ORLOP_ROOT/one']
    volumeMounts: [{{name: data, mountPath: /data}}, {{name: host, mountPath: /host}}, {{name: one, mountPath: /one}}]
  volumes:
  - {{name: data, persistentVolumeClaim: {{claimName: data}}}}
  - {{name: host, hostPath: {{path: {path}/made, type: DirectoryOrCreate}}}}
  - {{name: one, hostPath: {{path: {path}/one, type: FileOrCreate}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: wrong}}
spec:
  containers: [{{name: c, image: local/sh, command: [sleep, '1234']}}]
  volumes: [{{name: host, hostPath: {{path: {path}/one, type: Directory}}}}]
"#
    );
    cluster.create(&manifest);
    cluster.wait_for("writer", ".status.phase", "Succeeded");
    assert_eq!(std::fs::read_to_string(folder.path().join("made/file")).expect("a file"), "kept\n");
    cluster.eventually(&["get", "events", "-o", "jsonpath={.items[*].message}"], |events| {
        events.contains(&format!("hostPath type check failed: {path}/one is not a directory"))
    });
    cluster.kubectl(&["delete", "pod", "writer", "wrong", "--timeout=60s"]);
    let reader = "{containers: [{name: c, image: local/sh, command: [sleep, '1234'], volumeMounts: [{name: data, mountPath: /data}]}], \
        volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}";
    cluster.create(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: reader}}, spec: {reader}}}"));
    cluster.ready("reader");
    assert_eq!(cluster.kubectl(&["exec", "reader", "--", "sh", "-c", &format!("{CAT}/data/file")]), "kept");
    // It grows while it is in use.
    cluster.kubectl(&[
        "patch",
        "pvc",
        "data",
        "-p",
        r#"{"spec": {"resources": {"requests": {"storage": "2Mi"}}}}"#,
    ]);
    cluster.eventually(
        &["get", "pvc,pv", "-o", "jsonpath={.items[*]['spec.capacity.storage', 'status.capacity.storage']}"],
        |found| found.split_whitespace().collect::<Vec<_>>() == ["2Mi", "2Mi"],
    );
    // A claim in use is kept until its pod is gone, and its folder goes with it.
    cluster.kubectl(&["delete", "pvc", "data", "--wait=false"]);
    assert_eq!(cluster.kubectl(&["get", "pvc", "-o", "name"]), "persistentvolumeclaim/data");
    cluster.kubectl(&["delete", "pod", "reader", "--timeout=60s"]);
    cluster.eventually(&["get", "pvc,pv", "-o", "name"], str::is_empty);
}

#[test]
fn trust_bundles_are_projected_and_certificates_requested() {
    let cluster = cluster(&[]);
    let authority =
        cluster.kubectl(&["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}"]);
    let bundle = serde_json::json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "trust"}, "spec": {"trustBundle": format!("{authority}\n")}});
    cluster.create(&bundle.to_string());
    let source = |source: serde_json::Value| serde_json::json!({"projected": {"sources": [source]}});
    let mut trusted = source(serde_json::json!({"clusterTrustBundle": {"name": "trust", "path": "ca.pem"}}));
    let mut absent = source(serde_json::json!({"clusterTrustBundle": {"signerName": "example.com/none",
        "labelSelector": {}, "optional": true, "path": "ca.pem"}}));
    trusted["name"] = "trusted".into();
    absent["name"] = "absent".into();
    let show = "cat ${ORLOP_ROOT:-}/trusted/ca.pem; wc -c < ${ORLOP_ROOT:-}/absent/ca.pem; sleep 1234";
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "volumes": [trusted, absent],
        "containers": [{"name": "c", "image": "local/sh", "command": ["sh", "-c", show],
            "volumeMounts": [{"name": "trusted", "mountPath": "/trusted"}, {"name": "absent", "mountPath": "/absent"}]}]}});
    cluster.create(&manifest.to_string());
    cluster.ready("p");
    cluster.eventually(&["logs", "p"], |log| log == format!("{}\n0", authority.trim()));

    let mut identity = source(serde_json::json!({"podCertificate": {"signerName": "example.com/pods",
        "keyType": "ECDSAP256", "credentialBundlePath": "bundle.pem"}}));
    identity["name"] = "identity".into();
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "spec": {
        "volumes": [identity],
        "containers": [{"name": "c", "image": "local/sh", "command": ["sleep", "1234"],
            "volumeMounts": [{"name": "identity", "mountPath": "/identity"}]}]}});
    cluster.create(&manifest.to_string());
    let spec = "jsonpath={.items[*].spec.signerName} {.items[*].spec.podName} {.items[*].spec.nodeName}";
    cluster
        .eventually(&["get", "podcertificaterequests", "-o", spec], |found| found == "example.com/pods q n1");
    let name = cluster.kubectl(&["get", "podcertificaterequests", "-o", "name"]);
    let denied = serde_json::json!({"status": {"conditions": [{"type": "Denied", "status": "True",
        "reason": "NotToday", "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    cluster.kubectl(&["patch", &name, "--subresource=status", "--type=merge", "-p", &denied.to_string()]);
    cluster.eventually(&["get", "events", "-o", "jsonpath={.items[*].message}"], |events| {
        events.contains("PodCertificateRequest was denied, reason=\"NotToday\", message=\"no\"")
    });
    assert_eq!(cluster.field("q", ".status.phase"), "Pending");
}
