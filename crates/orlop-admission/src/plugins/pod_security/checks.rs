//! Checks of the Pod Security Standards, each in the versions that it has had.

use std::collections::BTreeSet;

use orlop_kinds::accessors::{flag, integer, list, map, present, text, texts};
use serde_json::Value;

use super::policy::{Level, LevelVersion, Version};
use crate::plugins::pods::Containers;

/// Metadata and spec of a pod or of a pod template.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'a> {
    pub(super) metadata: &'a Value,
    pub(super) spec: &'a Value,
}

/// A violation: the reason, and the details of this pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    reason: String,
    detail: String,
}

/// Returns the reasons of violations: `host namespaces, privileged`.
pub(super) fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns the reasons with their details: `privileged (container "c" must not …)`.
pub(super) fn details(violations: &[Violation]) -> String {
    let each = violations.iter().map(|Violation { reason, detail }| match detail.as_str() {
        "" => reason.clone(),
        detail => format!("{reason} ({detail})"),
    });
    each.collect::<Vec<_>>().join(", ")
}

type CheckPod = fn(&Pod<'_>) -> Option<Violation>;

struct Check {
    id: &'static str,
    level: Level,
    /// First minor versions and the checks from then on, in order.
    versions: &'static [(u32, CheckPod)],
    /// Baseline check that is not run beside this one.
    overrides: &'static str,
}

/// All checks, in the order of their violations: those of baseline first, each by id.
const CHECKS: &[Check] = &[
    baseline("appArmorProfile", &[(0, app_armor)]),
    baseline("capabilities_baseline", &[(0, capabilities_baseline)]),
    baseline("hostNamespaces", &[(0, host_namespaces)]),
    baseline("hostPathVolumes", &[(0, host_path_volumes)]),
    baseline("hostPorts", &[(0, host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, probe_hosts)]),
    baseline("privileged", &[(0, privileged)]),
    baseline("procMount", &[(0, proc_mount), (35, |pod| unless(in_user_namespace(pod), || proc_mount(pod)))]),
    baseline(
        "seLinuxOptions",
        &[(0, |pod| selinux(pod, &SELINUX_TYPES[..4])), (31, |pod| selinux(pod, SELINUX_TYPES))],
    ),
    baseline("seccompProfile_baseline", &[(0, seccomp_annotations), (19, seccomp_baseline)]),
    baseline(
        "sysctls",
        &[
            (0, |pod| sysctls(pod, &SYSCTLS[..5])),
            (27, |pod| sysctls(pod, &SYSCTLS[..6])),
            (29, |pod| sysctls(pod, &SYSCTLS[..10])),
            (32, |pod| sysctls(pod, &SYSCTLS[..12])),
            (37, |pod| sysctls(pod, SYSCTLS)),
        ],
    ),
    baseline("windowsHostProcess", &[(0, windows_host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[(8, privilege_escalation), (25, |pod| unless(is_windows(pod), || privilege_escalation(pod)))],
        "",
    ),
    restricted(
        "capabilities_restricted",
        &[
            (22, capabilities_restricted),
            (25, |pod| unless(is_windows(pod), || capabilities_restricted(pod))),
        ],
        "capabilities_baseline",
    ),
    restricted("procMount_restricted", &[(35, proc_mount)], "procMount"),
    restricted("restrictedVolumes", &[(0, restricted_volumes)], "hostPathVolumes"),
    restricted(
        "runAsNonRoot",
        &[(0, run_as_non_root), (35, |pod| unless(in_user_namespace(pod), || run_as_non_root(pod)))],
        "",
    ),
    restricted(
        "runAsUser",
        &[(23, run_as_user), (35, |pod| unless(in_user_namespace(pod), || run_as_user(pod)))],
        "",
    ),
    restricted(
        "seccompProfile_restricted",
        &[(19, seccomp_restricted), (25, |pod| unless(is_windows(pod), || seccomp_restricted(pod)))],
        "seccompProfile_baseline",
    ),
];

const fn baseline(id: &'static str, versions: &'static [(u32, CheckPod)]) -> Check {
    Check { id, level: Level::Baseline, versions, overrides: "" }
}

const fn restricted(
    id: &'static str,
    versions: &'static [(u32, CheckPod)],
    overrides: &'static str,
) -> Check {
    Check { id, level: Level::Restricted, versions, overrides }
}

/// Returns the violations of a level by a pod.
pub(super) fn evaluate(mode: LevelVersion, pod: &Pod<'_>) -> Vec<Violation> {
    let minor = match mode.version {
        Version::Minor(minor) => minor,
        Version::Latest => u32::MAX,
    };
    let of_version = |check: &Check| {
        let newest = check.versions.iter().rev().find(|(first, _)| *first <= minor);
        newest.map(|(_, run)| *run).filter(|_| check.level <= mode.level && mode.level != Level::Privileged)
    };
    let overridden: BTreeSet<&str> = CHECKS
        .iter()
        .filter(|check| !check.overrides.is_empty() && of_version(check).is_some())
        .map(|check| check.overrides)
        .collect();
    let run = CHECKS.iter().filter(|check| !overridden.contains(check.id)).filter_map(of_version);
    run.filter_map(|check| check(pod)).collect()
}

// === Parts of pods and of messages ===

fn containers<'a>(pod: &Pod<'a>) -> impl Iterator<Item = &'a Value> {
    let spec = pod.spec;
    [Containers::Init, Containers::Main, Containers::Ephemeral]
        .into_iter()
        .flat_map(move |list| list.of(spec))
}

fn name(container: &Value) -> &str {
    text(container, "/name")
}

/// Returns the names of the containers that a check finds bad.
fn bad<'a>(pod: &Pod<'a>, is_bad: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
    containers(pod).filter(|container| is_bad(container)).map(name).collect()
}

