//! Files of a pod besides its volumes: hosts, resolv.conf, termination messages.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::identity;
use crate::{context::Node, logs};

/// Name of the file that a container may leave a message in.
pub(super) const TERMINATION_LOG: &str = "termination-log";
const MESSAGE_BYTES_MAX: u64 = 4096;
/// Lines and bytes of a log that stand in for a message.
const FALLBACK_LINES: u64 = 80;
const FALLBACK_BYTES: usize = 2048;

/// Returns the termination message of a run.
pub(super) fn termination_message(
    _node: &Node,
    spec: &Container,
    run: &Path,
    log: &Path,
    exit_code: i32,
) -> String {
    let mut message = Vec::new();
    if let Ok(file) = fs::File::open(run.join(TERMINATION_LOG)) {
        let _ = file.take(MESSAGE_BYTES_MAX).read_to_end(&mut message);
    }
    let falls_back = spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    if message.is_empty() && falls_back && exit_code != 0 {
        let tail = logs::tail(log, FALLBACK_LINES).unwrap_or_default();
        let start = tail.len().saturating_sub(FALLBACK_BYTES);
        message = tail[start..].to_vec();
    }
    String::from_utf8_lossy(&message).into_owned()
}

/// Writes the hosts file of a pod.
pub(super) fn write_hosts(path: &Path, pod: &Pod, pod_ip: &str, cluster_domain: &str) -> io::Result<()> {
    let spec = pod.spec.clone().unwrap_or_default();
    let mut text = if spec.host_network == Some(true) {
        let own = fs::read_to_string("/etc/hosts").unwrap_or_default();
        format!("# Kubernetes-managed hosts file (host network).\n{own}")
    } else {
        let short = identity::short_name(pod);
        let names = match identity::fqdn(pod, &short, cluster_domain) {
            Some(full) => format!("{full}\t{short}"),
            None => short,
        };
        format!(
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::\tip6-localnet\nfe00::\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n\
             {pod_ip}\t{names}\n"
        )
    };
    let aliases = spec.host_aliases.unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.unwrap_or_default().join("\t")));
        }
    }
    fs::write(path, text)
}

/// Writes the resolv.conf of a pod. Returns false where the machine's own serves.
pub(super) fn write_resolv_conf(path: &Path, pod: &Pod, node: &Node) -> io::Result<bool> {
    let spec = pod.spec.clone().unwrap_or_default();
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let on_host = spec.host_network == Some(true) && policy == "ClusterFirst";
    let (mut servers, mut searches, mut options) = (Vec::new(), Vec::new(), Vec::new());
    match (policy, node.settings.cluster_dns) {
        ("ClusterFirst" | "ClusterFirstWithHostNet", Some(dns)) if !on_host => {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let domain = &node.settings.cluster_domain;
            servers.push(dns.to_string());
            searches.extend([format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()]);
            options.push("ndots:5".to_owned());
        }
        ("None", _) => {}
        _ if spec.dns_config.is_none() => return Ok(false),
        _ => {
            for line in fs::read_to_string("/etc/resolv.conf").unwrap_or_default().lines() {
                let mut words = line.split_whitespace();
                match words.next() {
                    Some("nameserver") => servers.extend(words.map(str::to_owned)),
                    Some("search") => searches.extend(words.map(str::to_owned)),
                    Some("options") => options.extend(words.map(str::to_owned)),
                    _ => {}
                }
            }
        }
    }
    if let Some(config) = spec.dns_config {
        servers.extend(config.nameservers.into_iter().flatten());
        searches.extend(config.searches.into_iter().flatten());
        for option in config.options.into_iter().flatten() {
            let name = option.name.unwrap_or_default();
            options.retain(|known| known.split(':').next() != Some(name.as_str()));
            options.push(option.value.map_or(name.clone(), |value| format!("{name}:{value}")));
        }
    }
    let mut text: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    if !searches.is_empty() {
        text.push_str(&format!("search {}\n", searches.join(" ")));
    }
    if !options.is_empty() {
        text.push_str(&format!("options {}\n", options.join(" ")));
    }
    fs::write(path, text)?;
    Ok(true)
}
