//! Validation messages of less common kinds.

use serde_json::{Value, json};

use crate::support::{ask, call, create, server, whole};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Returns an object of a kind with the fields of `rest`.
fn object(version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    object
}

#[tokio::test]
async fn create_errors_match_kubernetes() {
    let (chain, _store) = server().await;
    let storage = |plural: &str| format!("/apis/storage.k8s.io/v1/{plural}");
    let network = |plural: &str| format!("/apis/networking.k8s.io/v1/{plural}");
    let core = |plural: &str| format!("/api/v1/namespaces/default/{plural}");
    let parent = json!({"resource": "services", "name": "s"});
    let service = json!({"group": "g.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
        "insecureSkipTLSVerify": true, "service": {"name": "s", "namespace": "d"}});
    let api_service = |field: &str, value: Value| {
        let mut spec = service.clone();
        spec[field] = value;
        json!({"spec": spec})
    };
    let quota = |hard: &str, more: Value| {
        let mut spec = json!({"hard": {hard: "1"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
    };
    let limit = |limits: Value| {
        let mut item = json!({"type": "Container"});
        item.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        json!({"spec": {"limits": [item]}})
    };
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    for (path, version, kind, name, rest, expected) in [
        (storage("volumeattributesclasses"), "storage.k8s.io/v1", "VolumeAttributesClass", "x", json!({}),
            "[driverName: Required value, parameters: Required value: must contain at least one key/value pair]".to_owned()),
        (storage("namespaces/default/csistoragecapacities"), "storage.k8s.io/v1", "CSIStorageCapacity", "x",
            json!({"storageClassName": "BAD", "capacity": "-1"}),
            format!("[storageClassName: Invalid value: \"BAD\": {SUBDOMAIN}, capacity: Invalid value: \"-1\": must be \
                greater than or equal to 0]")),
        (storage("volumeattachments"), "storage.k8s.io/v1", "VolumeAttachment", "x",
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {}}}),
            format!("spec.source: Required value: {one}")),
        (storage("volumeattachments"), "storage.k8s.io/v1", "VolumeAttachment", "x",
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p",
                "inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"]}}}}),
            format!("spec.source: Forbidden: {one}")),
        (storage("csinodes"), "storage.k8s.io/v1", "CSINode", "x",
            json!({"spec": {"drivers": [{"name": "d", "nodeID": "", "topologyKeys": []},
                {"name": "d", "nodeID": "n", "topologyKeys": [], "allocatable": {"count": -1}}]}}),
            "[spec.drivers[0].nodeID: Required value, spec.drivers[1].allocatable.count: Invalid value: -1: must be \
             greater than or equal to 0, spec.drivers[1].name: Duplicate value: \"d\"]".to_owned()),
        (storage("csidrivers"), "storage.k8s.io/v1", "CSIDriver", "x",
            json!({"spec": {"fsGroupPolicy": "X", "tokenRequests": [{"audience": "a", "expirationSeconds": 5}]}}),
            "[spec.fsGroupPolicy: Unsupported value: \"X\": supported values: \"File\", \"None\", \
             \"ReadWriteOnceWithFSType\", spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a \
             duration less than 10 minutes]".to_owned()),
        (storage("storageclasses"), "storage.k8s.io/v1", "StorageClass", "x",
            json!({"provisioner": "a.b/c", "allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": []}]},
                {}]}),
            "[allowedTopologies[0].matchLabelExpressions[0].values: Required value, \
             allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"]".to_owned()),
        (network("ipaddresses"), "networking.k8s.io/v1", "IPAddress", "2001:DB8::1", json!({"spec": {"parentRef": parent}}),
            "metadata.name: Invalid value: \"2001:DB8::1\": must be in canonical form (\"2001:db8::1\")".to_owned()),
        (network("ipaddresses"), "networking.k8s.io/v1", "IPAddress", "10.9.8.7", json!({"spec": {}}),
            "spec.parentRef: Required value".to_owned()),
        (network("servicecidrs"), "networking.k8s.io/v1", "ServiceCIDR", "x", json!({"spec": {"cidrs": ["10.0.0.1/24"]}}),
            "spec.cidrs[0]: Invalid value: \"10.0.0.1/24\": must not have bits set beyond the prefix length".to_owned()),
        (network("servicecidrs"), "networking.k8s.io/v1", "ServiceCIDR", "x",
            json!({"spec": {"cidrs": ["10.0.0.0/24", "10.1.0.0/24"]}}),
            "spec.cidrs: Invalid value: [\"10.0.0.0/24\",\"10.1.0.0/24\"]: may specify no more than one IP for each IP \
             family, i.e 192.168.0.0/24 and 2001:db8::/64".to_owned()),
        ("/apis/apiregistration.k8s.io/v1/apiservices".to_owned(), "apiregistration.k8s.io/v1", "APIService", "x",
            json!({"spec": service}),
            "metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \"v1.g.example.com\"".to_owned()),
        ("/apis/apiregistration.k8s.io/v1/apiservices".to_owned(), "apiregistration.k8s.io/v1", "APIService",
            "v1.g.example.com", api_service("versionPriority", json!(0)),
            "spec.versionPriority: Invalid value: 0: must be positive and less than 1000".to_owned()),
        ("/apis/apiregistration.k8s.io/v1/apiservices".to_owned(), "apiregistration.k8s.io/v1", "APIService",
            "v1.g.example.com", api_service("caBundle", json!("YQ==")),
            "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present".to_owned()),
        (core("resourcequotas"), "v1", "ResourceQuota", "x", quota("services", json!({"scopes": ["BestEffort"]})),
            "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource".to_owned()),
        (core("resourcequotas"), "v1", "ResourceQuota", "x",
            quota("pods", json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}})),
            "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is \
             'In' or 'NotIn' for scope selector".to_owned()),
        (core("limitranges"), "v1", "LimitRange", "x", limit(json!({"maxLimitRequestRatio": {"cpu": "0.5"}})),
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1".to_owned()),
        (core("limitranges"), "v1", "LimitRange", "x",
            limit(json!({"maxLimitRequestRatio": {"cpu": "10"}, "min": {"cpu": "1"}, "max": {"cpu": "2"}})),
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"10\": ratio 10 is greater than max/min = \
             2.000000".to_owned()),
    ] {
        let given = object(version, kind, name, &rest);
        let (code, status) = call(&chain, "POST", &path, Some(&given)).await;
        let group = version.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
        let message = format!("{kind}{group} \"{name}\" is invalid: {expected}");
        assert_eq!((code, status["message"].as_str()), (422, Some(message.as_str())), "{rest}");
    }
}

