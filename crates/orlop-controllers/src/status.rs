//! Meanings of error responses.

/// Returns whether the object or the resource does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    code(error) == Some(404)
}

/// Returns whether a write lost against another, or its object exists already.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    code(error) == Some(409)
}

/// Returns whether the request is not permitted.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    code(error) == Some(403)
}

/// Returns whether the object does not exist although its resource is served.
pub(crate) fn is_object_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404
        && status.details.as_ref().is_some_and(|details| !details.name.is_empty()))
}

/// Returns whether the resourceVersion is compacted.
pub(crate) fn is_expired(error: &kube::Error) -> bool {
    code(error) == Some(410)
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
