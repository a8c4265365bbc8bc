//! Parameters: the objects that a binding refers to.

use std::sync::Arc;

use orlop_api::group_version::{GroupVersionKind, GroupVersionResource};
use serde_json::Value;

use super::{definition::ParamRef, request::Interfaces, source::list};
use crate::listers::{Listers, Resource};

/// Error of a policy whose kind of parameters is not served.
pub(super) fn unknown_kind(kind: &GroupVersionKind) -> String {
    format!("failed to find resource referenced by paramKind: '{kind}'")
}

/// Returns the resource that serves a kind in its version, and true if it is namespaced.
pub(super) fn find_resource(
    listers: &dyn Listers,
    kind: &GroupVersionKind,
) -> Option<(GroupVersionResource, bool)> {
    let found = listers.resource_of(&kind.group, &kind.version, &kind.kind);
    found.filter(|(resource, _)| resource.version == kind.version)
}

/// Returns the parameters of a binding. A policy without parameters, or a binding without a reference, has one: none. No
/// parameters at all mean that the policy is not evaluated.
pub(super) async fn collect(
    interfaces: &Interfaces,
    kind: Option<&GroupVersionKind>,
    reference: Option<&ParamRef>,
    namespace: &str,
) -> Result<Vec<Option<Arc<Value>>>, String> {
    let (Some(kind), Some(reference)) = (kind, reference) else { return Ok(vec![None]) };
    let Some((resource, is_namespaced)) = find_resource(&*interfaces.listers, kind) else {
        return Err(format!("paramKind kind `{}, Kind={}` not known", kind.api_version(), kind.kind));
    };
    let namespace = match (is_namespaced, reference.namespace.as_str(), namespace) {
        (false, "", _) => "",
        (false, ..) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (true, "", "") => {
            let why =
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, "", own) => own,
        (true, named, _) => named,
    };
    let snapshot =
        list(&*interfaces.listers, Resource::from(&resource)).await.map_err(|status| status.message)?;
    let found: Vec<Arc<Value>> = if !reference.name.is_empty() {
        snapshot.get(namespace, &reference.name).cloned().into_iter().collect()
    } else {
        let selector = reference.selector.as_ref().map_err(Clone::clone)?;
        let selected = |object: &&Arc<Value>| selector.matches_object(object);
        match is_namespaced {
            true => snapshot.in_namespace(namespace).filter(selected).cloned().collect(),
            false => snapshot.iter().filter(selected).cloned().collect(),
        }
    };
    if found.is_empty() && reference.denies_if_missing {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let mut params = Vec::with_capacity(found.len());
    for object in found {
        // Objects are listed in the version that they are stored in.
        let object = match GroupVersionKind::of(&object) == *kind {
            true => object,
            false => {
                let converted = interfaces.objects.convert(Value::clone(&object), kind).await;
                Arc::new(converted.map_err(|status| status.message)?)
            }
        };
        params.push(Some(object));
    }
    Ok(params)
}
