//! Meanings of error responses.

/// Returns whether the object or the resource does not exist.
pub(crate) fn is_not_found(error: &orlop_client::Error) -> bool {
    code(error) == Some(404)
}

/// Returns whether a write lost against another, or its object exists already.
pub(crate) fn is_conflict(error: &orlop_client::Error) -> bool {
    code(error) == Some(409)
}

/// Returns whether the request is not permitted.
pub(crate) fn is_forbidden(error: &orlop_client::Error) -> bool {
    code(error) == Some(403)
}

/// Returns whether the object does not exist although its resource is served.
pub(crate) fn is_object_not_found(error: &orlop_client::Error) -> bool {
    matches!(error, orlop_client::Error::Api(status) if status.code == 404
        && status.details.as_ref().is_some_and(|details| !details.name.is_empty()))
}

/// Returns whether the resourceVersion is compacted.
pub(crate) fn is_expired(error: &orlop_client::Error) -> bool {
    code(error) == Some(410)
}

fn code(error: &orlop_client::Error) -> Option<u16> {
    match error {
        orlop_client::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Returns whether the object is invalid.
pub(crate) fn is_invalid(error: &orlop_client::Error) -> bool {
    code(error) == Some(422)
}

/// Returns whether an object of that name exists already.
pub(crate) fn is_already_exists(error: &orlop_client::Error) -> bool {
    matches!(error, orlop_client::Error::Api(status) if status.reason == "AlreadyExists")
}

/// Returns whether the namespace of a create is being deleted.
pub(crate) fn is_namespace_terminating(error: &orlop_client::Error) -> bool {
    let orlop_client::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Returns the message of an error, as Kubernetes' controllers quote it.
pub(crate) fn message(error: &orlop_client::Error) -> String {
    match error {
        orlop_client::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}
