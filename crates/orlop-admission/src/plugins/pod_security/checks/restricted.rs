//! Checks of the level `restricted`.

use orlop_kinds::accessors::{list, present, texts};
use serde_json::Value;

use super::baseline::{adding_others, seccomp_baseline};
use super::violation::{Pod, Violation, bad, name, named, plural, quoted, setters, sorted, violation};

pub(super) fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let pointer = "/securityContext/allowPrivilegeEscalation";
    let bad = bad(pod, |container| present(container, pointer) != Some(&Value::Bool(false)));
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&bad));
    violation("allowPrivilegeEscalation != false", detail)
}

pub(super) fn capabilities_restricted(pod: &Pod<'_>) -> Option<Violation> {
    let keeping =
        bad(pod, |container| !texts(container, "/securityContext/capabilities/drop").contains(&"ALL"));
    let (adding, others) = adding_others(pod, &["NET_BIND_SERVICE"]);
    let mut parts = Vec::new();
    if !keeping.is_empty() {
        parts.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named(&keeping)));
    }
    if !adding.is_empty() {
        let others = quoted(&others);
        parts.push(format!(
            "{} must not include {others} in securityContext.capabilities.add",
            named(&adding)
        ));
    }
    if parts.is_empty() { None } else { violation("unrestricted capabilities", parts.join("; ")) }
}

pub(super) const ALLOWED_VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
pub(super) const OTHER_VOLUMES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn restricted_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let has = |volume: &Value, kind: &str| volume.get(kind).is_some_and(|source| !source.is_null());
    let bad: Vec<&Value> = list(pod.spec, "/volumes")
        .iter()
        .filter(|volume| !ALLOWED_VOLUMES.iter().any(|kind| has(volume, kind)))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let kind =
        |volume: &&Value| OTHER_VOLUMES.iter().copied().find(|kind| has(volume, kind)).unwrap_or("unknown");
    let (names, kinds): (Vec<&str>, Vec<&str>) =
        (bad.iter().map(|volume| name(volume)).collect(), sorted(bad.iter().map(kind)));
    let (volumes, uses) = (plural("volume", "volumes", names.len()), plural("uses", "use", names.len()));
    let what = plural("restricted volume type", "restricted volume types", kinds.len());
    violation(
        "restricted volume types",
        format!("{volumes} {} {uses} {what} {}", quoted(&names), quoted(&kinds)),
    )
}

pub(super) fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let value = |holder| present(holder, "/securityContext/runAsNonRoot").and_then(Value::as_bool);
    let of_pod = value(pod.spec);
    let explicit = bad(pod, |container| value(container) == Some(false));
    if let Some(who) = setters(of_pod == Some(false), &explicit) {
        return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let implicit = bad(pod, |container| value(container).is_none() && of_pod != Some(true));
    if implicit.is_empty() {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", named(&implicit)))
}

pub(super) fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root = |holder| present(holder, "/securityContext/runAsUser").and_then(Value::as_i64) == Some(0);
    let who = setters(is_root(pod.spec), &bad(pod, is_root))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

pub(super) fn seccomp_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if let Some(violation) = seccomp_baseline(pod) {
        return Some(violation);
    }
    let has_profile = |holder| present(holder, "/securityContext/seccompProfile").is_some();
    let implicit = bad(pod, |container| !has_profile(container) && !has_profile(pod.spec));
    if implicit.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        named(&implicit)
    );
    violation("seccompProfile", detail)
}
