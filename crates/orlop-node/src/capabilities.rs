//! Linux capabilities of containers: those of container runtimes, with what a security context adds and drops.

use k8s_openapi::api::core::v1::{Capabilities, Container};
use rustix::thread::CapabilitySet;

/// Capabilities of a container that asks for none, as of containerd and CRI-O.
const DEFAULT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::AUDIT_WRITE);
/// Name of all capabilities.
const ALL: &str = "ALL";
const PREFIX: &str = "CAP_";

/// Returns true if a container is privileged.
pub(crate) fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|context| context.privileged) == Some(true)
}

/// Returns the capabilities that a container keeps; `None` if it keeps all. `Err` is the name of one that Linux does not
/// have.
pub(crate) fn of(container: &Container) -> Result<Option<CapabilitySet>, String> {
    if is_privileged(container) {
        return Ok(None);
    }
    let context = container.security_context.as_ref();
    let Some(wanted) = context.and_then(|context| context.capabilities.as_ref()) else {
        return Ok(Some(DEFAULT));
    };
    let Capabilities { add, drop } = wanted;
    let (add, drop) = (named(add.as_deref())?, named(drop.as_deref())?);
    // `ALL` is dropped before others are added, and added before others are dropped.
    let kept = if add.1 { CapabilitySet::all() } else { DEFAULT };
    let kept = if drop.1 { CapabilitySet::empty() } else { kept };
    Ok(Some(kept.union(add.0).difference(drop.0)))
}

/// Returns the named capabilities, and true if all are meant.
fn named(names: Option<&[String]>) -> Result<(CapabilitySet, bool), String> {
    let mut found = (CapabilitySet::empty(), false);
    for name in names.unwrap_or_default() {
        let upper = name.to_ascii_uppercase();
        if upper == ALL {
            found.1 = true;
            continue;
        }
        let short = upper.strip_prefix(PREFIX).unwrap_or(&upper);
        found.0 |=
            CapabilitySet::from_name(short).ok_or_else(|| format!("unknown capability \"CAP_{short}\""))?;
    }
    Ok(found)
}

/// Gives up all capabilities but those of `kept`, for this process and all that it executes.
pub(crate) fn restrict_to(kept: CapabilitySet) -> rustix::io::Result<()> {
    for capability in CapabilitySet::all().difference(kept).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // Newer than the kernel.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(context: serde_json::Value) -> Result<Option<CapabilitySet>, String> {
        of(&serde_json::from_value(json!({"name": "a", "securityContext": context})).unwrap())
    }

    #[test]
    fn capabilities_are_added_to_the_default_and_dropped_from_it() {
        assert_eq!(kept(json!({})), Ok(Some(DEFAULT)));
        assert_eq!(kept(json!({"privileged": true})), Ok(None));
        assert_eq!(kept(json!({"capabilities": {"drop": ["ALL"]}})), Ok(Some(CapabilitySet::empty())));
        let one = json!({"capabilities": {"drop": ["all"], "add": ["NET_BIND_SERVICE"]}});
        assert_eq!(kept(one), Ok(Some(CapabilitySet::NET_BIND_SERVICE)));
        let added = kept(json!({"capabilities": {"add": ["CAP_SYS_TIME"], "drop": ["CHOWN"]}}));
        let expected = DEFAULT.union(CapabilitySet::SYS_TIME).difference(CapabilitySet::CHOWN);
        assert_eq!(added, Ok(Some(expected)));
        let unknown = kept(json!({"capabilities": {"add": ["FLY"]}}));
        assert_eq!(unknown, Err("unknown capability \"CAP_FLY\"".to_owned()));
    }
}
