//! User, groups and names of a pod's containers.

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{
    capabilities,
    environment::ConfigError,
    images::{Image, User},
    runtime::Support,
    shim::config::Ids,
};

/// Longest host name.
const HOSTNAME_MAX: usize = 63;

/// Returns the ids of a container's processes, or the reason why this node cannot give them.
pub(super) fn ids(
    pod: &Pod,
    container: &Container,
    image: &Image,
    support: Support,
) -> Result<Ids, ConfigError> {
    let pod_context = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    let context = container.security_context.clone().unwrap_or_default();
    let own = rustix::process::geteuid();
    let id = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let asked = id(context.run_as_user.or(pod_context.run_as_user));
    // A node that is not root runs every image as itself.
    let of_image = image.user.filter(|_| own.is_root() && asked.is_none());
    let uid = asked.or(of_image.map(|User { uid, .. }| uid));
    let gid = id(context.run_as_group.or(pod_context.run_as_group)).or(of_image.map(|User { gid, .. }| gid));
    let non_root = context.run_as_non_root.or(pod_context.run_as_non_root) == Some(true);
    if non_root && uid.map_or(own.is_root(), |uid| uid == 0) {
        let why = if asked == Some(0) {
            "container's runAsUser breaks non-root policy"
        } else {
            "container has runAsNonRoot and image will run as root"
        };
        return Err(ConfigError(format!(
            "{why} (pod: \"{}_{}({})\", container: {})",
            pod.metadata.name.as_deref().unwrap_or_default(),
            pod.metadata.namespace.as_deref().unwrap_or_default(),
            pod.metadata.uid.as_deref().unwrap_or_default(),
            container.name
        )));
    }
    let mut groups: Vec<u32> = pod_context
        .supplemental_groups
        .iter()
        .flatten()
        .filter_map(|group| u32::try_from(*group).ok())
        .collect();
    groups.extend(id(pod_context.fs_group));
    let no_new_privileges = context.allow_privilege_escalation == Some(false);
    let kept = capabilities::of(container).map_err(ConfigError)?;
    let capabilities = kept.map(|kept| kept.bits());
    if own.is_root() {
        let gid = gid.or(uid.map(|_| 0));
        return Ok(Ids { uid, gid, groups, no_new_privileges, capabilities });
    }
    if uid.is_some_and(|uid| uid != own.as_raw()) {
        return Err(ConfigError(format!(
            "runAsUser {} is not supported by this node, which runs as {}",
            uid.unwrap_or_default(),
            own.as_raw()
        )));
    }
    if context.read_only_root_filesystem == Some(true) && !support.namespaces {
        return Err(ConfigError("readOnlyRootFilesystem is not supported by this node".to_owned()));
    }
    Ok(Ids { uid: None, gid: None, groups: Vec::new(), no_new_privileges, capabilities })
}

/// Returns the host name of a pod.
pub(super) fn hostname(pod: &Pod, cluster_domain: &str) -> String {
    let spec = pod.spec.clone().unwrap_or_default();
    if let Some(name) = spec.hostname_override.clone().filter(|name| !name.is_empty()) {
        return name;
    }
    let short = short_name(pod);
    match fqdn(pod, &short, cluster_domain) {
        Some(name) if spec.set_hostname_as_fqdn == Some(true) => name,
        _ => short,
    }
}

/// Returns the first label of a pod's host name.
pub(super) fn short_name(pod: &Pod) -> String {
    let named = pod.spec.as_ref().and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    let name = named.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    let cut: String = name.chars().take(HOSTNAME_MAX).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// Returns the full name of a pod in a subdomain.
pub(super) fn fqdn(pod: &Pod, short: &str, cluster_domain: &str) -> Option<String> {
    let subdomain = pod.spec.as_ref()?.subdomain.as_deref().filter(|name| !name.is_empty())?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Some(format!("{short}.{subdomain}.{namespace}.svc.{cluster_domain}"))
}
