//! A pod that is checked, and what its violations say.

use std::collections::BTreeSet;

use orlop_kinds::accessors::{present, text};
use serde_json::Value;

use crate::plugins::pods::Containers;

/// Metadata and spec of a pod or of a pod template.
#[derive(Clone, Copy, Debug)]
pub(in crate::plugins::pod_security) struct Pod<'a> {
    pub(in crate::plugins::pod_security) metadata: &'a Value,
    pub(in crate::plugins::pod_security) spec: &'a Value,
}

/// A violation: the reason, and the details of this pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::plugins::pod_security) struct Violation {
    reason: String,
    detail: String,
}

/// Returns the reasons of violations: `host namespaces, privileged`.
pub(in crate::plugins::pod_security) fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns the reasons with their details: `privileged (container "c" must not …)`.
pub(in crate::plugins::pod_security) fn details(violations: &[Violation]) -> String {
    let each = violations.iter().map(|Violation { reason, detail }| match detail.as_str() {
        "" => reason.clone(),
        detail => format!("{reason} ({detail})"),
    });
    each.collect::<Vec<_>>().join(", ")
}

pub(super) fn containers<'a>(pod: &Pod<'a>) -> impl Iterator<Item = &'a Value> {
    let spec = pod.spec;
    [Containers::Init, Containers::Main, Containers::Ephemeral]
        .into_iter()
        .flat_map(move |list| list.of(spec))
}

pub(super) fn name(container: &Value) -> &str {
    text(container, "/name")
}

/// Returns the names of the containers that a check finds bad.
pub(super) fn bad<'a>(pod: &Pod<'a>, is_bad: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
    containers(pod).filter(|container| is_bad(container)).map(name).collect()
}

pub(super) fn quoted<T: AsRef<str>>(items: &[T]) -> String {
    items.iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

pub(super) fn plural<'a>(singular: &'a str, plural: &'a str, count: usize) -> &'a str {
    if count == 1 { singular } else { plural }
}

/// `containers "a", "b"`
pub(super) fn named(containers: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", containers.len()), quoted(containers))
}

/// `pod and container "a"`
pub(super) fn setters(is_pod: bool, containers: &[&str]) -> Option<String> {
    match (is_pod, containers) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, containers) => Some(named(containers)),
        (true, containers) => Some(format!("pod and {}", named(containers))),
    }
}

pub(super) fn violation(reason: &str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail: detail.into() })
}

pub(super) fn unless(is_exempt: bool, check: impl FnOnce() -> Option<Violation>) -> Option<Violation> {
    if is_exempt { None } else { check() }
}

pub(super) fn is_windows(pod: &Pod<'_>) -> bool {
    text(pod.spec, "/os/name") == "windows"
}

pub(super) fn in_user_namespace(pod: &Pod<'_>) -> bool {
    present(pod.spec, "/hostUsers") == Some(&Value::Bool(false))
}

/// Returns the values at a pointer that are set and not allowed: whether the pod sets one, the containers that do, and
/// the values.
pub(super) fn disallowed<'a>(
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

pub(super) fn sorted<'a>(values: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    values.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}
