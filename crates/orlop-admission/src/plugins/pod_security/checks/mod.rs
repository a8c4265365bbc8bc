//! Checks of the Pod Security Standards, each in the versions that it has had.

mod baseline;
mod restricted;
mod violation;

use std::collections::BTreeSet;

pub(super) use self::violation::{Pod, Violation, details, reasons};
use self::violation::{in_user_namespace, is_windows, unless};
use super::policy::{Level, LevelVersion, Version};

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
    baseline("appArmorProfile", &[(0, baseline::app_armor)]),
    baseline("capabilities_baseline", &[(0, baseline::capabilities_baseline)]),
    baseline("hostNamespaces", &[(0, baseline::host_namespaces)]),
    baseline("hostPathVolumes", &[(0, baseline::host_path_volumes)]),
    baseline("hostPorts", &[(0, baseline::host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, baseline::probe_hosts)]),
    baseline("privileged", &[(0, baseline::privileged)]),
    baseline(
        "procMount",
        &[
            (0, baseline::proc_mount),
            (35, |pod| unless(in_user_namespace(pod), || baseline::proc_mount(pod))),
        ],
    ),
    baseline(
        "seLinuxOptions",
        &[
            (0, |pod| baseline::selinux(pod, &baseline::SELINUX_TYPES[..4])),
            (31, |pod| baseline::selinux(pod, baseline::SELINUX_TYPES)),
        ],
    ),
    baseline(
        "seccompProfile_baseline",
        &[(0, baseline::seccomp_annotations), (19, baseline::seccomp_baseline)],
    ),
    baseline(
        "sysctls",
        &[
            (0, |pod| baseline::sysctls(pod, &baseline::SYSCTLS[..5])),
            (27, |pod| baseline::sysctls(pod, &baseline::SYSCTLS[..6])),
            (29, |pod| baseline::sysctls(pod, &baseline::SYSCTLS[..10])),
            (32, |pod| baseline::sysctls(pod, &baseline::SYSCTLS[..12])),
            (37, |pod| baseline::sysctls(pod, baseline::SYSCTLS)),
        ],
    ),
    baseline("windowsHostProcess", &[(0, baseline::windows_host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[
            (8, restricted::privilege_escalation),
            (25, |pod| unless(is_windows(pod), || restricted::privilege_escalation(pod))),
        ],
        "",
    ),
    restricted(
        "capabilities_restricted",
        &[
            (22, restricted::capabilities_restricted),
            (25, |pod| unless(is_windows(pod), || restricted::capabilities_restricted(pod))),
        ],
        "capabilities_baseline",
    ),
    restricted("procMount_restricted", &[(35, baseline::proc_mount)], "procMount"),
    restricted("restrictedVolumes", &[(0, restricted::restricted_volumes)], "hostPathVolumes"),
    restricted(
        "runAsNonRoot",
        &[
            (0, restricted::run_as_non_root),
            (35, |pod| unless(in_user_namespace(pod), || restricted::run_as_non_root(pod))),
        ],
        "",
    ),
    restricted(
        "runAsUser",
        &[
            (23, restricted::run_as_user),
            (35, |pod| unless(in_user_namespace(pod), || restricted::run_as_user(pod))),
        ],
        "",
    ),
    restricted(
        "seccompProfile_restricted",
        &[
            (19, restricted::seccomp_restricted),
            (25, |pod| unless(is_windows(pod), || restricted::seccomp_restricted(pod))),
        ],
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
