//! Kernel parameters of pods: those that Kubernetes counts as safe, each of a namespace that a pod can have for itself.

use k8s_openapi::api::core::v1::Pod;

/// Names that any pod may set, as a kubelet allows them by default.
const SAFE: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// A parameter and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sysctl {
    /// Name with dots.
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Sysctl {
    /// Returns true if it is one of the network, and not of the memory that processes share.
    pub(crate) fn is_of_network(&self) -> bool {
        self.name.starts_with("net.")
    }

    /// Returns its file.
    pub(crate) fn path(&self) -> String {
        format!("/proc/sys/{}", self.name.replace('.', "/"))
    }
}

/// Returns the parameters that a pod sets.
pub(crate) fn of(pod: &Pod) -> Vec<Sysctl> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let list = context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten();
    list.map(|sysctl| Sysctl { name: with_dots(&sysctl.name), value: sysctl.value.clone() }).collect()
}

/// Returns a parameter of a pod that no pod of this node may set.
pub(crate) fn forbidden(pod: &Pod) -> Option<String> {
    of(pod).into_iter().map(|sysctl| sysctl.name).find(|name| !SAFE.contains(&name.as_str()))
}

/// Returns a name with dots between its parts. Written with slashes, dots are part of a name.
fn with_dots(name: &str) -> String {
    match name.find(['.', '/']).map(|first| &name[first..=first]) {
        Some("/") => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_safe_parameters_are_allowed_however_they_are_written() {
        let pod = |name: &str| -> Pod {
            let context = json!({"sysctls": [{"name": name, "value": "1"}]});
            serde_json::from_value(json!({"spec": {"containers": [], "securityContext": context}})).unwrap()
        };
        assert_eq!(forbidden(&pod("kernel/shm_rmid_forced")), None);
        assert_eq!(forbidden(&pod("net.ipv4.tcp_syncookies")), None);
        assert_eq!(forbidden(&pod("kernel.msgmax")), Some("kernel.msgmax".to_owned()));
        assert_eq!(
            forbidden(&pod("net/ipv4/conf/eth0.1/forwarding")).as_deref(),
            Some("net.ipv4.conf.eth0/1.forwarding")
        );
        assert_eq!(of(&pod("kernel/shm_rmid_forced"))[0].path(), "/proc/sys/kernel/shm_rmid_forced");
    }
}