fn quoted<T: AsRef<str>>(items: &[T]) -> String {
    items.iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

fn plural<'a>(singular: &'a str, plural: &'a str, count: usize) -> &'a str {
    if count == 1 { singular } else { plural }
}

/// `containers "a", "b"`
fn named(containers: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", containers.len()), quoted(containers))
}

/// `pod and container "a"`
fn setters(is_pod: bool, containers: &[&str]) -> Option<String> {
    match (is_pod, containers) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, containers) => Some(named(containers)),
        (true, containers) => Some(format!("pod and {}", named(containers))),
    }
}

fn violation(reason: &str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail: detail.into() })
}

fn unless(is_exempt: bool, check: impl FnOnce() -> Option<Violation>) -> Option<Violation> {
    if is_exempt { None } else { check() }
}

fn is_windows(pod: &Pod<'_>) -> bool {
    text(pod.spec, "/os/name") == "windows"
}

fn in_user_namespace(pod: &Pod<'_>) -> bool {
    present(pod.spec, "/hostUsers") == Some(&Value::Bool(false))
}

/// Returns the values at a pointer that are set and not allowed: whether the pod sets one, the containers that do, and
/// the values.
fn disallowed<'a>(
    pod: &Pod<'a>,
    pointer: &str,
    is_allowed: impl Fn(&str) -> bool,
) -> (bool, Vec<&'a str>, BTreeSet<&'a str>) {
    let value = |holder: &'a Value| {
        present(holder, "/securityContext")?;
        let found = present(holder, &format!("/securityContext{pointer}"))?.as_str()?;
        (!is_allowed(found)).then_some(found)
    };
    let own = value(pod.spec);
    let containers: Vec<(&str, &str)> =
        containers(pod).filter_map(|container| Some((name(container), value(container)?))).collect();
    let values = own.into_iter().chain(containers.iter().map(|(_, value)| *value)).collect();
    (own.is_some(), containers.into_iter().map(|(name, _)| name).collect(), values)
}

fn sorted<'a>(values: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    values.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

// === Baseline ===

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
    let is_allowed = |kind: &str| matches!(kind, "RuntimeDefault" | "Localhost");
    let (is_pod, containers, values) = disallowed(pod, "/appArmorProfile/type", is_allowed);
    let annotations: Vec<String> = map(pod.metadata, "/annotations")
        .iter()
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(key, value)| {
            let is_allowed =
                value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/");
            key.starts_with(ANNOTATION) && !is_allowed
        })
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    let mut who: Vec<String> = setters(is_pod, &containers).into_iter().collect();
    let mut values: Vec<String> = values.into_iter().map(str::to_owned).collect();
    if !annotations.is_empty() {
        who.push(plural("annotation", "annotations", annotations.len()).to_owned());
        values.extend(annotations);
    }
    if who.is_empty() {
        return None;
    }
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    violation(
        reason,
        format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(&values)),
    )
}

const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

fn added(container: &Value) -> Vec<&str> {
    texts(container, "/securityContext/capabilities/add")
}

