//! Errors of stored objects that cannot be read, since their conversion fails. A get and a list say so by reason.

use orlop_api::status::{Reason, Status};

use crate::registry::Kind;

/// Returns the error of a get.
pub(super) fn of_object(error: Status) -> Status {
    if is_conversion(&error) { Status::internal(&error.message) } else { error }
}

/// Returns the error of a list.
pub(super) fn of_list(kind: &Kind, error: Status) -> Status {
    if !is_conversion(&error) {
        return error;
    }
    let resource = kind.group_resource();
    let message = format!("failed to read one or more {resource} from the storage: {}", error.message);
    let mut status = Status::plain(message).with_cause("UnexpectedServerResponse", error.message, "");
    status.custom_reason = Some("StorageReadError".into());
    let details = status.details_mut();
    (details.group, details.kind) = (resource.group, resource.resource);
    "list".clone_into(&mut details.name);
    status
}

/// Conversions fail without a reason, as they do while an object is written.
fn is_conversion(error: &Status) -> bool {
    error.code == 500 && error.reason == Reason::Unknown && error.custom_reason.is_none()
}
