//! References of pods and persistent volumes to other objects.

use serde_json::Value;

/// A kind of object that is in use on nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// `configmaps`
    ConfigMap,
    /// `persistentvolumeclaims`
    PersistentVolumeClaim,
    /// `pods`
    Pod,
    /// `podcertificaterequests`
    PodCertificateRequest,
    /// `resourceclaims`
    ResourceClaim,
    /// `resourceslices`
    ResourceSlice,
    /// `secrets`
    Secret,
    /// `serviceaccounts`
    ServiceAccount,
    /// `volumeattachments`
    VolumeAttachment,
}

/// Annotation of pods that stand for a node's static pods. They give no access to other objects: a node may create
/// them itself.
const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// Volume sources of a pod with a secret, and the path of its name.
const POD_VOLUME_SECRETS: &[&str] = &[
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/flexVolume/secretRef/name",
    "/rbd/secretRef/name",
    "/secret/secretName",
    "/scaleIO/secretRef/name",
    "/iscsi/secretRef/name",
    "/storageos/secretRef/name",
    "/csi/nodePublishSecretRef/name",
];
/// Volume sources of a persistent volume with secrets that the kubelet reads.
const VOLUME_SECRETS: &[&str] = &[
    "/cephfs/secretRef",
    "/cinder/secretRef",
    "/flexVolume/secretRef",
    "/rbd/secretRef",
    "/scaleIO/secretRef",
    "/iscsi/secretRef",
    "/storageos/secretRef",
    "/csi/nodePublishSecretRef",
    "/csi/nodeStageSecretRef",
    "/csi/nodeExpandSecretRef",
];

/// Returns the objects in its own namespace that a pod uses.
pub fn of_pod(pod: &Value) -> Vec<(Target, String)> {
    if is_mirror(pod) { Vec::new() } else { named_by(pod) }
}

/// Returns true for a pod that stands for a static pod of its node.
pub fn is_mirror(pod: &Value) -> bool {
    let annotations = pod.pointer("/metadata/annotations");
    annotations.is_some_and(|annotations| annotations.get(MIRROR_POD).is_some())
}

/// Returns the objects in its own namespace that a pod names, whoever made it.
pub fn named_by(pod: &Value) -> Vec<(Target, String)> {
    let mut found = References::default();
    let Some(spec) = pod.get("spec") else { return found.0 };
    found.add(Target::ServiceAccount, spec.get("serviceAccountName"));
    for secret in items(spec, "/imagePullSecrets") {
        found.add(Target::Secret, secret.get("name"));
    }
    for list in ["/initContainers", "/containers", "/ephemeralContainers"] {
        items(spec, list).for_each(|container| found.add_container(container));
    }
    let pod_name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    items(spec, "/volumes").for_each(|volume| found.add_volume(volume, pod_name));
    for claim in items(spec, "/resourceClaims") {
        found.add(Target::ResourceClaim, claim.get("resourceClaimName"));
        // A claim from a template has the name that the status records, once it exists.
        let statuses = items(pod, "/status/resourceClaimStatuses");
        for status in statuses.filter(|status| status.get("name") == claim.get("name")) {
            found.add(Target::ResourceClaim, status.get("resourceClaimName"));
        }
    }
    found.add(Target::ResourceClaim, pod.pointer("/status/extendedResourceClaimStatus/resourceClaimName"));
    found.0
}

/// Returns the secrets that a persistent volume uses on a node, with their namespaces; that of the claim where the
/// reference has none.
pub fn of_volume(volume: &Value) -> Vec<(String, String)> {
    let Some(spec) = volume.get("spec") else { return Vec::new() };
    let text =
        |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let claim_namespace = spec.get("claimRef").map(|claim| text(claim, "namespace")).unwrap_or_default();
    let mut secrets = Vec::new();
    let mut add = |namespace: String, name: String, optional: bool| {
        if name.is_empty() {
            return;
        }
        let namespace = if namespace.is_empty() && optional { claim_namespace.clone() } else { namespace };
        secrets.push((namespace, name));
    };
    if let Some(file) = spec.get("azureFile") {
        add(text(file, "secretNamespace"), text(file, "secretName"), true);
    }
    for path in VOLUME_SECRETS {
        if let Some(secret) = spec.pointer(path) {
            // These have always named the namespace.
            let explicit =
                path.starts_with("/cinder") || path.starts_with("/csi") || path.starts_with("/storageos");
            add(text(secret, "namespace"), text(secret, "name"), !explicit);
        }
    }
    secrets
}

#[derive(Default)]
struct References(Vec<(Target, String)>);

impl References {
    fn add(&mut self, target: Target, name: Option<&Value>) {
        let Some(name) = name.and_then(Value::as_str).filter(|name| !name.is_empty()) else { return };
        let reference = (target, name.to_owned());
        if !self.0.contains(&reference) {
            self.0.push(reference);
        }
    }

    fn add_container(&mut self, container: &Value) {
        for from in items(container, "/envFrom") {
            self.add(Target::Secret, from.pointer("/secretRef/name"));
            self.add(Target::ConfigMap, from.pointer("/configMapRef/name"));
        }
        for variable in items(container, "/env") {
            self.add(Target::Secret, variable.pointer("/valueFrom/secretKeyRef/name"));
            self.add(Target::ConfigMap, variable.pointer("/valueFrom/configMapKeyRef/name"));
        }
    }

    fn add_volume(&mut self, volume: &Value, pod_name: &str) {
        for path in POD_VOLUME_SECRETS {
            self.add(Target::Secret, volume.pointer(path));
        }
        self.add(Target::ConfigMap, volume.pointer("/configMap/name"));
        for source in items(volume, "/projected/sources") {
            self.add(Target::Secret, source.pointer("/secret/name"));
            self.add(Target::ConfigMap, source.pointer("/configMap/name"));
        }
        self.add(Target::PersistentVolumeClaim, volume.pointer("/persistentVolumeClaim/claimName"));
        if volume.get("ephemeral").is_some_and(Value::is_object) {
            let name = volume.get("name").and_then(Value::as_str).unwrap_or_default();
            self.add(Target::PersistentVolumeClaim, Some(&format!("{pod_name}-{name}").into()));
        }
    }
}

fn items<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten()
}
