//! Fields that each endpoint of a kind may change, and the managed fields it records.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use orlop_server::{chain::Chain, registry::Kinds};
use serde_json::{Value, json};
use support::{apply, call, create, get, server};

/// Metadata that users may set, by its letter in the table.
const METADATA: [(char, &str); 4] =
    [('l', "labels"), ('a', "annotations"), ('f', "finalizers"), ('o', "ownerReferences")];

fn metadata(letter: char) -> Value {
    match letter {
        'l' => json!({"new": "label"}),
        'a' => json!({"new": "annotation"}),
        'f' => json!(["example.com/held"]),
        _ => json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1-2-3"}]),
    }
}

/// A kind with a status subresource.
struct Row {
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    spec: Value,
    /// Changes of spec and status.
    spec_change: Value,
    status_change: Value,
    /// Metadata that a status update changes, and a status apply owns.
    metadata: &'static str,
}

impl Row {
    fn collection(&self) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let namespace = if self.namespaced { "/namespaces/default" } else { "" };
        format!("/{root}/{}{namespace}/{}", self.api_version, self.plural)
    }

    /// APIServices, definitions and CSINodes have prescribed names.
    fn name(&self) -> &'static str {
        match self.kind {
            "APIService" => "v1.example.com",
            "CustomResourceDefinition" => "things.example.com",
            "ServiceCIDR" => "extra",
            _ => "x",
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name())
    }

    fn object(&self) -> Value {
        json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": self.name()},
            "spec": self.spec})
    }

    /// Applied or written through the status: all metadata, spec and status.
    fn change(&self, mut object: Value) -> Value {
        for (letter, field) in METADATA {
            object["metadata"][field] = metadata(letter);
        }
        for (part, change) in [("spec", &self.spec_change), ("status", &self.status_change)] {
            for (field, value) in change.as_object().unwrap() {
                object[part][field] = value.clone();
            }
        }
        object
    }
}

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn condition() -> Value {
    json!([{"type": "Ready", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}

fn certificate_request() -> rcgen::CertificateSigningRequest {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::default().serialize_request(&key).unwrap()
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let selector = json!({"matchLabels": {"a": "b"}});
    let workload = json!({"selector": selector, "template": template()});
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
    let autoscaler = json!({"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}});
    let conditions = json!({"conditions": condition()});
    let request = certificate_request();
    let (pem, der) = (STANDARD.encode(request.pem().unwrap()), STANDARD.encode(request.der()));
    let row = |api_version,
               kind,
               plural,
               namespaced,
               spec: &Value,
               spec_change: Value,
               status_change: Value,
               metadata| Row {
        api_version,
        kind,
        plural,
        namespaced,
        spec: spec.clone(),
        spec_change,
        status_change,
        metadata,
    };
    vec![
        row(
            "v1",
            "Namespace",
            "namespaces",
            false,
            &json!({}),
            json!({"finalizers": ["example.com/f"]}),
            conditions.clone(),
            "lafo",
        ),
        row(
            "v1",
            "Node",
            "nodes",
            false,
            &json!({}),
            json!({"unschedulable": true}),
            json!({"phase": "Running"}),
            "lafo",
        ),
        row(
            "v1",
            "PersistentVolume",
            "persistentvolumes",
            false,
            &json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}),
            json!({"storageClassName": "other"}),
            json!({"message": "m"}),
            "lafo",
        ),
        row(
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            true,
            &json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
            json!({"volumeName": "v"}),
            json!({"phase": "Bound"}),
            "lafo",
        ),
        row(
            "v1",
            "Pod",
            "pods",
            true,
            &template()["spec"],
            json!({"activeDeadlineSeconds": 5}),
            json!({"message": "m"}),
            "laf",
        ),
        row(
            "v1",
            "ReplicationController",
            "replicationcontrollers",
            true,
            &json!({"selector": {"a": "b"}, "template": template()}),
            json!({"replicas": 7}),
            json!({"observedGeneration": 1}),
            "lafo",
        ),
        row(
            "v1",
            "ResourceQuota",
            "resourcequotas",
            true,
            &json!({"hard": {"pods": "1"}}),
            json!({"hard": {"pods": "2"}}),
            json!({"used": {"pods": "1"}}),
            "lafo",
        ),
        row(
            "v1",
            "Service",
            "services",
            true,
            &json!({"ports": [{"port": 80}]}),
            json!({"sessionAffinity": "ClientIP"}),
            conditions.clone(),
            "lafo",
        ),
        row(
            "apps/v1",
            "DaemonSet",
            "daemonsets",
            true,
            &workload,
            json!({"minReadySeconds": 7}),
            json!({"numberReady": 1}),
            "lafo",
        ),
        row(
            "apps/v1",
            "Deployment",
            "deployments",
            true,
            &workload,
            json!({"minReadySeconds": 7}),
            json!({"observedGeneration": 1}),
            "afo",
        ),
        row(
            "apps/v1",
            "ReplicaSet",
            "replicasets",
            true,
            &workload,
            json!({"minReadySeconds": 7}),
            json!({"observedGeneration": 1}),
            "lafo",
        ),
        row(
            "apps/v1",
            "StatefulSet",
            "statefulsets",
            true,
            &json!({"serviceName": "s", "selector": selector, "template": template()}),
            json!({"minReadySeconds": 7}),
            json!({"observedGeneration": 1}),
            "lafo",
        ),
        row(
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            true,
            &autoscaler,
            json!({"maxReplicas": 9}),
            json!({"currentReplicas": 1, "desiredReplicas": 1}),
            "lafo",
        ),
        row(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            true,
            &autoscaler,
            json!({"maxReplicas": 9}),
            json!({"currentReplicas": 1, "desiredReplicas": 1}),
            "lafo",
        ),
        row(
            "batch/v1",
            "CronJob",
            "cronjobs",
            true,
            &json!({"schedule": "@daily", "jobTemplate": {"spec": job}}),
            json!({"suspend": true}),
            json!({"lastScheduleTime": "2026-01-01T00:00:00Z"}),
            "lafo",
        ),
        row("batch/v1", "Job", "jobs", true, &job, json!({"suspend": true}), json!({"active": 1}), "lafo"),
        row(
            "networking.k8s.io/v1",
            "Ingress",
            "ingresses",
            true,
            &json!({"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}),
            json!({"ingressClassName": "other"}),
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
            "lafo",
        ),
        row(
            "policy/v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            true,
            &json!({"minAvailable": 1, "selector": selector}),
            json!({"minAvailable": 2}),
            json!({"observedGeneration": 1, "currentHealthy": 1}),
            "lafo",
        ),
        row(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            false,
            &json!({"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}),
            json!({"preserveUnknownFields": true}),
            conditions.clone(),
            "lafo",
        ),
        row(
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            "certificatesigningrequests",
            false,
            &json!({"request": pem, "signerName": "a.b/c", "usages": ["client auth"]}),
            json!({"signerName": "d.e/f"}),
            json!({"certificate": CERTIFICATE}),
            "lafo",
        ),
        // These statuses preserve metadata.
        row(
            "certificates.k8s.io/v1",
            "PodCertificateRequest",
            "podcertificaterequests",
            true,
            &json!({"signerName": "a.b/c", "podName": "p", "podUID": "u", "serviceAccountName": "s", "serviceAccountUID": "u",
                "nodeName": "n", "nodeUID": "u", "stubPKCS10Request": der, "maxExpirationSeconds": 86_400}),
            json!({}),
            json!({"conditions": [{"type": "Denied", "status": "True", "reason": "R", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
            "",
        ),
        row(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            false,
            &json!({"matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]},
                "validations": [{"expression": "true"}]}),
            json!({"failurePolicy": "Ignore"}),
            json!({"observedGeneration": 7}),
            "",
        ),
        row(
            "apiregistration.k8s.io/v1",
            "APIService",
            "apiservices",
            false,
            &json!({"group": "example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}),
            json!({"versionPriority": 20}),
            conditions.clone(),
            "",
        ),
        row(
            "flowcontrol.apiserver.k8s.io/v1",
            "FlowSchema",
            "flowschemas",
            false,
            &json!({"priorityLevelConfiguration": {"name": "p"}}),
            json!({"matchingPrecedence": 7}),
            conditions.clone(),
            "",
        ),
        row(
            "flowcontrol.apiserver.k8s.io/v1",
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
            false,
            &json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}}),
            json!({"limited": {"nominalConcurrencyShares": 6, "limitResponse": {"type": "Reject"}}}),
            conditions.clone(),
            "",
        ),
        row(
            "networking.k8s.io/v1",
            "ServiceCIDR",
            "servicecidrs",
            false,
            &json!({"cidrs": ["10.1.0.0/24"]}),
            json!({"cidrs": ["10.2.0.0/24"]}),
            conditions.clone(),
            "",
        ),
        row(
            "resource.k8s.io/v1",
            "DeviceTaintRule",
            "devicetaintrules",
            false,
            &json!({"taint": {"key": "k", "effect": "NoExecute"}}),
            json!({"taint": {"key": "other", "effect": "NoExecute"}}),
            conditions.clone(),
            "",
        ),
        row(
            "resource.k8s.io/v1",
            "ResourceClaim",
            "resourceclaims",
            true,
            &json!({"devices": {}}),
            json!({"devices": {"config": []}}),
            json!({"allocation": {"devices": {}}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}),
            "",
        ),
        row(
            "storage.k8s.io/v1",
            "CSINode",
            "csinodes",
            false,
            &json!({"drivers": []}),
            json!({"drivers": [{"name": "d", "nodeID": "n"}]}),
            json!({"storageHealth": [{"name": "d"}]}),
            "",
        ),
        row(
            "storage.k8s.io/v1",
            "VolumeAttachment",
            "volumeattachments",
            false,
            &json!({"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "v"}}),
            json!({"nodeName": "other"}),
            json!({"attached": true}),
            "",
        ),
        row(
            "storagemigration.k8s.io/v1",
            "StorageVersionMigration",
            "storageversionmigrations",
            false,
            &json!({"resource": {"group": "apps", "resource": "deployments"}}),
            json!({"resource": {"group": "", "resource": "pods"}}),
            conditions,
            "",
        ),
    ]
}

fn taken(object: &Value, before: &Value) -> String {
    let changed = METADATA.iter().filter(|(_, field)| object["metadata"][field] != before["metadata"][field]);
    changed.map(|(letter, _)| *letter).collect()
}

#[test]
fn every_kind_with_status_is_covered() {
    let kinds = Kinds::builtin();
    let served: BTreeSet<String> = kinds
        .iter()
        .filter(|kind| kind.has_status())
        .map(|kind| format!("{} {}", kind.gvk.api_version(), kind.resource))
        .collect();
    let listed: BTreeSet<String> =
        rows().iter().map(|row| format!("{} {}", row.api_version, row.plural)).collect();
    assert_eq!(listed, served);
}

#[tokio::test]
async fn status_update_changes_only_the_fields_of_its_scope() {
    for row in rows() {
        let (chain, _store) = server().await;
        create(&chain, &row.collection(), &row.object()).await;
        let (_, before) = get(&chain, &row.path()).await;
        let status = format!("{}/status", row.path());
        let (code, after) = call(&chain, "PUT", &status, Some(&row.change(before.clone()))).await;
        assert_eq!(code, 200, "{}: {after}", row.plural);
        assert_eq!(taken(&after, &before), row.metadata, "{}", row.plural);
        assert_eq!(after["spec"], before["spec"], "{}", row.plural);
        for (field, value) in row.status_change.as_object().unwrap() {
            let part: Vec<&Value> = after["status"][field].as_array().into_iter().flatten().collect();
            let listed = value.as_array().is_some_and(|items| items.iter().all(|item| part.contains(&item)));
            assert!(listed || after["status"][field] == *value, "{}: {}", row.plural, after["status"]);
        }
    }
}

#[tokio::test]
async fn status_apply_owns_only_status_fields() {
    for row in rows() {
        let (chain, _store) = server().await;
        create(&chain, &row.collection(), &row.object()).await;
        let (_, before) = get(&chain, &row.path()).await;
        let mut config = row.change(row.object());
        if row.kind == "CertificateSigningRequest" {
            // Only approval changes conditions.
            config["status"]["conditions"] = json!([]);
        }
        let path = format!("{}/status?fieldManager=applier", row.path());
        let (code, after) = apply(&chain, &path, &config).await;
        assert_eq!(code, 200, "{}: {after}", row.plural);
        assert_eq!(taken(&after, &before), row.metadata, "{}", row.plural);
        let owned = owned_by(&after, "applier", "status");
        let metadata: String = METADATA
            .iter()
            .filter(|(_, field)| owned["f:metadata"].get(format!("f:{field}")).is_some())
            .map(|(letter, _)| *letter)
            .collect();
        assert_eq!(metadata, row.metadata, "{}: {owned}", row.plural);
        assert_eq!(owned.get("f:spec"), None, "{}", row.plural);
        assert!(owned["f:status"].as_object().is_some_and(|status| !status.is_empty()), "{}", row.plural);
        assert_eq!(owned["f:status"].get("f:conditions").is_some(), has_conditions(&row), "{}", row.plural);
    }
}

fn has_conditions(row: &Row) -> bool {
    row.status_change.get("conditions").is_some()
}

fn owned_by(object: &Value, manager: &str, subresource: &str) -> Value {
    let mut entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let found =
        entries.find(|entry| text(entry, "manager") == manager && text(entry, "subresource") == subresource);
    found.map_or(json!({}), |entry| entry["fieldsV1"].clone())
}

#[tokio::test]
async fn object_update_preserves_status() {
    for row in rows() {
        let (chain, _store) = server().await;
        create(&chain, &row.collection(), &row.object()).await;
        let (_, before) = get(&chain, &row.path()).await;
        let mut wanted = before.clone();
        wanted["metadata"]["labels"]["new"] = "label".into();
        wanted["status"] = row.status_change.clone();
        let path = format!("{}?fieldManager=writer", row.path());
        let (code, after) = call(&chain, "PUT", &path, Some(&wanted)).await;
        assert_eq!(code, 200, "{}: {after}", row.plural);
        assert_eq!(after["status"], before["status"], "{}", row.plural);
        assert_eq!(owned_by(&after, "writer", "")["f:status"], Value::Null, "{}", row.plural);
    }
}

#[tokio::test]
async fn custom_status_update_changes_only_status() {
    let (chain, _store) = server().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"}, "versions": [version]}});
    create(&chain, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let row = Row {
        api_version: "example.com/v1",
        kind: "Thing",
        plural: "things",
        namespaced: true,
        spec: json!({"a": 1}),
        spec_change: json!({"a": 2}),
        status_change: json!({"phase": "Ready"}),
        metadata: "",
    };
    create(&chain, &row.collection(), &row.object()).await;
    let (_, before) = get(&chain, &row.path()).await;
    let mut wanted = row.change(before.clone());
    wanted["else"] = "where".into();
    let (code, after) = call(&chain, "PUT", &format!("{}/status", row.path()), Some(&wanted)).await;
    assert_eq!((code, taken(&after, &before).as_str()), (200, ""), "{after}");
    assert_eq!((&after["spec"], after.get("else")), (&before["spec"], None));
    assert_eq!(after["status"], json!({"phase": "Ready"}));
    let path = format!("{}/status?fieldManager=applier&force=true", row.path());
    let (code, applied) = apply(&chain, &path, &row.change(row.object())).await;
    assert_eq!(code, 200, "{applied}");
    let expected = json!({"f:status": {".": {}, "f:phase": {}}});
    assert_eq!(owned_by(&applied, "applier", "status"), expected);
}

const PODS: &str = "/api/v1/namespaces/default/pods";
/// The start of a PEM certificate, which is all that is validated.
const CERTIFICATE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

async fn pod(chain: &Chain) -> Value {
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
    create(chain, PODS, &pod).await;
    get(chain, &format!("{PODS}/p")).await.1
}

#[tokio::test]
async fn resize_changes_only_resources() {
    let (chain, _store) = server().await;
    let before = pod(&chain).await;
    let mut wanted = before.clone();
    wanted["metadata"]["labels"] = json!({"new": "label"});
    wanted["spec"]["containers"][0]["image"] = "other".into();
    wanted["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "3".into();
    wanted["spec"]["activeDeadlineSeconds"] = 5.into();
    let path = format!("{PODS}/p/resize?fieldManager=sizer");
    let (code, after) = call(&chain, "PUT", &path, Some(&wanted)).await;
    assert_eq!(code, 200, "{after}");
    assert_eq!(after["metadata"].get("labels"), None);
    let mut expected = before["spec"].clone();
    expected["containers"][0]["resources"]["limits"]["cpu"] = "3".into();
    assert_eq!(after["spec"], expected);
    let cpu = json!({"f:resources": {"f:limits": {"f:cpu": {}}}});
    let expected = json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": cpu}}});
    assert_eq!(owned_by(&after, "sizer", "resize"), expected);
    // Adding or renaming containers is not a resize.
    wanted["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"].clone();
    wanted["spec"]["containers"][0]["name"] = "renamed".into();
    let (code, refused) = call(&chain, "PUT", &path, Some(&wanted)).await;
    assert_eq!(code, 422, "{refused}");
}

#[tokio::test]
async fn ephemeralcontainers_changes_only_ephemeral_containers() {
    let (chain, _store) = server().await;
    let before = pod(&chain).await;
    let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"new": "label"}},
        "spec": {"activeDeadlineSeconds": 5, "ephemeralContainers": [{"name": "d", "image": "i",
            "imagePullPolicy": "Always", "terminationMessagePath": "/dev/x", "terminationMessagePolicy": "File"}]}});
    let path = format!("{PODS}/p/ephemeralcontainers?fieldManager=debugger");
    let (code, after) = apply(&chain, &path, &config).await;
    assert_eq!(code, 200, "{after}");
    assert_eq!(after["metadata"].get("labels"), None);
    assert_eq!(after["spec"].get("activeDeadlineSeconds"), None);
    assert_eq!(after["spec"]["ephemeralContainers"][0]["name"], "d");
    assert_eq!(after["spec"]["containers"], before["spec"]["containers"]);
    let owned = owned_by(&after, "debugger", "ephemeralcontainers");
    assert_eq!(owned.as_object().unwrap().len(), 1, "{owned}");
    assert_eq!(owned["f:spec"].as_object().unwrap().keys().collect::<Vec<_>>(), ["f:ephemeralContainers"]);
}

#[tokio::test]
async fn pod_status_update_carries_over_omitted_fields() {
    let (chain, _store) = server().await;
    pod(&chain).await;
    let path = format!("{PODS}/p/status");
    let known = json!({"status": {"observedGeneration": 3,
        "resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}],
        "conditions": [{"type": "Ready", "status": "False", "observedGeneration": 2}]}});
    call(&chain, "PATCH", &path, Some(&known)).await;
    let (_, mut object) = get(&chain, &path).await;
    object["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let (code, after) = call(&chain, "PUT", &path, Some(&object)).await;
    assert_eq!(code, 200, "{after}");
    let status = &after["status"];
    assert_eq!((&status["qosClass"], &status["observedGeneration"]), (&json!("Burstable"), &json!(3)));
    assert_eq!(status["resourceClaimStatuses"], known["status"]["resourceClaimStatuses"]);
    assert_eq!(status["conditions"][0]["status"], "True");
    assert_eq!(status["conditions"][0]["observedGeneration"], 2);
}

#[tokio::test]
async fn csr_status_and_approval_change_their_own_fields() {
    let (chain, _store) = server().await;
    let row = rows().into_iter().find(|row| row.kind == "CertificateSigningRequest").unwrap();
    let mut asked = row.object();
    asked["metadata"]["labels"] = json!({"a": "b"});
    create(&chain, &format!("{REQUESTS}?fieldManager=asker"), &asked).await;
    let path = format!("{REQUESTS}/x");
    let (_, object) = get(&chain, &path).await;
    // Reset fields have no owner.
    assert_eq!(owned_by(&object, "asker", ""), json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}));
    // Approval sets conditions and their times, but no certificate.
    let mut wanted = object.clone();
    wanted["status"] = json!({"certificate": CERTIFICATE, "conditions": [{"type": "Approved", "status": "True", "reason": "R"}]});
    let approval = format!("{path}/approval?fieldManager=approver");
    let (code, approved) = call(&chain, "PUT", &approval, Some(&wanted)).await;
    assert_eq!(code, 200, "{approved}");
    assert_eq!(approved["status"].get("certificate"), None);
    let condition = &approved["status"]["conditions"][0];
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string());
    let owned = owned_by(&approved, "approver", "approval");
    assert_eq!(
        owned["f:status"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["f:conditions"],
        "{owned}"
    );
    // Status preserves the approval condition, and sets the certificate.
    let mut wanted = approved.clone();
    wanted["status"]["certificate"] = CERTIFICATE.into();
    wanted["status"]["conditions"][0]["reason"] = "Other".into();
    let status = format!("{path}/status?fieldManager=signer");
    let (code, issued) = call(&chain, "PUT", &status, Some(&wanted)).await;
    assert_eq!(code, 200, "{issued}");
    assert_eq!(issued["status"]["conditions"], approved["status"]["conditions"]);
    assert_eq!(issued["status"]["certificate"], CERTIFICATE);
    assert_eq!(owned_by(&issued, "signer", "status"), json!({"f:status": {"f:certificate": {}}}));
    let mut undecided = issued.clone();
    undecided["status"]["conditions"] = json!([]);
    let (code, refused) = call(&chain, "PUT", &status, Some(&undecided)).await;
    assert_eq!(code, 422);
    let expected = r#"CertificateSigningRequest.certificates.k8s.io "x" is invalid: status.conditions: Forbidden: updates may not remove a condition of type "Approved""#;
    assert_eq!(refused["message"], expected);
}

#[tokio::test]
async fn finalize_preserves_namespace_status() {
    let (chain, _store) = server().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    create(&chain, "/api/v1/namespaces", &namespace).await;
    let (_, before) = get(&chain, "/api/v1/namespaces/n").await;
    let mut wanted = before.clone();
    wanted["metadata"]["labels"]["new"] = "label".into();
    wanted["spec"]["finalizers"] = json!(["example.com/f"]);
    wanted["status"]["conditions"] = condition();
    // Only finalize changes finalizers of a namespace.
    let (code, kept) = call(&chain, "PUT", "/api/v1/namespaces/n", Some(&wanted)).await;
    assert_eq!((code, &kept["spec"], &kept["status"]), (200, &before["spec"], &before["status"]));
    wanted["metadata"]["resourceVersion"] = kept["metadata"]["resourceVersion"].clone();
    let (code, after) = call(&chain, "PUT", "/api/v1/namespaces/n/finalize", Some(&wanted)).await;
    assert_eq!(code, 200, "{after}");
    assert_eq!(after["spec"]["finalizers"], json!(["example.com/f"]));
    assert_eq!(after["metadata"]["labels"]["new"], "label");
    assert_eq!(after["status"], before["status"]);
}
