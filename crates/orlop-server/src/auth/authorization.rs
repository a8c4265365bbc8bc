//! Who may do what. So far: the administrator everything, everybody health and version.

use orlop_api::{group_version::GroupResource, status::Status};

use super::User;
use crate::request::RequestInfo;

/// What anybody may read.
const OPEN_PATHS: &[&str] = &["/healthz", "/livez", "/readyz", "/version"];

/// Refuses what a user may not do.
pub(crate) fn authorize(user: &User, info: &RequestInfo, path: &str) -> Result<(), Status> {
    if user.is_master() {
        return Ok(());
    }
    let open = |allowed: &&&str| {
        path == **allowed || path.strip_prefix(**allowed).is_some_and(|r| r.starts_with('/'))
    };
    if info.resource.is_none() && info.verb == "get" && OPEN_PATHS.iter().find(open).is_some() {
        return Ok(());
    }
    Err(match &info.resource {
        None => Status::new(
            403,
            orlop_api::status::Reason::Forbidden,
            format!("forbidden: User {:?} cannot {} path {path:?}", user.name, info.verb),
        ),
        Some(about) => {
            let resource = if about.subresource.is_empty() {
                about.resource.clone()
            } else {
                format!("{}/{}", about.resource, about.subresource)
            };
            let place = if about.namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {:?}", about.namespace)
            };
            let why = format!(
                "User {:?} cannot {} resource {resource:?} in API group {:?} {place}",
                user.name, info.verb, about.group
            );
            Status::forbidden(
                &GroupResource::new(about.group.clone(), about.resource.clone()),
                &about.name,
                &why,
            )
        }
    })
}