#[tokio::test]
async fn volume_webhook_and_policy_errors_match_kubernetes() {
    let (chain, _store) = server().await;
    let volume = |more: Value| {
        let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
    };
    let rule =
        json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
    let webhook = |field: &str, value: Value| {
        let mut webhook = json!({"name": "a.example.com", "clientConfig": {"url": "https://x/y"},
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [rule]});
        webhook[field] = value;
        json!({"webhooks": [webhook]})
    };
    let policy = |field: &str, value: Value| {
        let mut spec =
            json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]});
        spec[field] = value;
        json!({"spec": spec})
    };
    let registration = "admissionregistration.k8s.io/v1";
    let service = |path: &str| json!({"service": {"name": "a", "namespace": "b", "path": path}});
    let twice = json!([{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]);
    let wider = json!([{"operations": ["CREATE"], "apiGroups": ["a"], "apiVersions": ["v1"],
        "resources": ["pods/*", "pods/status"]}]);
    for (path, version, kind, rest, expected) in [
        (
            "/api/v1/persistentvolumes",
            "v1",
            "PersistentVolume",
            volume(json!({"local": {"path": "/x"}})),
            "spec.nodeAffinity: Required value: Local volume requires node affinity",
        ),
        (
            "/api/v1/persistentvolumes",
            "v1",
            "PersistentVolume",
            volume(json!({"iscsi": {}})),
            "[spec.iscsi.targetPortal: Required value, spec.iscsi.iqn: Required value]",
        ),
        (
            "/api/v1/persistentvolumes",
            "v1",
            "PersistentVolume",
            volume(json!({"hostPath": {"path": "/x"}, "nodeAffinity": {}})),
            "spec.nodeAffinity.required: Required value: must specify required node constraints",
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            registration,
            "ValidatingWebhookConfiguration",
            webhook("clientConfig", service("/a//b")),
            "webhooks[0].clientConfig.service.path: Invalid value: \"/a//b\": segment[1] may not be empty",
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            registration,
            "MutatingWebhookConfiguration",
            webhook("matchConditions", twice),
            "webhooks[0].matchConditions[1].name: Duplicate value: \"a\"",
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            registration,
            "MutatingWebhookConfiguration",
            webhook("rules", wider),
            "webhooks[0].rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not \
             specify pods/status",
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            registration,
            "ValidatingAdmissionPolicy",
            policy("paramKind", json!({})),
            "[spec.paramKind.apiVersion: Required value, spec.paramKind.kind: Required value]",
        ),
    ] {
        let (code, status) = call(&chain, "POST", path, Some(&object(version, kind, "x", &rest))).await;
        let group = version.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
        let message = format!("{kind}{group} \"x\" is invalid: {expected}");
        assert_eq!((code, status["message"].as_str()), (422, Some(message.as_str())), "{rest}");
    }
}