/// Returns the containers that add other capabilities, and these.
fn adding_others<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, Vec<&'a str>) {
    let is_other = |capability: &&str| !allowed.contains(capability);
    let bad = bad(pod, |container| added(container).iter().any(is_other));
    (bad, sorted(containers(pod).flat_map(added).filter(is_other)))
}

fn capabilities_baseline(pod: &Pod<'_>) -> Option<Violation> {
    let (bad, others) = adding_others(pod, DEFAULT_CAPABILITIES);
    if bad.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not include {} in securityContext.capabilities.add", named(&bad), quoted(&others));
    violation("non-default capabilities", detail)
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let used: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|field| flag(pod.spec, &format!("/{field}")))
        .map(|field| format!("{field}=true"))
        .collect();
    if used.is_empty() { None } else { violation("host namespaces", used.join(", ")) }
}

fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = list(pod.spec, "/volumes").iter().filter(|volume| present(volume, "/hostPath").is_some());
    let volumes: Vec<&str> = volumes.map(name).collect();
    if volumes.is_empty() {
        return None;
    }
    let detail = format!("{} {}", plural("volume", "volumes", volumes.len()), quoted(&volumes));
    violation("hostPath volumes", detail)
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let ports = |container: &Value| -> Vec<i64> {
        list(container, "/ports")
            .iter()
            .map(|port| integer(port, "/hostPort"))
            .filter(|port| *port != 0)
            .collect()
    };
    let bad = bad(pod, |container| !ports(container).is_empty());
    if bad.is_empty() {
        return None;
    }
    // By text, as Kubernetes sorts them.
    let ports: BTreeSet<String> = containers(pod).flat_map(ports).map(|port| port.to_string()).collect();
    let ports: Vec<String> = ports.into_iter().collect();
    let (uses, kind) = (plural("uses", "use", bad.len()), plural("hostPort", "hostPorts", ports.len()));
    violation("hostPort", format!("{} {uses} {kind} {}", named(&bad), ports.join(", ")))
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    fn hosts(container: &Value) -> Vec<&str> {
        let handlers = [
            "/livenessProbe",
            "/readinessProbe",
            "/startupProbe",
            "/lifecycle/postStart",
            "/lifecycle/preStop",
        ];
        let each = handlers.iter().flat_map(|handler| {
            ["httpGet", "tcpSocket"].map(|kind| text(container, &format!("{handler}/{kind}/host")))
        });
        each.filter(|host| !host.is_empty()).collect()
    }
    let bad = sorted(bad(pod, |container| !hosts(container).is_empty()));
    if bad.is_empty() {
        return None;
    }
    let hosts = sorted(containers(pod).flat_map(hosts));
    let kind = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    let uses = plural("uses", "use", bad.len());
    violation("probe or lifecycle host", format!("{} {uses} {kind} {}", named(&bad), quoted(&hosts)))
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let bad = bad(pod, |container| flag(container, "/securityContext/privileged"));
    if bad.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", named(&bad)))
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let kind = |container: &'_ Value| text(container, "/securityContext/procMount").to_owned();
    let is_bad = |kind: &str| !matches!(kind, "" | "Default");
    let bad = bad(pod, |container| is_bad(&kind(container)));
    if bad.is_empty() {
        return None;
    }
    let kinds: BTreeSet<String> = containers(pod).map(kind).filter(|kind| is_bad(kind)).collect();
    let kinds: Vec<String> = kinds.into_iter().collect();
    violation(
        "procMount",
        format!("{} must not set securityContext.procMount to {}", named(&bad), quoted(&kinds)),
    )
}

const SELINUX_TYPES: &[&str] =
    &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

fn selinux(pod: &Pod<'_>, types: &[&str]) -> Option<Violation> {
    let options = |holder| present(holder, "/securityContext/seLinuxOptions");
    let is_set = |options: &Value, field: &str| !text(options, field).is_empty();
    let is_bad_type = |options: &Value| !types.contains(&text(options, "/type"));
    let is_bad = |holder| {
        options(holder).is_some_and(|options| {
            is_bad_type(options) || is_set(options, "/user") || is_set(options, "/role")
        })
    };
    let who = setters(is_bad(pod.spec), &bad(pod, is_bad))?;
    let all = || std::iter::once(pod.spec).chain(containers(pod)).filter_map(options);
    let bad_types =
        sorted(all().filter(|options| is_bad_type(options)).map(|options| text(options, "/type")));
    let mut parts = Vec::new();
    if !bad_types.is_empty() {
        parts.push(format!("{} {}", plural("type", "types", bad_types.len()), quoted(&bad_types)));
    }
    for field in ["user", "role"] {
        if all().any(|options| is_set(options, &format!("/{field}"))) {
            parts.push(format!("{field} may not be set"));
        }
    }
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", parts.join("; "));
    violation("seLinuxOptions", detail)
}

fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let keys = containers(pod)
        .map(|container| format!("container.seccomp.security.alpha.kubernetes.io/{}", name(container)))
        .chain(["seccomp.security.alpha.kubernetes.io/pod".to_owned()]);
    let annotations = map(pod.metadata, "/annotations");
    let forbidden: BTreeSet<String> = keys
        .filter_map(|key| {
            let value = annotations.get(&key)?.as_str()?;
            let is_allowed =
                matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
            (!is_allowed).then(|| format!("{key}={value:?}"))
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let forbidden: Vec<String> = forbidden.into_iter().collect();
    let kind = plural("annotation", "annotations", forbidden.len());
    violation("seccompProfile", format!("forbidden {kind} {}", forbidden.join(", ")))
}

fn is_allowed_seccomp(kind: &str) -> bool {
    matches!(kind, "Localhost" | "RuntimeDefault")
}

fn seccomp_baseline(pod: &Pod<'_>) -> Option<Violation> {
    let (is_pod, containers, values) = disallowed(pod, "/seccompProfile/type", is_allowed_seccomp);
    let who = setters(is_pod, &containers)?;
    let values: Vec<&str> = values.into_iter().collect();
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&values));
    violation("seccompProfile", detail)
}

const SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    // Since 1.27.
    "net.ipv4.ip_local_reserved_ports",
    // Since 1.29.
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    // Since 1.32.
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    // Since 1.37.
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
];

fn sysctls(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let names = list(pod.spec, "/securityContext/sysctls").iter().map(name);
    let forbidden: Vec<&str> = names.filter(|name| !allowed.contains(name)).collect();
    if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |holder: &Value| flag(holder, "/securityContext/windowsOptions/hostProcess");
    let who = setters(is_bad(pod.spec), &bad(pod, is_bad))?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

// === Restricted ===

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let pointer = "/securityContext/allowPrivilegeEscalation";
    let bad = bad(pod, |container| present(container, pointer) != Some(&Value::Bool(false)));
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&bad));
    violation("allowPrivilegeEscalation != false", detail)
}

