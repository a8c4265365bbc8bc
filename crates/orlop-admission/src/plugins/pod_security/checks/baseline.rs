//! Checks of the level `baseline`.

use std::collections::BTreeSet;

use orlop_kinds::accessors::{flag, integer, list, map, present, text, texts};
use serde_json::Value;

use super::violation::{
    Pod, Violation, bad, containers, disallowed, name, named, plural, quoted, setters, sorted, violation,
};

pub(super) fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) const DEFAULT_CAPABILITIES: &[&str] = &[
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

pub(super) fn added(container: &Value) -> Vec<&str> {
    texts(container, "/securityContext/capabilities/add")
}

/// Returns the containers that add other capabilities, and these.
pub(super) fn adding_others<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, Vec<&'a str>) {
    let is_other = |capability: &&str| !allowed.contains(capability);
    let bad = bad(pod, |container| added(container).iter().any(is_other));
    (bad, sorted(containers(pod).flat_map(added).filter(is_other)))
}

pub(super) fn capabilities_baseline(pod: &Pod<'_>) -> Option<Violation> {
    let (bad, others) = adding_others(pod, DEFAULT_CAPABILITIES);
    if bad.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not include {} in securityContext.capabilities.add", named(&bad), quoted(&others));
    violation("non-default capabilities", detail)
}

pub(super) fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let used: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|field| flag(pod.spec, &format!("/{field}")))
        .map(|field| format!("{field}=true"))
        .collect();
    if used.is_empty() { None } else { violation("host namespaces", used.join(", ")) }
}

pub(super) fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = list(pod.spec, "/volumes").iter().filter(|volume| present(volume, "/hostPath").is_some());
    let volumes: Vec<&str> = volumes.map(name).collect();
    if volumes.is_empty() {
        return None;
    }
    let detail = format!("{} {}", plural("volume", "volumes", volumes.len()), quoted(&volumes));
    violation("hostPath volumes", detail)
}

pub(super) fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let bad = bad(pod, |container| flag(container, "/securityContext/privileged"));
    if bad.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", named(&bad)))
}

pub(super) fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) const SELINUX_TYPES: &[&str] =
    &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

pub(super) fn selinux(pod: &Pod<'_>, types: &[&str]) -> Option<Violation> {
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

pub(super) fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) fn is_allowed_seccomp(kind: &str) -> bool {
    matches!(kind, "Localhost" | "RuntimeDefault")
}

pub(super) fn seccomp_baseline(pod: &Pod<'_>) -> Option<Violation> {
    let (is_pod, containers, values) = disallowed(pod, "/seccompProfile/type", is_allowed_seccomp);
    let who = setters(is_pod, &containers)?;
    let values: Vec<&str> = values.into_iter().collect();
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&values));
    violation("seccompProfile", detail)
}

pub(super) const SYSCTLS: &[&str] = &[
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

pub(super) fn sysctls(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let names = list(pod.spec, "/securityContext/sysctls").iter().map(name);
    let forbidden: Vec<&str> = names.filter(|name| !allowed.contains(name)).collect();
    if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
}

pub(super) fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |holder: &Value| flag(holder, "/securityContext/windowsOptions/hostProcess");
    let who = setters(is_bad(pod.spec), &bad(pod, is_bad))?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}
