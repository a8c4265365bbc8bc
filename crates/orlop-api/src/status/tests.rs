use super::*;
use crate::field_error::FieldPath;

fn deployments() -> GroupResource {
    GroupResource::new("apps", "deployments")
}

#[test]
fn each_reason_has_its_code_and_message() {
    let pods = GroupResource::new("", "pods");
    let none = GroupResource::default();
    let cases: Vec<(Status, u16, &str, &str)> = vec![
        (Status::not_found(&deployments(), "x"), 404, "NotFound", r#"deployments.apps "x" not found"#),
        (Status::resource_unknown(), 404, "NotFound", "the server could not find the requested resource"),
        (Status::already_exists(&pods, "x"), 409, "AlreadyExists", r#"pods "x" already exists"#),
        (
            Status::already_exists_terminating(&pods, "x"),
            409,
            "AlreadyExists",
            r#"object is being deleted: pods "x" already exists"#,
        ),
        (
            Status::generate_name_conflict(&pods, "x"),
            409,
            "AlreadyExists",
            r#"pods "x" already exists, the server was not able to generate a unique name for the object"#,
        ),
        (
            Status::conflict_modified(&pods, "x"),
            409,
            "Conflict",
            r#"Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes to the latest version and try again"#,
        ),
        (
            Status::conflict_precondition(&pods, "x", "UID", "A", "B"),
            409,
            "Conflict",
            r#"Operation cannot be fulfilled on pods "x": Precondition failed: UID in precondition: A, UID in object meta: B"#,
        ),
        (Status::unauthorized(), 401, "Unauthorized", "Unauthorized"),
        (Status::forbidden(&pods, "x", "no"), 403, "Forbidden", r#"pods "x" is forbidden: no"#),
        (Status::forbidden(&pods, "", "no"), 403, "Forbidden", "pods is forbidden: no"),
        (Status::forbidden(&none, "", "no"), 403, "Forbidden", "forbidden: no"),
        (Status::too_old_resource_version(3, 9), 410, "Expired", "too old resource version: 3 (9)"),
        (
            Status::method_not_allowed(&pods, "create"),
            405,
            "MethodNotAllowed",
            r#"create is not supported on resources of kind "pods""#,
        ),
        (
            Status::not_acceptable(&["a", "b"]),
            406,
            "NotAcceptable",
            "only the following media types are accepted: a, b",
        ),
        (
            Status::unsupported_media_type(&["a"]),
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: a",
        ),
        (
            Status::request_entity_too_large("limit is 3145728"),
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728",
        ),
        (
            Status::too_large_resource_version(9, 3),
            504,
            "Timeout",
            "Timeout: Too large resource version: 9, current: 3",
        ),
        (
            Status::server_timeout(&pods, "list", 2),
            500,
            "ServerTimeout",
            "The list operation against pods could not be completed at this time, please try again.",
        ),
        (Status::internal("oops"), 500, "InternalError", "Internal error occurred: oops"),
        (Status::plain("p"), 500, "", "p"),
    ];
    for (status, code, reason, message) in cases {
        assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (code, reason, message));
        let wire = status.to_value();
        assert_eq!(wire["status"], "Failure");
        assert_eq!(wire["code"], code);
    }
}

#[test]
fn invalid_lists_every_cause_with_its_field() {
    let kind = GroupKind::new("apps", "Deployment");
    let path = FieldPath::root("spec").child("replicas");
    let errors =
        [FieldError::invalid(&path, -1, "must be positive"), FieldError::required(&FieldPath::root("a"), "")];
    let status = Status::invalid(&kind, "x", &errors);
    assert_eq!(
        status.message,
        r#"Deployment.apps "x" is invalid: [spec.replicas: Invalid value: -1: must be positive, a: Required value]"#
    );
    let wire = status.to_value();
    assert_eq!(wire["details"]["kind"], "Deployment");
    assert_eq!(
        wire["details"]["causes"][0],
        json!({"reason": "FieldValueInvalid", "message": "Invalid value: -1: must be positive", "field": "spec.replicas"})
    );
}

#[test]
fn expired_list_has_a_continue_token() {
    let wire = Status::continue_expired("abc").to_value();
    assert_eq!(wire["metadata"]["continue"], "abc");
    assert_eq!(wire["reason"], "Expired");
}

#[test]
fn deletion_details_name_the_resource() {
    let wire = Status::deleted(&deployments(), "x", "u");
    assert_eq!(wire["details"], json!({"name": "x", "group": "apps", "kind": "deployments", "uid": "u"}));
}