fn capabilities_restricted(pod: &Pod<'_>) -> Option<Violation> {
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

const ALLOWED_VOLUMES: &[&str] = &[
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
const OTHER_VOLUMES: &[&str] = &[
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

fn restricted_volumes(pod: &Pod<'_>) -> Option<Violation> {
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

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
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

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root = |holder| present(holder, "/securityContext/runAsUser").and_then(Value::as_i64) == Some(0);
    let who = setters(is_root(pod.spec), &bad(pod, is_root))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

fn seccomp_restricted(pod: &Pod<'_>) -> Option<Violation> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(level: &str, version: &str, spec: Value) -> String {
        let mode =
            LevelVersion { level: Level::parse(level).unwrap(), version: Version::parse(version).unwrap() };
        let metadata = spec.get("metadata").cloned().unwrap_or_default();
        details(&evaluate(mode, &Pod { metadata: &metadata, spec: &spec }))
    }

    /// Returns the violations of a container with a security context.
    fn context(level: &str, version: &str, context: Value) -> String {
        check(level, version, json!({"containers": [{"name": "c", "securityContext": context}]}))
    }

    fn strict() -> Value {
        json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"}})
    }

    #[test]
    fn plain_pod_is_baseline_and_not_restricted() {
        let plain = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        assert_eq!(check("baseline", "latest", plain.clone()), "");
        assert_eq!(
            check("restricted", "latest", plain),
            "allowPrivilegeEscalation != false (containers \"a\", \"b\" must set \
             securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers \"a\", \"b\" must set \
             securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or containers \"a\", \"b\" must set \
             securityContext.runAsNonRoot=true), seccompProfile (pod or containers \"a\", \"b\" must set \
             securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
        );
        assert_eq!(context("restricted", "latest", strict()), "");
    }

    #[test]
    fn baseline_violations_are_named() {
        assert_eq!(
            check("baseline", "latest", json!({"hostNetwork": true, "hostIPC": true, "containers": []})),
            "host namespaces (hostNetwork=true, hostIPC=true)"
        );
        assert_eq!(
            check("baseline", "latest", json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]})),
            "hostPath volumes (volume \"v\")"
        );
        let ports = json!({"containers": [{"name": "a", "ports": [{"hostPort": 20}, {"hostPort": 10}]},
            {"name": "b", "ports": [{"hostPort": 10}]}]});
        assert_eq!(
            check("baseline", "latest", ports),
            "hostPort (containers \"a\", \"b\" use hostPorts 10, 20)"
        );
        assert_eq!(
            context(
                "baseline",
                "latest",
                json!({"privileged": true, "capabilities": {"add": ["NET_RAW", "CHOWN"]}})
            ),
            "non-default capabilities (container \"c\" must not include \"NET_RAW\" in securityContext.capabilities.add), \
             privileged (container \"c\" must not set securityContext.privileged=true)"
        );
        assert_eq!(
            context("baseline", "latest", json!({"procMount": "Unmasked"})),
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")"
        );
        assert_eq!(
            context("baseline", "latest", json!({"windowsOptions": {"hostProcess": true}})),
            "hostProcess (container \"c\" must not set securityContext.windowsOptions.hostProcess=true)"
        );
        assert_eq!(
            context("baseline", "latest", json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile (container \"c\" must not set securityContext.seccompProfile.type to \"Unconfined\")"
        );
        let armor = json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}},
            "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}}});
        assert_eq!(
            check("baseline", "latest", armor),
            "forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to \"Unconfined\", \
             \"container.apparmor.security.beta.kubernetes.io/c=\"unconfined\"\")"
        );
        assert_eq!(
            check(
                "baseline",
                "latest",
                json!({"securityContext": {"seLinuxOptions": {"type": "t", "user": "u"}}})
            ),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"t\"; user may not be set)"
        );
    }

    #[test]
    fn checks_depend_on_the_version() {
        let sysctl = |name: &str| json!({"securityContext": {"sysctls": [{"name": name}]}});
        assert_eq!(
            check("baseline", "v1.26", sysctl("net.ipv4.ip_local_reserved_ports")),
            "forbidden sysctls (net.ipv4.ip_local_reserved_ports)"
        );
        assert_eq!(check("baseline", "v1.27", sysctl("net.ipv4.ip_local_reserved_ports")), "");
        assert_eq!(check("baseline", "v1.32", sysctl("net.ipv4.tcp_wmem")), "");
        assert_ne!(check("baseline", "v1.36", sysctl("net.ipv4.tcp_notsent_lowat")), "");
        let engine = json!({"seLinuxOptions": {"type": "container_engine_t"}});
        assert_ne!(context("baseline", "v1.30", engine.clone()), "");
        assert_eq!(context("baseline", "v1.31", engine), "");
        let probe = json!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "h"}}}]});
        assert_eq!(check("baseline", "v1.33", probe.clone()), "");
        assert_eq!(
            check("baseline", "v1.34", probe),
            "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"h\")"
        );
        let mut root = strict();
        root["runAsUser"] = 0.into();
        assert_eq!(context("restricted", "v1.22", root.clone()), "");
        assert_eq!(
            context("restricted", "v1.23", root),
            "runAsUser=0 (container \"c\" must not set runAsUser=0)"
        );
        let user_namespace = json!({"hostUsers": false, "containers": [{"name": "c", "securityContext":
            {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "Localhost"}}}]});
        assert_ne!(check("restricted", "v1.34", user_namespace.clone()), "");
        assert_eq!(check("restricted", "v1.35", user_namespace), "");
        assert_ne!(
            context("restricted", "v1.7", json!({"runAsNonRoot": true, "capabilities": {"add": ["X"]}})),
            ""
        );
        assert_eq!(context("restricted", "v1.7", json!({"runAsNonRoot": true})), "");
    }

    #[test]
    fn windows_pods_need_no_linux_settings() {
        let windows = json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true},
            "containers": [{"name": "c"}]});
        assert_eq!(check("restricted", "v1.25", windows.clone()), "");
        assert_ne!(check("restricted", "v1.24", windows), "");
    }

    #[test]
    fn restricted_volumes_replace_the_baseline_check() {
        let volumes = json!({"volumes": [{"name": "a", "hostPath": {}}, {"name": "b", "nfs": {}}, {"name": "c", "emptyDir": {}}]});
        assert_eq!(
            check("restricted", "latest", volumes),
            "restricted volume types (volumes \"a\", \"b\" use restricted volume types \"hostPath\", \"nfs\")"
        );
    }
}
