//! Objects that make up a server.

use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use crate::api::{DeletionPolicy, MONGO_PORT, PORT, Server, StoreKind};

/// Folder of the data directory in the container.
const DATA_DIR: &str = "/data";
/// Default size of the volume.
const DEFAULT_SIZE: &str = "1Gi";

pub(super) fn claim_name(server: &Server) -> String {
    format!("{}-data", server.name_any())
}

fn labels(server: &Server) -> Value {
    json!({
        "app.kubernetes.io/name": "slate",
        "app.kubernetes.io/instance": server.name_any(),
        "app.kubernetes.io/managed-by": "slate-operator",
    })
}

/// Returns the label selector of a server's pods.
pub(super) fn selector(server: &Server) -> String {
    format!("app.kubernetes.io/name=slate,app.kubernetes.io/instance={}", server.name_any())
}

fn match_labels(server: &Server) -> Value {
    json!({ "app.kubernetes.io/name": "slate", "app.kubernetes.io/instance": server.name_any() })
}

/// Returns the metadata of an owned object.
pub(super) fn metadata(server: &Server, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": server.namespace(),
        "labels": labels(server),
        "ownerReferences": [server.controller_owner_ref(&())],
    })
}

/// Returns the ports of a server, with their names.
fn ports(server: &Server) -> Vec<(&'static str, i32)> {
    let mut ports = vec![("slate", PORT)];
    if server.serves_mongo() {
        ports.push(("mongo", MONGO_PORT));
    }
    ports
}

pub(super) fn service_account(server: &Server) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(server, &server.name_any()),
        // The database does not talk to the API.
        "automountServiceAccountToken": false,
    })
}

pub(super) fn service(server: &Server) -> Value {
    let port = |(name, port)| json!({ "name": name, "port": port, "targetPort": name, "protocol": "TCP" });
    let ports: Vec<Value> = ports(server).into_iter().map(port).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(server, &server.name_any()),
        "spec": {
            "type": "ClusterIP",
            "selector": match_labels(server),
            "ports": ports,
        },
    })
}

pub(super) fn claim(server: &Server) -> Value {
    let storage = server.spec.storage.clone().unwrap_or_default();
    let mut metadata = metadata(server, &claim_name(server));
    if storage.deletion_policy == DeletionPolicy::Retain
        && let Some(metadata) = metadata.as_object_mut()
    {
        // Without an owner, garbage collection leaves it.
        metadata.remove("ownerReferences");
    }
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": storage.size.as_deref().unwrap_or(DEFAULT_SIZE) } },
    });
    if let Some(class) = &storage.storage_class_name {
        spec["storageClassName"] = json!(class);
    }
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec })
}

/// One replica cannot be disrupted without an outage: a drain asks first.
pub(super) fn disruption_budget(server: &Server) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(server, &server.name_any()),
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": match_labels(server) } },
    })
}

/// Clients reach the ports; the pod itself connects to nothing.
pub(super) fn network_policy(server: &Server) -> Value {
    let ports: Vec<Value> =
        ports(server).into_iter().map(|(_, port)| json!({ "port": port, "protocol": "TCP" })).collect();
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(server, &server.name_any()),
        "spec": {
            "podSelector": { "matchLabels": match_labels(server) },
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{ "ports": ports }],
            "egress": [],
        },
    })
}

/// Returns the Deployment. A new digest of the token replaces the pod.
pub(super) fn deployment(server: &Server, default_image: &str, token_digest: Option<&str>) -> Value {
    let name = server.name_any();
    let rocks = server.spec.store == StoreKind::Rocks;
    let security = server.security();
    let mut env = vec![
        json!({ "name": "SLATE_ADDR", "value": format!("0.0.0.0:{PORT}") }),
        json!({ "name": "SLATE_STORE", "value": server.spec.store.name() }),
        json!({ "name": "SLATE_READY_FILE", "value": "/tmp/ready" }),
    ];
    if server.serves_mongo() {
        env.push(json!({ "name": "SLATE_MONGO_ADDR", "value": format!("0.0.0.0:{MONGO_PORT}") }));
    }
    let port = |(name, port)| json!({ "name": name, "containerPort": port, "protocol": "TCP" });
    let ports: Vec<Value> = ports(server).into_iter().map(port).collect();
    let mut volumes = vec![json!({ "name": "tmp", "emptyDir": {} })];
    let mut mounts = vec![json!({ "name": "tmp", "mountPath": "/tmp" })];
    if rocks {
        env.push(json!({ "name": "SLATE_DATA_DIR", "value": DATA_DIR }));
        volumes.push(json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim_name(server) } }));
        mounts.push(json!({ "name": "data", "mountPath": DATA_DIR }));
    }
    let mut mount_secret = |volume: &str, secret: String, path: &str| {
        volumes.push(json!({ "name": volume, "secret": { "secretName": secret, "defaultMode": 0o440 } }));
        mounts.push(json!({ "name": volume, "mountPath": path, "readOnly": true }));
    };
    if security.token {
        mount_secret("token", format!("{name}-token"), "/etc/slate/token");
        env.push(json!({ "name": "SLATE_TOKEN_FILE", "value": "/etc/slate/token/token" }));
    }
    if security.tls {
        mount_secret("tls", format!("{name}-tls"), "/etc/slate/tls");
        env.push(json!({ "name": "SLATE_TLS_CERT", "value": "/etc/slate/tls/tls.crt" }));
        env.push(json!({ "name": "SLATE_TLS_KEY", "value": "/etc/slate/tls/tls.key" }));
    }
    let mut container = json!({
        "name": "slate-server",
        "image": server.spec.image.as_deref().unwrap_or(default_image),
        "env": env,
        "ports": ports,
        "readinessProbe": { "exec": { "command": ["test", "-f", "/tmp/ready"] }, "periodSeconds": 2 },
        "volumeMounts": mounts,
        // The end of the log says why a start failed; the Server's status shows it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
    });
    if let Some(resources) = &server.spec.resources {
        container["resources"] = json!(resources);
    }
    let strategy = if rocks {
        // Two pods must not open one data directory.
        json!({ "type": "Recreate" })
    } else {
        // Written out, so that both fields are ours and go when the store becomes rocks.
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } })
    };
    let mut template_metadata = json!({ "labels": labels(server) });
    if let Some(digest) = token_digest {
        template_metadata["annotations"] = json!({ "slate.io/token": digest });
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(server, &name),
        "spec": {
            "replicas": 1,
            "strategy": strategy,
            "selector": { "matchLabels": match_labels(server) },
            "template": {
                "metadata": template_metadata,
                "spec": {
                    "serviceAccountName": name,
                    "automountServiceAccountToken": false,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "fsGroup": 65532,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    })
}