#[tokio::test]
async fn immutable_fields_reject_updates() {
    let (chain, _store) = server().await;
    let storage = |plural: &str| format!("/apis/storage.k8s.io/v1/{plural}");
    for (path, version, kind, name, rest, patch, expected) in [
        (
            storage("volumeattributesclasses"),
            "storage.k8s.io/v1",
            "VolumeAttributesClass",
            "x",
            json!({"driverName": "a.b", "parameters": {"a": "b"}}),
            json!({"parameters": {"a": "c"}}),
            "parameters: Forbidden: updates to parameters are forbidden.",
        ),
        (
            storage("namespaces/default/csistoragecapacities"),
            "storage.k8s.io/v1",
            "CSIStorageCapacity",
            "x",
            json!({"storageClassName": "s"}),
            json!({"storageClassName": "t"}),
            "storageClassName: Invalid value: \"t\": field is immutable",
        ),
        (
            storage("volumeattachments"),
            "storage.k8s.io/v1",
            "VolumeAttachment",
            "x",
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p"}}}),
            json!({"spec": {"nodeName": "m"}}),
            "spec: Invalid value: {\"attacher\":\"a\",\"nodeName\":\"m\",\"source\":{\"persistentVolumeName\":\"p\"}}: \
             field is immutable",
        ),
        (
            storage("csidrivers"),
            "storage.k8s.io/v1",
            "CSIDriver",
            "x",
            json!({"spec": {}}),
            json!({"spec": {"attachRequired": false}}),
            "spec.attachedRequired: Invalid value: false: field is immutable",
        ),
        (
            storage("csinodes"),
            "storage.k8s.io/v1",
            "CSINode",
            "x",
            json!({"spec": {"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": ["a"]}]}}),
            json!({"spec": {"drivers": [{"name": "d", "nodeID": "m", "topologyKeys": ["a"]}]}}),
            "spec.drivers: Invalid value: {\"name\":\"d\",\"nodeID\":\"m\",\"topologyKeys\":[\"a\"]}: field is immutable",
        ),
        (
            "/apis/networking.k8s.io/v1/servicecidrs".to_owned(),
            "networking.k8s.io/v1",
            "ServiceCIDR",
            "x",
            json!({"spec": {"cidrs": ["10.222.0.0/24"]}}),
            json!({"spec": {"cidrs": ["10.223.0.0/24"]}}),
            "spec.cidrs[0]: Invalid value: \"10.223.0.0/24\": field is immutable",
        ),
        (
            "/apis/networking.k8s.io/v1/ipaddresses".to_owned(),
            "networking.k8s.io/v1",
            "IPAddress",
            "10.9.8.7",
            json!({"spec": {"parentRef": {"resource": "services", "name": "s"}}}),
            json!({"spec": {"parentRef": {"name": "t"}}}),
            "spec.parentRef: Invalid value: {\"name\":\"t\",\"resource\":\"services\"}: field is immutable",
        ),
    ] {
        create(&chain, &path, &object(version, kind, name, &rest)).await;
        let (code, status) = call(&chain, "PATCH", &format!("{path}/{name}"), Some(&patch)).await;
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let message = format!("{kind}.{group} \"{name}\" is invalid: {expected}");
        assert_eq!((code, status["message"].as_str()), (422, Some(message.as_str())), "{patch}");
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        assert_eq!(call(&chain, "PATCH", &format!("{path}/{name}"), Some(&labelled)).await.0, 200, "{kind}");
    }
    // A range of the other family may be added; drivers may be added and removed.
    for (path, patch) in [
        (
            "/apis/networking.k8s.io/v1/servicecidrs/x",
            json!({"spec": {"cidrs": ["10.222.0.0/24", "fd00::/112"]}}),
        ),
        (
            "/apis/storage.k8s.io/v1/csinodes/x",
            json!({"spec": {"drivers": [{"name": "e", "nodeID": "n", "topologyKeys": ["a"]}]}}),
        ),
    ] {
        let (code, answer) = call(&chain, "PATCH", path, Some(&patch)).await;
        assert_eq!(code, 200, "{answer}");
    }
}

#[tokio::test]
async fn services_and_tls_secrets_warn() {
    let (chain, _store) = server().await;
    let warned = |plural: &str, object: Value| {
        let (chain, path) = (chain.clone(), format!("/api/v1/namespaces/default/{plural}?dryRun=All"));
        async move {
            let (code, headers, body) =
                whole(ask(&chain, "POST", &path, &[], object.to_string()).await).await;
            assert_eq!(code, 201, "{body:?}");
            let warnings = headers.get_all("warning").iter();
            warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    let service = |spec: Value| object("v1", "Service", "s", &json!({"spec": spec}));
    let ports = json!([{"port": 80}]);
    assert!(warned("services", service(json!({"clusterIP": "None", "ports": ports}))).await.is_empty());
    assert_eq!(
        warned("services", service(json!({"ports": ports, "externalName": "a.b"}))).await,
        ["299 - \"spec.externalName is ignored when spec.type is not \\\"ExternalName\\\"\""]
    );
    let pair = json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}});
    assert_eq!(
        warned("secrets", object("v1", "Secret", "t", &pair)).await,
        ["299 - \"tls: failed to find any PEM data in certificate input\""]
    );
}
